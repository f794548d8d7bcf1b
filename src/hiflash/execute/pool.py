"""Workers on this machine: threads that take client tasks in the order in which they are due.

Threads are enough: the trainers release the interpreter lock while they compute. Each task is pure and
runs on one thread, so neither the number of workers nor the choice of a worker changes a bit of a result.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hiflash.execute.executor import PLAIN, EdgeModel, RoundRules, RoundWork, close_round, start_round
from hiflash.execute.tester import Tester
from hiflash.messages import ClientTask, Weights
from hiflash.train.task import TaskResult, WorkerTrainer

__all__ = ["WorkerPool"]

AT_ONCE = float("-inf")  # due before everything else


@dataclass(slots=True, eq=False)
class _Round:
    """A round under way."""

    work: RoundWork
    results: list[TaskResult | None]
    missing: int
    done: bool = False
    dropped: bool = False
    model: EdgeModel | None = None
    followers: list[_Round] = field(default_factory=list)


class WorkerPool(Tester):
    """An executor with one trainer per thread.

    A round's tasks are queued when its starting model is known. The thread that finishes the last task
    combines the client models and queues the tasks of the next round. Threads start with the first task, so
    a process with a pool that has not worked yet may be forked.
    """

    def __init__(
        self,
        make_trainer: Callable[[], WorkerTrainer],
        workers: int,
        test_size: int,
        rules: RoundRules = PLAIN,
    ) -> None:
        self.test_size = test_size
        self.rules = rules
        self._changed = threading.Condition()
        self._queue: list[tuple[float, int, Callable[[WorkerTrainer], None]]] = []
        self._counter = 0
        self._rounds: dict[int, dict[int, _Round]] = {}
        self._error: BaseException | None = None
        self._closed = False
        self._trainers = [make_trainer() for _ in range(workers)]
        self.name = self._trainers[0].name
        self._whole_rounds = self._trainers[0].whole_rounds
        self._threads: list[threading.Thread] = []

    def begin(self, work: RoundWork) -> None:
        """Queue a round after the round before it."""
        entry = _Round(work, [None] * len(work.work), len(work.work))
        with self._changed:
            rounds = self._rounds.setdefault(work.lease_id, {})
            rounds[work.index] = entry
            if work.base is not None:
                self._queue_tasks(entry, EdgeModel(work.base))
                return
            before = rounds[work.index - 1]
            if before.done:
                self._follow(before, entry)
            else:
                before.followers.append(entry)

    def begun(self, lease_id: int, index: int) -> bool:
        """Return whether a round was taken on and not dropped."""
        return index in self._rounds.get(lease_id, {})

    def result(self, lease_id: int, index: int) -> EdgeModel | None:
        """Wait for a round and return its edge model, None if too few client models are usable."""
        entry = self._rounds[lease_id][index]
        with self._changed:
            self._wait(lambda: entry.done)
        return entry.model

    def leases(self) -> list[int]:
        """Return the leases that have rounds here."""
        return list(self._rounds)

    def drop(self, lease_id: int) -> None:
        """Forget the rounds of a lease; tasks that have not started never run."""
        with self._changed:
            for entry in self._rounds.pop(lease_id, {}).values():
                entry.dropped = True

    def train(self, tasks: Sequence[ClientTask]) -> list[TaskResult]:
        """Return the results in the order of the tasks."""
        return self._gather([partial(_train_one, task) for task in tasks])

    def close(self) -> None:
        """End every thread after its running task."""
        with self._changed:
            self._closed = True
            self._queue.clear()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def sums(self, weights: Weights, parts: Sequence[tuple[int, int]]) -> list[tuple[float, ...]]:
        """Return the task's sums over each of some parts of the test set and of what follows it."""
        return self._gather([partial(_evaluate, weights, start, stop) for start, stop in parts])

    def _gather(self, jobs: Sequence[Callable[[WorkerTrainer], Any]]) -> list[Any]:
        """Run jobs before everything else and return their results in order."""
        results: list[Any] = [None] * len(jobs)
        missing = len(jobs)

        def run(index: int, trainer: WorkerTrainer) -> None:
            nonlocal missing
            results[index] = jobs[index](trainer)
            with self._changed:
                missing -= 1
                self._changed.notify_all()

        with self._changed:
            for index in range(len(jobs)):
                self._put(AT_ONCE, partial(run, index))
            self._wait(lambda: missing == 0)
        return results

    def _put(self, due: float, job: Callable[[WorkerTrainer], None]) -> None:
        if not self._threads:
            self._start()
        self._counter += 1
        heapq.heappush(self._queue, (due, self._counter, job))
        self._changed.notify()

    def _start(self) -> None:
        self._threads = [
            threading.Thread(target=self._work, args=(trainer,), name="hiflash-worker", daemon=True)
            for trainer in self._trainers
        ]
        for thread in self._threads:
            thread.start()

    def _wait(self, done: Callable[[], bool]) -> None:
        self._changed.wait_for(lambda: done() or self._error is not None)
        if self._error is not None:
            raise self._error

    def _queue_tasks(self, entry: _Round, before: EdgeModel) -> None:
        """Queue a round whose starting model is known. The caller holds the lock."""
        tasks = start_round(self.rules, entry.work, before)
        count = len(tasks)
        together = self._whole_rounds or not count  # a private round may have no clients, only noise
        for indices in [range(count)] if together else [range(i, i + 1) for i in range(count)]:
            self._put(entry.work.due, partial(self._run_tasks, entry, before, tasks, indices))

    def _run_tasks(
        self,
        entry: _Round,
        before: EdgeModel,
        tasks: Sequence[ClientTask],
        indices: range,
        trainer: WorkerTrainer,
    ) -> None:
        if entry.dropped:
            return
        trained = trainer.train([tasks[i] for i in indices]) if indices else []
        for index, result in zip(indices, trained, strict=True):
            entry.results[index] = result
        with self._changed:
            entry.missing -= len(indices)
            if entry.missing:
                return
        results = [result for result in entry.results if result is not None]
        model = close_round(self.rules, entry.work, before, tasks, results)
        with self._changed:
            entry.model, entry.done, entry.results = model, True, []
            for follower in entry.followers:
                self._follow(entry, follower)
            self._changed.notify_all()

    def _follow(self, before: _Round, entry: _Round) -> None:
        """Queue a round after a finished one. Without a usable model to start from, it ends at once."""
        if before.model is None:
            entry.done = True
            for follower in entry.followers:
                self._follow(entry, follower)
        else:
            self._queue_tasks(entry, before.model)

    def _work(self, trainer: WorkerTrainer) -> None:
        _one_torch_thread()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._queue) or self._closed)
                if self._closed:
                    return
                _, _, job = heapq.heappop(self._queue)
            try:
                job(trainer)
            except BaseException as error:  # the waiting thread must learn of every error
                with self._changed:
                    self._error = error
                    self._changed.notify_all()


def _evaluate(weights: Weights, start: int, stop: int, trainer: WorkerTrainer) -> tuple[float, ...]:
    return trainer.evaluate(weights, start, stop)


def _train_one(task: ClientTask, trainer: WorkerTrainer) -> TaskResult:
    return trainer.train([task])[0]


def _one_torch_thread() -> None:
    """Keep a worker's sums in one order: two torch threads add in another order than one."""
    import torch

    torch.set_num_threads(1)
