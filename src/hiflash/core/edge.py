"""An edge as a state machine: one cluster of clients, one lease at a time, H synchronous rounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard, assert_never

from hiflash.core.aggregation import mean_steps
from hiflash.core.algorithms.algorithm import gather, usable_extra
from hiflash.core.state import Stateful
from hiflash.errors import ProtocolError
from hiflash.messages import (
    Abandon,
    Ask,
    Assignment,
    Cancel,
    CheckIn,
    ClientUpdate,
    Deadline,
    EdgeEffect,
    EdgeEvent,
    Estimates,
    Extra,
    Grant,
    Left,
    Model,
    Proceed,
    Progress,
    Promise,
    Received,
    Recluster,
    Refuse,
    Report,
    Round,
    Upload,
    Verdict,
    Weights,
    Welcome,
)
from hiflash.seeding import once

__all__ = ["Aggregate", "Edge", "EdgeRules", "Workload", "Workloads", "taking_part"]

Aggregate = Callable[[Sequence[ClientUpdate], int, Weights], tuple[Weights, Sequence[int]] | None]
"""Takes updates, the number that must be usable, and their base model. Returns a model and its clients."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A client's share in every task: its samples, its steps, and its learning rate by its own steps."""

    examples: int
    steps: int
    lr: float
    lr_decay: float
    lr_decay_steps: int

    def rate(self, taken: int) -> float:
        """Return the learning rate of a task that begins after `taken` steps; a task keeps its rate.

        >>> round(Workload(600, 3, 0.01, 0.99, 100).rate(250), 8)
        0.009801
        """
        return float(self.lr * self.lr_decay ** (taken // self.lr_decay_steps))


class Workloads(Protocol):
    """The workloads of all clients, inside and outside clusters; all edges share them."""

    def __getitem__(self, client: int, /) -> Workload:
        """Return the workload of a client."""
        ...


@dataclass(frozen=True, slots=True)
class EdgeRules:
    """How the edges of a federation run their rounds.

    `least` is the smallest number of models that the aggregation rule accepts. `gathers` says what becomes of
    the arrays that clients send beside their models, and `usable` whether they are the right ones. Without
    `trains` a round has no assignments: only its timing counts. `clients_per_round` is a number of clients, a
    share of the cluster below 1, or None for all (`taking_part`). `opens` says how many clients of a round
    must stay so that its secure sum can be opened, None without secure sums.
    """

    edge_rounds: tuple[int, ...]
    seed: int
    redraw: str = "setup"
    clients_per_round: float | None = None
    deadline_s: float = math.inf
    quorum: float = 1.0
    least: int = 1
    asks_between_rounds: bool = False
    trains: bool = True
    gathers: str = "sum"
    usable: Callable[[Extra], bool] = usable_extra
    opens: Callable[[int], int] | None = None


def taking_part(wanted: float | None, clients: int) -> int:
    """Return how many of a cluster's clients take part in an edge round; a share is rounded up.

    >>> [taking_part(0.5, clients) for clients in (1, 2, 5, 10)], taking_part(5, 3), taking_part(None, 3)
    ([1, 1, 3, 5], 3, 3)
    """
    if wanted is None:
        return clients
    if wanted < 1:
        wanted = math.ceil(wanted * clients - 1e-9)  # 0.28 * 25 is a bit over 7
    return min(int(wanted), clients)


class Edge(Stateful):
    """Trains its cluster, one lease after the other. Events enter through `handle` only."""

    STATE = ("taken", "estimates", "request_id", "grants", "rounds", "grant", "index", "model", "started_at",
             "expected", "updates", "gone", "seen", "sent_at", "awaiting", "lease_steps",
             "extra", "summed")  # fmt: skip

    def __init__(
        self,
        edge: int,
        clients: Iterable[int],
        workloads: Workloads,
        rules: EdgeRules,
        estimates: Estimates,
        aggregate: Aggregate,
    ) -> None:
        self.edge = edge
        self.workloads = workloads
        self.rules = rules
        self.aggregate = aggregate
        self.taken = dict.fromkeys(sorted(clients), 0)  # local steps of every client of the cluster
        self._count_cluster()
        self.estimates = estimates
        self.request_id = 0
        self.grants = 0
        self.rounds = self._draw_rounds(0)
        self.grant: Grant | None = None
        self.index = 0
        self.model: Model | None = None
        self.started_at = 0.0
        self.expected: tuple[int, ...] = ()
        self.updates: dict[int, tuple[ClientUpdate, float, float]] = {}
        self.gone: set[int] = set()  # clients of this round that left without an update
        self.seen: set[int] = set()  # clients that took part in any round of this lease
        self.sent_at = 0.0
        self.awaiting = 0  # the lease whose verdict is still to come
        self.lease_steps = 0.0  # mean local steps of a client in the rounds of this lease
        self.extra: Extra = {}  # what its clients sent beside their models
        self.summed = 0  # samples of the last round, if its secure sum was opened
        self.counted: Sequence[int] = ()  # the clients of the last round whose models were used

    def handle(self, event: EdgeEvent) -> list[EdgeEffect]:
        """Take one event and return its effects; late or repeated answers and updates change nothing."""
        match event:
            case Received():
                return self._receive(event)
            case Report():
                if not self._of_this_round(event.lease_id, event.round):
                    return []
                model = self.model if event.model is None else event.model
                usable = model if len(event.clients) >= self.needed else None
                if event.examples and usable is not None:
                    self.summed = event.examples
                    self.lease_steps += self.steps(event.clients) / len(event.clients)
                return self._end_round(usable, event.clients, event.compute_s, event.send_s, event.now)
            case ClientUpdate():
                return self._take(event)
            case Deadline():
                return self._close(event.now) if self._of_this_round(event.lease_id, event.round) else []
            case Left():
                return self._leave(event)
            case Ask():
                return [] if self.grant is not None else [self._check_in(event.now)]
            case Recluster():
                self._recluster(event)
                return []
        assert_never(event)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot."""
        super().restore({"summed": 0, **state})  # older ones have none
        self._count_cluster()

    @property
    def needed(self) -> int:
        """Return how many clients of the current round must deliver a usable model."""
        share = math.ceil(self.rules.quorum * len(self.expected) - 1e-9)  # 0.28 * 25 is a bit over 7
        opens = 0 if self.rules.opens is None else self.rules.opens(len(self.expected))
        return max(self.rules.least, share, opens)

    def steps(self, clients: Sequence[int]) -> int:
        """Return the local steps of these clients in one edge round."""
        if len(clients) == len(self.everyone):
            return self._all_steps
        return sum(self.workloads[client].steps for client in clients)

    def participants(self, lease_id: int, index: int) -> tuple[int, ...]:
        """Return the clients of one edge round, in order."""
        wanted = taking_part(self.rules.clients_per_round, len(self.everyone))
        if wanted == len(self.everyone):
            return self.everyone
        stream = once(self.rules.seed, "clients", self.edge, lease_id, index)
        chosen = stream.choice(self.everyone, size=wanted, replace=False)
        return tuple(sorted(chosen.tolist()))

    def _receive(self, received: Received) -> list[EdgeEffect]:
        answer, now = received.answer, received.now
        match answer:
            case Grant():
                if answer.request_id != self.request_id or self._current(answer.lease_id):
                    return []
                if _is_duration(received.took_s):
                    self.estimates = self.estimates.observe_down(received.took_s)
                return self._accept(answer, now)
            case Verdict():
                if answer.lease_id == self.awaiting:
                    if _is_duration(received.took_s):
                        self.estimates = self.estimates.observe_up(received.took_s)
                    self.awaiting = 0
                return []
            case Welcome():
                self.request_id = max(self.request_id, answer.request_id)
                return []
            case Refuse():
                return [self._check_in(now)] if answer.request_id == self.request_id else []
            case Proceed():
                return self._start(now) if self._current(answer.lease_id) and not self.expected else []
            case Cancel():
                if not self._current(answer.lease_id):
                    return []
                self.grant = None
                return [self._check_in(now)]
        assert_never(answer)

    def _check_in(self, now: float) -> CheckIn:
        self.request_id += 1
        if self.rules.redraw == "grant":
            self.rounds = self._draw_rounds(self.grants)  # a refusal does not draw again
        return CheckIn(self.edge, self.request_id, self.estimates.costs(self.rounds), now)

    def _recluster(self, change: Recluster) -> None:
        if self.grant is not None:
            raise ProtocolError(f"edge {self.edge} has a lease; its cluster changes between leases only")
        stay = {client: taken for client, taken in self.taken.items() if client not in change.leaving}
        self.taken = dict(sorted({**stay, **change.entering}.items()))
        self._count_cluster()
        if change.estimates is not None:
            self.estimates = self.estimates.of_cluster(change.estimates)

    def _count_cluster(self) -> None:
        """Compute the cluster's clients, samples and steps once, for frequent use."""
        self.everyone = tuple(self.taken)
        held = [self.workloads[client] for client in self.everyone]
        self.examples = sum(workload.examples for workload in held)  # the most an upload may claim
        self._all_steps = sum(workload.steps for workload in held)

    def _draw_rounds(self, draw: int) -> int:
        stream = once(self.rules.seed, "edge_rounds", self.edge, draw)
        return int(stream.choice(self.rules.edge_rounds))

    def _current(self, lease_id: int) -> bool:
        return self.grant is not None and self.grant.lease_id == lease_id

    def _of_this_round(self, lease_id: int, index: int) -> bool:
        # Between rounds nobody is expected: the next one has not begun.
        return self._current(lease_id) and index == self.index and bool(self.expected)

    def _accept(self, grant: Grant, now: float) -> list[EdgeEffect]:
        self.grant, self.index, self.model, self.seen = grant, 0, grant.weights, set()
        self.lease_steps, self.extra, self.summed = 0.0, {}, 0
        self.grants += 1
        return self._start(now)

    def _start(self, now: float) -> list[EdgeEffect]:
        grant, model = self._held()
        self.expected = self.participants(grant.lease_id, self.index)
        self.updates, self.gone, self.started_at = {}, set(), now
        work = []
        for client in self.expected if self.rules.trains else ():
            workload, taken = self.workloads[client], self.taken[client]
            work.append(Assignment(client, taken, workload.steps, workload.rate(taken), self.rules.seed))
            self.taken[client] = taken + workload.steps  # assigned steps count, even if the update is lost
        deadline = now + self.rules.deadline_s
        return [Round(self.edge, grant.lease_id, self.index, model, tuple(work), deadline, now, grant.extra)]

    def _take(self, update: ClientUpdate) -> list[EdgeEffect]:
        """Keep a client's update with the seconds it took, and close the round with the last one."""
        wanted = (
            self._of_this_round(update.lease_id, update.round)
            and update.client in self.expected
            and update.client not in self.updates
            and type(update.examples) is int
            and 0 < update.examples <= self.workloads[update.client].examples
            and 1 <= update.steps <= _most_steps(self.workloads[update.client].steps)
            and self._usable(update.extra)
        )
        if not wanted:
            return []
        # The edge's own clock: a client that reports NaN or a year must not make the edge's costs invalid.
        took_s = max(0.0, update.now - self.started_at)
        compute_s = update.compute_s if 0 <= update.compute_s <= took_s else took_s
        self.updates[update.client] = (update, compute_s, took_s - compute_s)
        self.gone.discard(update.client)
        return self._close_if_complete(update.now)

    def _usable(self, extra: Extra) -> bool:
        """Return whether a client's arrays are of the algorithm's kind, and fit those that came before."""
        if not extra:
            return True
        others = [self.extra, *(update.extra for update, _, _ in self.updates.values())]
        same = all(
            other[name].shape == array.shape
            for name, array in extra.items()
            for other in others
            if name in other
        )
        return same and usable_extra(extra) and self.rules.usable(extra)

    def _leave(self, event: Left) -> list[EdgeEffect]:
        """Stop waiting for a client of this round; the quorum still counts it."""
        if self.grant is None or event.client not in self.expected or event.client in self.updates:
            return []
        self.gone.add(event.client)
        return self._close_if_complete(event.now)

    def _close_if_complete(self, now: float) -> list[EdgeEffect]:
        return self._close(now) if len(self.updates) + len(self.gone) == len(self.expected) else []

    def _close(self, now: float) -> list[EdgeEffect]:
        _, base = self._held()
        if isinstance(base, Promise):
            raise ProtocolError(f"edge {self.edge} has a promise, not weights; end its round with a Report")
        taken = [self.updates[client] for client in sorted(self.updates)]
        updates = [update for update, _, _ in taken]
        made = self.aggregate(updates, self.needed, base) if len(updates) >= self.needed else None
        model, clients = made or (None, ())
        if made is not None:
            counted = [self.updates[client][0] for client in clients]
            self.lease_steps += mean_steps(counted)
            extras, counts = [update.extra for update in counted], [update.examples for update in counted]
            self.extra = gather(self.rules.gathers, self.extra, extras, counts)
        # fsum is exact, so a simulator that sums in another order gets the same bits.
        compute_s = math.fsum(seconds for _, seconds, _ in taken)
        send_s = math.fsum(seconds for _, _, seconds in taken)
        return self._end_round(model, clients, compute_s, send_s, now)

    def _end_round(
        self, model: Model | None, clients: Sequence[int], compute_s: float, send_s: float, now: float
    ) -> list[EdgeEffect]:
        grant, _ = self._held()
        self.counted = clients
        if model is None:
            self.grant = None
            return [Abandon(self.edge, grant.lease_id, self._check_in(now), now)]
        self.model = model
        if len(self.seen) < len(self.everyone):
            self.seen = self.seen.union(clients)
        self.estimates = self.estimates.observe_round(compute_s, send_s, now - self.started_at)
        self.index += 1
        if self.index < self.rounds:
            self.expected, self.updates = (), {}  # no update can belong to a round that has not begun
            if self.rules.asks_between_rounds:
                return [Progress(self.edge, grant.lease_id, now)]
            return self._start(now)
        self.grant, self.sent_at, self.awaiting = None, now, grant.lease_id
        examples = self.examples
        if len(self.seen) < len(self.everyone):
            examples = sum(self.workloads[client].examples for client in self.seen)
        examples = self.summed or examples
        again, steps = self._check_in(now), max(1.0, self.lease_steps)
        return [Upload(self.edge, grant.lease_id, model, examples, again, now, steps, self.extra)]

    def _held(self) -> tuple[Grant, Model]:
        if self.grant is None or self.model is None:
            raise ProtocolError(f"edge {self.edge} has no lease")
        return self.grant, self.model


def _most_steps(steps: int) -> float:
    """Return the most that a task's steps amount to: those with a momentum of almost 1, 1 + 2 + ... + c."""
    return steps * (steps + 1) / 2


def _is_duration(seconds: float | None) -> TypeGuard[float]:
    return seconds is not None and 0 <= seconds < math.inf
