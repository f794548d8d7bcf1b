"""Where edge rounds are computed: begun when an edge starts them, awaited when the cloud needs the result.

The simulator decides *that* a model is needed, an executor *when and where* it is computed. Edge models
travel through the simulation as promises (`PendingModel`), which are data: they can be saved, and since
client tasks are pure it cannot matter when, where or whether they are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from hiflash.core.aggregation import average_clients
from hiflash.messages import ClientTask, ClientUpdate, Weights

__all__ = [
    "Executor",
    "LazyExecutor",
    "PendingModel",
    "RoundWork",
    "TaskResult",
    "Trainer",
    "begin",
    "close_round",
    "promise",
    "resolve",
]


@dataclass(frozen=True, slots=True, eq=False)
class TaskResult:
    """What a trainer made of one client task."""

    weights: Weights
    loss: float


class Trainer(Protocol):
    """Runs client tasks: pure, so that the same task gives the same bits on any worker."""

    def train(self, tasks: Sequence[ClientTask]) -> list[TaskResult]:
        """Return the results in the order of the tasks."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class PendingModel:
    """An edge model that nobody has waited for yet: the mean of these updates, whose weights are tasks."""

    updates: tuple[ClientUpdate, ...]
    quorum: int


@dataclass(frozen=True, slots=True, eq=False)
class RoundWork:
    """One edge round to compute. Without a `base` it starts from what the round before it gives.

    `due` is the virtual time at which the cloud will want the lease's upload: what is due first should
    be computed first.
    """

    lease_id: int
    index: int
    tasks: tuple[ClientTask, ...]
    examples: tuple[int, ...]
    quorum: int
    base: Weights | None
    due: float


class Executor(Protocol):
    """Computes edge rounds. A round is known by its lease and index."""

    name: str

    def begin(self, work: RoundWork) -> None:
        """Take on a round."""
        ...

    def begun(self, lease_id: int, index: int) -> bool:
        """Return whether a round was taken on and not dropped."""
        ...

    def result(self, lease_id: int, index: int) -> Weights | None:
        """Wait for a round and return its edge model, None if too few of its clients' are usable."""
        ...

    def leases(self) -> list[int]:
        """Return the leases that have rounds here."""
        ...

    def drop(self, lease_id: int) -> None:
        """Forget the rounds of a lease; what has not begun to run will not."""
        ...


def promise(updates: Sequence[ClientUpdate], quorum: int) -> PendingModel:
    """Return the edge model of these updates without computing it."""
    return PendingModel(tuple(updates), quorum)


def begin(model: PendingModel, executor: Executor, due: float) -> None:
    """Have the rounds behind a promise computed that are not yet, oldest first."""
    first = model.updates[0]
    if executor.begun(first.lease_id, first.round):
        return
    base = first.weights.weights
    if isinstance(base, PendingModel):
        begin(base, executor, due)
    executor.begin(
        RoundWork(
            lease_id=first.lease_id,
            index=first.round,
            tasks=tuple(replace(update.weights, weights=None) for update in model.updates),
            examples=tuple(update.examples for update in model.updates),
            quorum=model.quorum,
            base=None if isinstance(base, PendingModel) else base,
            due=due,
        )
    )


def resolve(model: PendingModel, executor: Executor, due: float) -> Weights | None:
    """Return the weights behind a promise, None if they are unusable."""
    begin(model, executor, due)
    return executor.result(model.updates[0].lease_id, model.updates[0].round)


def close_round(work: RoundWork, results: Sequence[TaskResult]) -> Weights | None:
    """Return the edge model of a round whose tasks are done."""
    updates = [
        ClientUpdate(
            task.client, work.lease_id, work.index, result.weights, examples, result.loss, 0.0, 0.0, 0.0
        )
        for task, examples, result in zip(work.tasks, work.examples, results, strict=True)
    ]
    return average_clients(updates, work.quorum)


class LazyExecutor:
    """Computes a round when its result is asked for: nothing runs that is not needed."""

    name = "lazy"

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.rounds: dict[int, dict[int, RoundWork]] = {}

    def begin(self, work: RoundWork) -> None:
        """Take note of a round."""
        self.rounds.setdefault(work.lease_id, {})[work.index] = work

    def begun(self, lease_id: int, index: int) -> bool:
        """Return whether a round is known."""
        return index in self.rounds.get(lease_id, {})

    def result(self, lease_id: int, index: int) -> Weights | None:
        """Compute a round and those it builds on, and return its edge model."""
        work = self.rounds[lease_id][index]
        base = self.result(lease_id, index - 1) if work.base is None else work.base
        if base is None:
            return None
        return close_round(work, self.trainer.train([replace(task, weights=base) for task in work.tasks]))

    def leases(self) -> list[int]:
        """Return the leases that have rounds here."""
        return list(self.rounds)

    def drop(self, lease_id: int) -> None:
        """Forget the rounds of a lease."""
        self.rounds.pop(lease_id, None)
