"""Executors compute edge rounds. A round begins when its edge starts it; the cloud waits for its result.

The simulator decides *which* models are needed, an executor *when and where* it computes them. Edge models
travel through the simulation as promises (`PendingModel`). A promise is plain data, so a checkpoint can hold
it. Client tasks are pure, so an executor may compute a promise at any time and place, or twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from hiflash.core.aggregation import MEAN, Rule, combine_clients, mean_steps
from hiflash.core.algorithms.algorithm import ClientAlgorithm, Done, Steps, gather, usable_extra
from hiflash.core.attack import HONEST, Attack
from hiflash.core.state import shared_record
from hiflash.execute.secure import PrivateRounds, SecureRules, open_round
from hiflash.messages import Assignment, ClientTask, ClientUpdate, Extra, Model, Promise, Weights
from hiflash.train.task import TaskResult, Trainer
from hiflash.weights import Spans, cut, finite, graft

__all__ = [
    "ClientShare",
    "EdgeModel",
    "Executor",
    "LazyExecutor",
    "PendingModel",
    "RoundRules",
    "RoundWork",
    "begin",
    "client_share",
    "client_task",
    "close_round",
    "resolve",
    "start_round",
]


@shared_record
@dataclass(frozen=True, slots=True, eq=False)
class PendingModel(Promise):
    """The promise of an edge model: the result of the assignments `work` on the model `base`.

    `examples` has the sample counts of the clients, in order; `kept` the values that clients do not share.
    `states` are what their algorithm keeps on them, and `extra` came with the grant. `asked` are all
    clients of the round with their samples, also those that are late: a private or a secure sum counts them.
    """

    lease_id: int
    index: int
    work: tuple[Assignment, ...]
    examples: tuple[int, ...]
    quorum: int
    base: Model
    kept: Mapping[int, Weights]
    states: Mapping[int, Extra] = field(default_factory=dict)
    extra: Extra = field(default_factory=dict)
    edge: int = 0
    asked: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class EdgeModel:
    """The model of an edge before or between the rounds of a lease, or after the last one.

    `examples` has the sample counts of the clients that contributed, `kept` the values they do not share,
    `states` what their algorithm keeps on them, and `extra` what they send beside their models. `steps` is
    the mean of their local steps in this lease, and `metrics` are means of the last round. Under secure sums
    nobody knows the samples of a client: `examples` has one entry for those of the last round together, and
    `clipped` counts the values that were clipped in this lease.
    """

    weights: Weights
    examples: Mapping[int, int] = field(default_factory=dict)
    kept: Mapping[int, Weights] = field(default_factory=dict)
    states: Mapping[int, Extra] = field(default_factory=dict)
    extra: Extra = field(default_factory=dict)
    steps: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    clipped: int = 0


SGD, PLAIN_STEPS = ClientAlgorithm(), Steps()


@dataclass(frozen=True, slots=True)
class RoundRules:
    """The rules of every edge round of a run, as plain data for any worker.

    `local` are the spans of a model that clients do not share. The first `trained` values of a model are
    trained; None means all. With `private` an edge adds noise to the sum of a round, and no rule applies.
    With `secure` it sees the sum of its clients' models only; what is private then is there too.
    """

    rule: Rule = MEAN
    attack: Attack = HONEST
    local: Spans = ()
    algorithm: ClientAlgorithm = SGD
    counter: Steps = PLAIN_STEPS
    trained: int | None = None
    private: PrivateRounds | None = None
    secure: SecureRules | None = None


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
    states: Mapping[int, Extra] = field(default_factory=dict)
    extra: Extra = field(default_factory=dict)
    edge: int = 0
    asked: tuple[tuple[int, int], ...] = ()


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
            model.lease_id,
            model.index,
            model.work,
            model.examples,
            model.quorum,
            base,
            model.kept,
            due,
            model.states,
            model.extra,
            model.edge,
            model.asked,
        )
    )


def resolve(model: PendingModel, executor: Executor, due: float) -> EdgeModel | None:
    """Return the model behind a promise, None if it is unusable."""
    begin(model, executor, due)
    return executor.result(model.lease_id, model.index)


def start_round(rules: RoundRules, work: RoundWork, before: EdgeModel) -> list[ClientTask]:
    """Return the tasks of a round that starts from `before`, each with its client's own values."""
    tasks = []
    for each in work.work:
        client = each.client
        own = before.kept.get(client, work.kept.get(client))  # the values from this lease are newer
        state = before.states.get(client, work.states.get(client, {}))
        tasks.append(client_task(rules, each, before.weights, own, state, work.extra))
    return tasks


def client_task(
    rules: RoundRules, work: Assignment, model: Weights, own: Weights | None, state: Extra, extra: Extra
) -> ClientTask:
    """Return the task of a client that got a model, with its `own` values and its algorithm's state."""
    client, first_step, steps, lr, seed = work
    weights = model if own is None else graft(model, rules.local, own)
    if not rules.algorithm.keeps:
        return ClientTask(client, first_step, steps, lr, weights, seed)
    correction, mu = rules.algorithm.before(state, extra)
    return ClientTask(client, first_step, steps, lr, weights, seed, correction, mu, state, extra)


class ClientShare(NamedTuple):
    """A client's share of an edge round: what it sends, and what it keeps.

    `steps` and `extra` go with the model. `kept` are its values of the model that it does not share, None if
    they stay as before; so does its algorithm's `state`, which counts once the cloud has accepted the upload.
    """

    weights: Weights
    steps: float
    extra: Extra
    kept: Weights | None
    state: Extra | None


def client_share(rules: RoundRules, task: ClientTask, result: TaskResult, base: Weights) -> ClientShare:
    """Return a client's share of the round that began with the model `base`."""
    own = cut(result.weights, rules.local) if rules.local else None
    sent = rules.attack.tamper(task, result.weights, base)
    steps = rules.counter.effective(task.steps, task.lr, task.mu)
    state: Extra | None = None
    extra: Extra = {}
    if rules.algorithm.keeps and finite(sent):
        new, gives = _after(rules, task, result, sent, steps)
        if usable_extra(gives):  # if not, the client keeps its old state
            state, extra = new, gives
    return ClientShare(sent, steps, extra, own if own is not None and finite(own) else None, state)


def close_round(
    rules: RoundRules,
    work: RoundWork,
    before: EdgeModel,
    tasks: Sequence[ClientTask],
    results: Sequence[TaskResult],
) -> EdgeModel | None:
    """Return the edge model of a round whose tasks are done, None if too few results are usable."""
    base, kept, states, updates = before.weights, dict(before.kept), dict(before.states), []
    for task, examples, result in zip(tasks, work.examples, results, strict=True):
        client, share = task.client, client_share(rules, task, result, base)
        if share.kept is not None:
            kept[client] = share.kept
        if share.state is not None:
            states[client] = share.state
        updates.append(
            ClientUpdate(
                client,
                work.lease_id,
                work.index,
                share.weights,
                examples,
                result.loss,
                0.0,
                0.0,
                share.steps,
                share.extra,
            )
        )
    if rules.private is not None:
        return _private_model(rules.private, work, base, updates)
    if rules.secure is not None:
        return _opened(rules.secure, work, before, updates, EdgeModel(base, {}, kept, states))
    made = combine_clients(updates, work.quorum, base, rules.rule)
    if made is None:
        return None
    weights, clients = made
    counted = sorted((update for update in updates if update.client in clients), key=lambda u: u.client)
    counts = {update.client: update.examples for update in counted}
    extras = [update.extra for update in counted]
    return EdgeModel(
        weights,
        {**before.examples, **counts},
        kept,
        states,
        gather(rules.algorithm.gathers, before.extra, extras, list(counts.values())),
        before.steps + mean_steps(counted),
        _mean_metrics(tasks, results, counts),
    )


def _private_model(
    private: PrivateRounds, work: RoundWork, base: Weights, updates: Sequence[ClientUpdate]
) -> EdgeModel | None:
    """Return the edge model of a private sum, and nothing else about its clients."""
    if len(updates) < work.quorum:
        return None
    models = {update.client: update.weights for update in updates}
    divisor = private.divisors[work.edge]
    return EdgeModel(private.sum.combine(models, base, divisor, work.lease_id, work.index))


def _opened(
    secure: SecureRules, work: RoundWork, before: EdgeModel, updates: Sequence[ClientUpdate], own: EdgeModel
) -> EdgeModel | None:
    """Return the edge model of a round under secure sums; `own` has what the clients keep."""
    place = (work.edge, work.lease_id, work.index)
    opened = open_round(secure, place, work.asked, updates, work.quorum, before.weights)
    if opened is None or secure.private is not None:  # then nothing else becomes known of its clients
        return None if opened is None else EdgeModel(opened.weights)
    steps = [update.steps for update in updates if update.client in opened.clients]
    return EdgeModel(
        opened.weights,
        {-1: opened.examples},
        own.kept,
        own.states,
        steps=before.steps + sum(steps) / len(steps),
        clipped=before.clipped + opened.clipped,
    )


def _after(
    rules: RoundRules, task: ClientTask, result: TaskResult, sent: Weights, steps: float
) -> tuple[Extra, Extra]:
    """Return a client's new state and what it sends beside its model, as the algorithm has them.

    They follow from the model that the client sends, also if it is malicious. Values that clients do not
    share need no correction: for the algorithm they do not change.
    """
    end = graft(sent, rules.local, cut(task.weights, rules.local)) if rules.local else sent
    done = Done(
        task.client,
        steps,
        task.lr,
        task.weights[: rules.trained],
        end[: rules.trained],
        result.state,
        result.extra,
    )
    with np.errstate(over="ignore", invalid="ignore"):  # the caller checks the result
        return rules.algorithm.after(done, task.state, task.extra)


def _mean_metrics(
    tasks: Sequence[ClientTask], results: Sequence[TaskResult], counts: Mapping[int, int]
) -> dict[str, float]:
    """Return the mean of every metric that clients report, weighted by the samples of those that report."""
    told = [
        (result.metrics, counts[task.client])
        for task, result in zip(tasks, results, strict=True)
        if result.metrics and task.client in counts
    ]
    means = {}
    for name in sorted({name for metrics, _ in told for name in metrics}):
        some = [(metrics[name], count) for metrics, count in told if name in metrics]
        means[name] = sum(value * count for value, count in some) / sum(count for _, count in some)
    return means


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
        tasks = start_round(self.rules, work, before)
        return close_round(self.rules, work, before, tasks, self.trainer.train(tasks) if tasks else [])

    def leases(self) -> list[int]:
        """Return the leases that have rounds here."""
        return list(self.rounds)

    def drop(self, lease_id: int) -> None:
        """Forget the rounds of a lease."""
        self.rounds.pop(lease_id, None)
