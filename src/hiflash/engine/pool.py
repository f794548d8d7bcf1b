"""Workers on this machine: client tasks and evaluation spread over threads, results in task order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Protocol

from hiflash.engine.promise import TaskResult
from hiflash.messages import ClientTask, Weights

__all__ = ["WorkerPool", "WorkerTrainer"]

EVALUATION_SPAN = 500  # fixed, so that sums do not depend on the number of workers


class WorkerTrainer(Protocol):
    """What one worker runs."""

    name: str

    def train(self, tasks: Sequence[ClientTask]) -> list[TaskResult]:
        """Return the results in the order of the tasks."""
        ...

    def evaluate(self, weights: Weights, start: int, stop: int) -> tuple[int, float]:
        """Return the number of right answers and the summed loss on a span of the test set."""
        ...


class WorkerPool:
    """A trainer that hands tasks to as many trainers as there are workers.

    Threads are enough: torch releases the interpreter lock while it computes. Each task is pure and runs
    on one thread, so neither the number of workers nor who takes which task changes a bit of the result.
    """

    def __init__(self, make_trainer: Callable[[], WorkerTrainer], workers: int, test_size: int) -> None:
        self.test_size = test_size
        self.idle: SimpleQueue[WorkerTrainer] = SimpleQueue()
        for _ in range(workers):
            trainer = make_trainer()
            self.name = trainer.name
            self.idle.put(trainer)
        self.threads = ThreadPoolExecutor(workers, "hiflash-worker", initializer=_one_torch_thread)

    def train(self, tasks: Sequence[ClientTask]) -> list[TaskResult]:
        """Return the results in the order of the tasks."""
        return list(self.threads.map(self._train_one, tasks))

    def evaluate(self, weights: Weights) -> tuple[float, float]:
        """Return accuracy and mean loss on the whole test set."""
        starts = range(0, self.test_size, EVALUATION_SPAN)
        spans = list(self.threads.map(lambda start: self._evaluate_span(weights, start), starts))
        right, loss = (sum(column) for column in zip(*spans, strict=True))
        return right / self.test_size, loss / self.test_size

    def close(self) -> None:
        """Wait for what is running and end the threads."""
        self.threads.shutdown(cancel_futures=True)

    def _train_one(self, task: ClientTask) -> TaskResult:
        trainer = self.idle.get()
        try:
            return trainer.train([task])[0]
        finally:
            self.idle.put(trainer)

    def _evaluate_span(self, weights: Weights, start: int) -> tuple[int, float]:
        trainer = self.idle.get()
        try:
            return trainer.evaluate(weights, start, min(start + EVALUATION_SPAN, self.test_size))
        finally:
            self.idle.put(trainer)


def _one_torch_thread() -> None:
    """Keep a worker's sums in one order: two torch threads add up differently from one."""
    import torch

    torch.set_num_threads(1)
