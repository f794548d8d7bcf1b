"""Executors compute edge rounds. A round begins when its edge starts it; the cloud waits for its result.

The simulator decides *which* models are needed, an executor *when and where* it computes them. Edge models
travel through the simulation as promises (`PendingModel`). A promise is plain data, so a checkpoint can hold
it. Client tasks are pure, so an executor may compute a promise at any time and place, or twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hiflash.core.aggregation import MEAN, Rule, combine_clients
from hiflash.core.attack import HONEST, Attack
from hiflash.core.state import shared_record
from hiflash.messages import Assignment, ClientTask, ClientUpdate, Model, Promise, Weights
from hiflash.train.task import TaskResult, Trainer
from hiflash.weights import Spans, cut, finite, graft

__all__ = [
    "EdgeModel",
    "Executor",
    "LazyExecutor",
    "PendingModel",
    "RoundRules",
    "RoundWork",
    "begin",
    "close_round",
    "resolve",
    "start_round",
]


@shared_record
@dataclass(frozen=True, slots=True, eq=False)
class PendingModel(Promise):
    """The promise of an edge model: the result of the assignments `work` on the model `base`.

    `examples` has the sample counts of the clients, in order; `kept` the values that clients do not share.
    """

    lease_id: int
    index: int
    work: tuple[Assignment, ...]
    examples: tuple[int, ...]
    quorum: int
    base: Model
    kept: Mapping[int, Weights]


@dataclass(frozen=True, slots=True, eq=False)
class EdgeModel:
    """The model of an edge before or between the rounds of a lease, or after the last one.

    `examples` has the sample counts of the clients that contributed, `kept` the values they do not share.
    """

    weights: Weights
    examples: Mapping[int, int] = field(default_factory=dict)
    kept: Mapping[int, Weights] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RoundRules:
    """The rules of every edge round of a run, as plain data for any worker.

    `local` are the spans of a model that clients do not share.
    """

    rule: Rule = MEAN
    attack: Attack = HONEST
    local: Spans = ()


PLAIN = RoundRules()


@dataclass(frozen=True, slots=True, eq=False)
class RoundWork:
    """One edge round to compute. Without a `base` it starts from the model of the round before it.

    `due` is the virtual time at which the lease's upload reaches the cloud. Executors compute the earliest
    rounds first.
    """

    lease_id: int
    index: int
    work: tuple[Assignment, ...]
    examples: tuple[int, ...]
    quorum: int
    base: Weights | None
    kept: Mapping[int, Weights]
    due: float


class Executor(Protocol):
    """Computes edge rounds. Lease and index identify a round."""

    name: str

    def begin(self, work: RoundWork) -> None:
        """Take on a round."""
        ...

    def begun(self, lease_id: int, index: int) -> bool:
        """Return whether a round was taken on and not dropped."""
        ...

    def result(self, lease_id: int, index: int) -> EdgeModel | None:
        """Wait for a round and return its edge model, None if too few client models are usable."""
        ...

    def leases(self) -> list[int]:
        """Return the leases that have rounds here."""
        ...

    def drop(self, lease_id: int) -> None:
        """Forget the rounds of a lease; tasks that have not started never run."""
        ...


def begin(model: PendingModel, executor: Executor, due: float) -> None:
    """Begin the rounds that a promise needs, oldest first, unless they have begun."""
    if executor.begun(model.lease_id, model.index):
        return
    if isinstance(model.base, PendingModel):
        begin(model.base, executor, due)
    base = None if isinstance(model.base, Promise) else model.base
    executor.begin(
        RoundWork(
            model.lease_id, model.index, model.work, model.examples, model.quorum, base, model.kept, due
        )
    )


def resolve(model: PendingModel, executor: Executor, due: float) -> EdgeModel | None:
    """Return the model behind a promise, None if it is unusable."""
    begin(model, executor, due)
    return executor.result(model.lease_id, model.index)


def start_round(rules: RoundRules, work: RoundWork, before: EdgeModel) -> list[ClientTask]:
    """Return the tasks of a round that starts from `before`, each with its client's unshared values."""
    tasks = []
    for client, first_step, steps, lr, seed in work.work:
        own = before.kept.get(client, work.kept.get(client))  # the values from this lease are newer
        weights = before.weights if own is None else graft(before.weights, rules.local, own)
        tasks.append(ClientTask(client, first_step, steps, lr, weights, seed))
    return tasks


def close_round(
    rules: RoundRules, work: RoundWork, before: EdgeModel, results: Sequence[TaskResult]
) -> EdgeModel | None:
    """Return the edge model of a round whose tasks are done, None if too few results are usable."""
    base, kept, updates = before.weights, dict(before.kept), []
    for assignment, examples, result in zip(work.work, work.examples, results, strict=True):
        client = assignment.client
        if rules.local and finite(own := cut(result.weights, rules.local)):
            kept[client] = own
        sent = rules.attack.tamper(assignment, result.weights, base)
        updates.append(ClientUpdate(client, work.lease_id, work.index, sent, examples, result.loss, 0.0, 0.0))
    made = combine_clients(updates, work.quorum, base, rules.rule)
    if made is None:
        return None
    weights, clients = made
    examples_of = {update.client: update.examples for update in updates}
    counted = {client: examples_of[client] for client in clients}
    return EdgeModel(weights, {**before.examples, **counted}, kept)


class LazyExecutor:
    """Computes a round only when its result is requested."""

    name = "lazy"

    def __init__(self, trainer: Trainer, rules: RoundRules = PLAIN) -> None:
        self.trainer = trainer
        self.rules = rules
        self.rounds: dict[int, dict[int, RoundWork]] = {}

    def begin(self, work: RoundWork) -> None:
        """Note a round for later."""
        self.rounds.setdefault(work.lease_id, {})[work.index] = work

    def begun(self, lease_id: int, index: int) -> bool:
        """Return whether a round is known."""
        return index in self.rounds.get(lease_id, {})

    def result(self, lease_id: int, index: int) -> EdgeModel | None:
        """Compute a round after the rounds before it, and return its edge model."""
        work = self.rounds[lease_id][index]
        before = self.result(lease_id, index - 1) if work.base is None else EdgeModel(work.base)
        if before is None:
            return None
        results = self.trainer.train(start_round(self.rules, work, before))
        return close_round(self.rules, work, before, results)

    def leases(self) -> list[int]:
        """Return the leases that have rounds here."""
        return list(self.rounds)

    def drop(self, lease_id: int) -> None:
        """Forget the rounds of a lease."""
        self.rounds.pop(lease_id, None)
