"""What runs in the processes of a Ray: edge rounds and parts of evaluations, by a trainer made once.

The functions are stateless: what they are given decides what they return, so Ray may run them anywhere,
and again elsewhere when a worker dies. Only the trainer of a setup is kept, to save the time to make it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hiflash.execute.executor import EdgeModel, RoundRules, RoundWork, close_round, start_round
from hiflash.messages import Assignment, ClientTask, Weights
from hiflash.train.task import Solver, TaskResult, WorkerTrainer

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Setup", "evaluate_spans", "run_round", "train_task"]

KEPT = 2  # trainers in a process: an old one holds its dataset in the object store
_made: dict[str, tuple[WorkerTrainer, RoundRules]] = {}


@dataclass(frozen=True, eq=False)
class Setup:
    """Everything that the tasks of a run share. It is placed in the object store once, as arrays.

    `trainer` is a kind that is known to work where the run was started. Ray serialises `make_model`: for
    a built-in model that is its name, for a user's own it is the user's code.
    """

    trainer: str
    make_model: Callable[[], nn.Module]
    solver: Solver
    x: np.ndarray
    y: np.ndarray
    indices: list[np.ndarray]
    x_test: np.ndarray
    y_test: np.ndarray
    rules: RoundRules

    def make_trainer(self) -> WorkerTrainer:
        """Return a trainer that computes on one thread and reads the data where they lie."""
        import torch

        from hiflash.train.choose import choose_trainer
        from hiflash.train.torch_trainer import Samples

        torch.set_num_threads(1)  # two would add up in another order
        with warnings.catch_warnings():
            # Torch warns, once, of arrays that must not be written to. Nobody does.
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            x, y, x_test, y_test = map(torch.from_numpy, (self.x, self.y, self.x_test, self.y_test))
        return choose_trainer(
            self.trainer, self.make_model, Samples(x, y, self.indices, x_test, y_test), self.solver
        )()


def run_round(setup: Sequence[Any], start: Weights | EdgeModel | None, work: RoundWork) -> EdgeModel | None:
    """Return the edge model of a round that starts from another; from an unusable one nothing can start."""
    if start is None:
        return None
    trainer, rules = _of(setup)
    before = start if isinstance(start, EdgeModel) else EdgeModel(start)
    return close_round(rules, work, before, trainer.train(start_round(rules, work, before)))


def assignment_of(task: ClientTask) -> Assignment:
    """Return a task without its model, which travels by itself: many tasks start from the same one."""
    return Assignment(task.client, task.first_step, task.steps, task.lr, task.seed)


def train_task(setup: Sequence[Any], base: Weights, work: Assignment) -> TaskResult:
    """Return the result of one client task."""
    task = ClientTask(work.client, work.first_step, work.steps, work.lr, base, work.seed)
    return _of(setup)[0].train([task])[0]


def evaluate_spans(
    setup: Sequence[Any], weights: Weights, spans: Sequence[tuple[int, int]]
) -> list[tuple[int, float]]:
    """Return right answers and summed loss of some spans of the test set, one by one."""
    trainer, _ = _of(setup)
    return [trainer.evaluate(weights, start, stop) for start, stop in spans]


def _of(setup: Sequence[Any]) -> tuple[WorkerTrainer, RoundRules]:
    """Return what a setup makes. It is the only item of a list: Ray would fetch a bare reference."""
    (reference,) = setup
    key = reference.hex()
    if key not in _made:
        import ray

        while len(_made) >= KEPT:
            del _made[next(iter(_made))]
        fetched = ray.get(reference)
        _made[key] = fetched.make_trainer(), fetched.rules
    return _made[key]
