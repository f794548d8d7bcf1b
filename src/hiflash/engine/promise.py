"""Edge models that nobody has computed yet, and how they are computed when somebody needs them.

A promise is data, not a running computation: it can be saved with the simulation, and since client
tasks are pure it cannot matter when, where or whether it is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from hiflash.core.aggregation import average_clients
from hiflash.messages import ClientTask, ClientUpdate, Weights

__all__ = ["PendingModel", "TaskResult", "Trainer", "promise", "resolve"]


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
    """An edge model that nobody has computed yet: the mean of these updates, whose weights are tasks."""

    updates: tuple[ClientUpdate, ...]
    quorum: int


def promise(updates: Sequence[ClientUpdate], quorum: int) -> PendingModel:
    """Return the edge model of these updates without computing it."""
    return PendingModel(tuple(updates), quorum)


def resolve(model: Weights | PendingModel, trainer: Trainer) -> Weights | None:
    """Return the weights behind a promise, training what has to be trained; None if unusable."""
    if not isinstance(model, PendingModel):
        return model
    # Rounds of a lease build on each other: unwind to the granted model, then go forward.
    rounds: list[PendingModel] = []
    weights: Any = model
    while isinstance(weights, PendingModel):
        rounds.append(weights)
        weights = weights.updates[0].weights.weights
    for pending in reversed(rounds):
        tasks = [replace(update.weights, weights=weights) for update in pending.updates]
        results = trainer.train(tasks)
        updates = [
            replace(update, weights=result.weights, loss=result.loss)
            for update, result in zip(pending.updates, results, strict=True)
        ]
        weights = average_clients(updates, pending.quorum)
        if weights is None:
            return None
    final: Weights = weights
    return final
