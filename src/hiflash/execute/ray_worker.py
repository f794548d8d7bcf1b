"""The functions that Ray workers run: edge rounds, client tasks and evaluations of test spans.

The functions are stateless: their arguments alone decide their results. So Ray may run them anywhere, and
again elsewhere when a worker dies. A worker keeps only its trainers, to save the time to make them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hiflash.execute.executor import EdgeModel, RoundRules, RoundWork, close_round, start_round
from hiflash.messages import Assignment, ClientTask, Weights
from hiflash.methods.plugins import load_plugins
from hiflash.train.task import Solver, TaskResult, WorkerTrainer

if TYPE_CHECKING:
    from torch import nn

    from hiflash.train.function import OwnTraining
    from hiflash.train.tasks import Task

__all__ = ["Setup", "evaluate_spans", "run_round", "train_task"]

KEPT = 2  # trainers in a process: each one holds its dataset in the object store
_made: dict[str, tuple[WorkerTrainer, RoundRules]] = {}


@dataclass(frozen=True, eq=False)
class Setup:
    """The shared input of all tasks of a run. The object store holds it once, as arrays.

    `trainer` names a trainer that works on the machine that started the run. Ray serialises `make_model`:
    a built-in model as its name, a user's own model or training function as the user's code. `arrays` are x,
    y, x_test and y_test; the test set has `test_size` samples, and those held back or held out follow it.
    """

    trainer: str
    make_model: Callable[[], nn.Module]
    solver: Solver
    arrays: Sequence[np.ndarray]
    indices: list[np.ndarray]
    test_size: int
    task: Task
    rules: RoundRules
    plugins: tuple[str, ...] = ()
    own: OwnTraining | None = None

    def make_trainer(self) -> WorkerTrainer:
        """Return a trainer that computes on one thread and reads the data in place."""
        import torch

        from hiflash.train.choose import choose_trainer
        from hiflash.train.torch_trainer import Samples

        torch.set_num_threads(1)  # two threads would add in another order
        with warnings.catch_warnings():
            # Torch warns of read-only arrays. Trainers never write to them.
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            x, y, x_test, y_test = map(torch.from_numpy, self.arrays)
        return choose_trainer(
            self.trainer,
            self.make_model,
            Samples(x, y, self.indices, x_test, y_test, self.task),
            self.solver,
            self.own,
        )()


def run_round(setup: Sequence[Any], start: Weights | EdgeModel | None, work: RoundWork) -> EdgeModel | None:
    """Return the edge model of a round, None if its start or too many client models are unusable."""
    if start is None:
        return None
    trainer, rules = _of(setup)
    before = start if isinstance(start, EdgeModel) else EdgeModel(start)
    tasks = start_round(rules, work, before)
    return close_round(rules, work, before, tasks, trainer.train(tasks) if tasks else [])


def assignment_of(task: ClientTask) -> Assignment:
    """Return a task without its model. Many tasks start from one model, so it is sent separately."""
    return Assignment(task.client, task.first_step, task.steps, task.lr, task.seed)


def train_task(setup: Sequence[Any], base: Weights, work: Assignment) -> TaskResult:
    """Return the result of one client task."""
    task = ClientTask(work.client, work.first_step, work.steps, work.lr, base, work.seed)
    return _of(setup)[0].train([task])[0]


def evaluate_spans(
    setup: Sequence[Any], weights: Weights, spans: Sequence[tuple[int, int]]
) -> list[tuple[float, ...]]:
    """Return the task's sums over each span of the test set."""
    trainer, _ = _of(setup)
    return [trainer.evaluate(weights, start, stop) for start, stop in spans]


def _of(setup: Sequence[Any]) -> tuple[WorkerTrainer, RoundRules]:
    """Return the trainer and the rules of a setup, given as a list: Ray would fetch a bare reference.

    The list also names the plugins. They are loaded first, because the setup may hold parts of theirs.
    """
    reference, plugins = setup
    key = reference.hex()
    if key not in _made:
        import ray

        load_plugins(plugins)
        while len(_made) >= KEPT:
            del _made[next(iter(_made))]
        fetched = ray.get(reference)
        _made[key] = fetched.make_trainer(), fetched.rules
    return _made[key]
