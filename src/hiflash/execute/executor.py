"""Where edge rounds are computed: begun when an edge starts them, awaited when the cloud needs the result.

The simulator decides *that* a model is needed, an executor *when and where* it is computed. Edge models
travel through the simulation as promises (`PendingModel`), which are data: they can be saved, and since
client tasks are pure it cannot matter when, where or whether they are kept.
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
    """An edge model that nobody has waited for yet: what comes of these assignments from `base`.

    `examples` are the sample counts of the clients, in order; `kept` are the values that some of them keep
    to themselves.
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
    """A model as an edge has it after some rounds of a lease, or before the first.

    `examples` are those of the clients whose work is in it. `kept` is what they keep for themselves.
    """

    weights: Weights
    examples: Mapping[int, int] = field(default_factory=dict)
    kept: Mapping[int, Weights] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RoundRules:
    """What holds for every edge round of a run, as plain data: any worker can be given it.

    `local` are the parts of a model that every client keeps to itself.
    """

    rule: Rule = MEAN
    attack: Attack = HONEST
    local: Spans = ()


PLAIN = RoundRules()


@dataclass(frozen=True, slots=True, eq=False)
class RoundWork:
    """One edge round to compute. Without a `base` it starts from what the round before it gives.

    `due` is the virtual time at which the cloud will want the lease's upload: what is due first should
    be computed first.
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
    """Computes edge rounds. A round is known by its lease and index."""

    name: str

    def begin(self, work: RoundWork) -> None:
        """Take on a round."""
        ...

    def begun(self, lease_id: int, index: int) -> bool:
        """Return whether a round was taken on and not dropped."""
        ...

    def result(self, lease_id: int, index: int) -> EdgeModel | None:
        """Wait for a round and return its edge model, None if too few of its clients' are usable."""
        ...

    def leases(self) -> list[int]:
        """Return the leases that have rounds here."""
        ...

    def drop(self, lease_id: int) -> None:
        """Forget the rounds of a lease; what has not begun to run will not."""
        ...


def begin(model: PendingModel, executor: Executor, due: float) -> None:
    """Have the rounds behind a promise computed that are not yet, oldest first."""
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
    """Return the tasks of a round that starts from a model, each with what its client kept in it."""
    tasks = []
    for client, first_step, steps, lr, seed in work.work:
        own = before.kept.get(client, work.kept.get(client))  # what it kept under this lease is newer
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
    """Computes a round when its result is asked for: nothing runs that is not needed."""

    name = "lazy"

    def __init__(self, trainer: Trainer, rules: RoundRules = PLAIN) -> None:
        self.trainer = trainer
        self.rules = rules
        self.rounds: dict[int, dict[int, RoundWork]] = {}

    def begin(self, work: RoundWork) -> None:
        """Take note of a round."""
        self.rounds.setdefault(work.lease_id, {})[work.index] = work

    def begun(self, lease_id: int, index: int) -> bool:
        """Return whether a round is known."""
        return index in self.rounds.get(lease_id, {})

    def result(self, lease_id: int, index: int) -> EdgeModel | None:
        """Compute a round and those it builds on, and return its edge model."""
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
