"""An edge as a state machine: one cluster of clients, one lease at a time, H synchronous rounds."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeGuard, assert_never

from hiflash.core.aggregation import mean_steps
from hiflash.core.algorithms.algorithm import gather, usable_extra
from hiflash.core.edge_rules import EdgePrivacy, EdgeRules, Workload, Workloads, taking_part
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

__all__ = ["Aggregate", "Edge", "EdgePrivacy", "EdgeRules", "Workload", "Workloads", "taking_part"]

Aggregate = Callable[[Sequence[ClientUpdate], int, Weights], tuple[Weights, Sequence[int]] | None]
"""Takes updates, the number that must be usable, and their base model. Returns a model and its clients."""


class Edge(Stateful):
    """Trains its cluster, one lease after the other. Events enter through `handle` only."""

    STATE = ("taken", "estimates", "request_id", "grants", "rounds", "grant", "index", "model", "started_at",
             "expected", "running", "updates", "gone", "seen", "sent_at", "awaiting", "lease_steps",
             "extra", "short", "summed")  # fmt: skip

    def __init__(
        self,
        edge: int,
        clients: Iterable[int],
        workloads: Workloads,
        rules: EdgeRules,
        estimates: Estimates,
        aggregate: Aggregate,
        privacy: EdgePrivacy | None = None,
    ) -> None:
        self.edge = edge
        self.privacy = privacy
        self._weight = None if privacy is None else privacy.weight
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
        self.running = False  # a round is open; one with random participants may expect nobody
        self.updates: dict[int, tuple[ClientUpdate, float, float]] = {}
        self.gone: set[int] = set()  # clients of this round that left without an update
        self.seen: set[int] = set()  # clients that took part in any round of this lease
        self.sent_at = 0.0
        self.awaiting = 0  # the lease whose verdict is still to come
        self.lease_steps = 0.0  # mean local steps of a client in the rounds of this lease
        self.extra: Extra = {}  # what its clients sent beside their models
        self.short: tuple[int, dict[int, int]] = (0, {})  # of a lease: clients that cannot pay for all rounds
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
                return [] if self.grant is not None else self._asked(event.now)
            case Recluster():
                self._recluster(event)
                return []
        assert_never(event)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot; in one from before private rounds, `expected` tells whether one is open."""
        before = {"running": bool(state["expected"]), "short": (0, {}), "summed": 0}
        super().restore({**before, **state})
        self._count_cluster()

    @property
    def needed(self) -> int:
        """Return how many clients of the current round must deliver a usable model."""
        if self.privacy is not None and self.privacy.draw is not None:
            return 0  # a round that fails would tell who joined; without anybody there is noise alone
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
        able = self.able(lease_id, index)
        if self.privacy is not None and self.privacy.draw is not None:
            return self.privacy.draw(lease_id, index, able)
        wanted = taking_part(self.rules.clients_per_round, len(self.everyone))
        if wanted >= len(able):
            return able
        stream = once(self.rules.seed, "clients", self.edge, lease_id, index)
        chosen = stream.choice(able, size=wanted, replace=False)
        return tuple(sorted(chosen.tolist()))

    def able(self, lease_id: int, index: int) -> tuple[int, ...]:
        """Return the clients that can pay for one edge round, counted from the beginning of its lease.

        The answer does not change during the lease: a client pays for at most one round at a time.
        """
        if self.privacy is None or self.privacy.left is None:
            return self.everyone
        if self.short[0] != lease_id:
            left = zip(self.everyone, self.privacy.left(self.everyone), strict=True)
            self.short = lease_id, {client: int(rounds) for client, rounds in left if rounds < self.rounds}
        limits = self.short[1]
        return (
            tuple(c for c in self.everyone if limits.get(c, index + 1) > index) if limits else self.everyone
        )

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
                return self._asked(now) if answer.request_id == self.request_id else []
            case Proceed():
                return self._start(now) if self._current(answer.lease_id) and not self.running else []
            case Cancel():
                if not self._current(answer.lease_id):
                    return []
                self.grant, self.running = None, False
                return self._asked(now)
        assert_never(answer)

    def _asked(self, now: float) -> list[EdgeEffect]:
        check_in = self._check_in(now)
        return [] if check_in is None else [check_in]

    def _check_in(self, now: float) -> CheckIn | None:
        """Return the request for the next lease, None if too few clients can pay for another round."""
        if self.rules.redraw == "grant":
            self.rounds = self._draw_rounds(self.grants)  # a refusal does not draw again
        if self.privacy is not None and self.privacy.left is not None:
            # So many clients must be left in every round of a lease.
            least = 1 if self.privacy.draw is not None else self.rules.least
            left = heapq.nlargest(least, self.privacy.left(self.everyone))
            if len(left) < least or left[-1] < 1:
                return None
            drawn = self._draw_rounds(self.grants if self.rules.redraw == "grant" else 0)
            self.rounds = min(drawn, int(left[-1]))
        self.request_id += 1
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
        if self._weight is not None:  # how many samples clients have is theirs to know
            self.examples = self._weight if held else 0
        self._all_steps = sum(workload.steps for workload in held)

    def _draw_rounds(self, draw: int) -> int:
        stream = once(self.rules.seed, "edge_rounds", self.edge, draw)
        return int(stream.choice(self.rules.edge_rounds))

    def _current(self, lease_id: int) -> bool:
        return self.grant is not None and self.grant.lease_id == lease_id

    def _of_this_round(self, lease_id: int, index: int) -> bool:
        return self._current(lease_id) and index == self.index and self.running

    def _accept(self, grant: Grant, now: float) -> list[EdgeEffect]:
        self.grant, self.index, self.model, self.seen = grant, 0, grant.weights, set()
        self.lease_steps, self.extra, self.summed = 0.0, {}, 0
        self.grants += 1
        return self._start(now)

    def _start(self, now: float) -> list[EdgeEffect]:
        grant, model = self._held()
        self.expected, self.running = self.participants(grant.lease_id, self.index), True
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
        if made is not None and self._weight is None:
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
        self.counted, self.running = clients, False
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
        if self._weight is None and len(self.seen) < len(self.everyone):
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
