"""An edge as a state machine: one cluster of clients, one lease at a time, H synchronous rounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hiflash.core.state import Stateful, record
from hiflash.errors import ProtocolError
from hiflash.messages import (
    Abandon,
    Cancel,
    CheckIn,
    ClientTask,
    ClientUpdate,
    Deadline,
    EdgeCosts,
    Grant,
    Model,
    Proceed,
    Progress,
    Refuse,
    Report,
    Round,
    Upload,
    Verdict,
)
from hiflash.seeding import once

__all__ = ["Edge", "Estimates", "Workload"]

Aggregate = Callable[[Sequence[ClientUpdate], int, Model], tuple[Model, Sequence[int]] | None]
"""From updates, how many must be usable, and the model they started from, to a model and whose work it is."""

OBSERVED = 0.2  # weight of the newest observation in the moving averages


@record
class Estimates(NamedTuple):
    """Moving averages of what one edge round and the WAN took; at first the declared means."""

    compute_s: float
    send_s: float
    round_s: float
    down_s: float
    up_s: float

    def observe_round(self, compute_s: float, send_s: float, round_s: float) -> Estimates:
        """Return the estimates after an edge round that took so long."""
        return Estimates(
            _average(self.compute_s, compute_s),
            _average(self.send_s, send_s),
            _average(self.round_s, round_s),
            self.down_s,
            self.up_s,
        )

    def observe_down(self, seconds: float) -> Estimates:
        """Return the estimates after a download that took so long."""
        down_s = _average(self.down_s, seconds)
        return Estimates(self.compute_s, self.send_s, self.round_s, down_s, self.up_s)

    def observe_up(self, seconds: float) -> Estimates:
        """Return the estimates after an upload that took so long."""
        up_s = _average(self.up_s, seconds)
        return Estimates(self.compute_s, self.send_s, self.round_s, self.down_s, up_s)

    def of_cluster(self, declared: Estimates) -> Estimates:
        """Return the declared means of a new cluster; what is known of the WAN stays."""
        return Estimates(
            declared.compute_s, declared.send_s, declared.round_s, down_s=self.down_s, up_s=self.up_s
        )

    def costs(self, rounds: int) -> EdgeCosts:
        """Return what a lease of so many edge rounds is expected to take."""
        return EdgeCosts(
            compute_s=rounds * self.compute_s,
            send_s=rounds * self.send_s,
            down_s=self.down_s,
            train_s=rounds * self.round_s,
            up_s=self.up_s,
        )


@dataclass(frozen=True, slots=True)
class Workload:
    """What a client is asked for in every task, and how its learning rate decays with its own steps."""

    examples: int
    steps: int
    lr: float
    lr_decay: float
    lr_decay_steps: int

    def rate(self, taken: int) -> float:
        """Return the learning rate after so many steps, fixed within a task.

        >>> round(Workload(600, 3, 0.01, 0.99, 100).rate(250), 8)
        0.009801
        """
        return float(self.lr * self.lr_decay ** (taken // self.lr_decay_steps))


class Edge(Stateful):
    """Trains its cluster for one lease after the other. `handle` is the one door to its state."""

    STATE = ("taken", "estimates", "request_id", "grants", "rounds", "grant", "index", "model", "started_at",
             "expected", "updates", "seen", "sent_at", "awaiting")  # fmt: skip

    def __init__(
        self,
        edge: int,
        workloads: Mapping[int, Workload],
        *,
        edge_rounds: Sequence[int],
        redraw: str,
        clients_per_round: int | None,
        estimates: Estimates,
        aggregate: Aggregate,
        seed: int,
        deadline_s: float = math.inf,
        quorum: float = 1.0,
        least: int = 1,
        asks_between_rounds: bool = False,
        trains: bool = True,
    ) -> None:
        self.edge = edge
        self.enrol(workloads)
        self.trains = trains
        self.edge_rounds = tuple(edge_rounds)
        self.redraw = redraw
        self.clients_per_round = clients_per_round
        self.aggregate = aggregate
        self.seed = seed
        self.deadline_s = deadline_s
        self.quorum = quorum
        self.least = least  # what the rule of `aggregate` needs, however small the cluster
        self.asks_between_rounds = asks_between_rounds
        self.taken = dict.fromkeys(self.workloads, 0)
        self.estimates = estimates
        self.request_id = 0
        self.grants = 0
        self.rounds = self._draw_rounds(0)
        self.grant: Grant | None = None
        self.index = 0
        self.model: Model = None
        self.started_at = 0.0
        self.expected: tuple[int, ...] = ()
        self.updates: dict[int, ClientUpdate] = {}
        self.seen: set[int] = set()  # clients that took part in any round of this lease
        self.sent_at = 0.0
        self.awaiting = 0  # the lease whose verdict is still to come

    @property
    def needed(self) -> int:
        """Return how many clients of the current round must deliver something usable."""
        share = math.ceil(self.quorum * len(self.expected) - 1e-9)  # 0.28 * 25 is a bit over 7
        return max(self.least, share)

    def steps(self, clients: Sequence[int]) -> int:
        """Return the local steps of these clients in one edge round."""
        if len(clients) == len(self.everyone):
            return self._all_steps
        return sum(self.workloads[client].steps for client in clients)

    def enrol(self, workloads: Mapping[int, Workload]) -> None:
        """Have these clients as the cluster; what they have done so far is not touched."""
        self.workloads = dict(sorted(workloads.items()))
        self.everyone = tuple(self.workloads)
        self.examples = sum(
            workload.examples for workload in workloads.values()
        )  # the most an upload may claim
        self._all_steps = sum(workload.steps for workload in workloads.values())

    def recluster(
        self, leaving: Sequence[int], entering: Mapping[int, tuple[Workload, int]]
    ) -> dict[int, int]:
        """Change the cluster between two leases and return the steps that those who leave have taken.

        Who enters brings a workload and the steps taken so far: data order and learning rate go on with them.
        """
        if self.grant is not None:
            raise ProtocolError(f"edge {self.edge} has a lease; its cluster changes between leases only")
        steps = {client: self.taken.pop(client) for client in leaving}
        self.taken.update({client: taken for client, (_, taken) in entering.items()})
        stay = {client: workload for client, workload in self.workloads.items() if client not in steps}
        self.enrol(stay | {client: workload for client, (workload, _) in entering.items()})
        return steps

    def expect(self, declared: Estimates) -> None:
        """Start over from the declared means of a cluster that has changed."""
        self.estimates = self.estimates.of_cluster(declared)

    def check_in(self, now: float) -> CheckIn:
        """Return a new request for the model."""
        self.request_id += 1
        if self.redraw == "grant":
            self.rounds = self._draw_rounds(self.grants)  # a refusal does not roll the dice again
        return CheckIn(self.edge, self.request_id, self.estimates.costs(self.rounds), now)

    def participants(self, lease_id: int, index: int) -> tuple[int, ...]:
        """Return the clients of one edge round, in order."""
        if self.clients_per_round is None or self.clients_per_round >= len(self.everyone):
            return self.everyone
        stream = once(self.seed, "clients", self.edge, lease_id, index)
        chosen = stream.choice(self.everyone, size=self.clients_per_round, replace=False)
        return tuple(sorted(chosen.tolist()))

    def handle(self, event: Any) -> list[Any]:
        """Take one event and return what follows from it, in order."""
        match event:
            case Grant() if self._new(event):
                return self._accept(event, event.now)
            case ClientUpdate() if self._wanted(event):
                self.updates[event.client] = event
                return self._close(event.now) if len(self.updates) == len(self.expected) else []
            case Deadline() if self._current(event.lease_id) and event.round == self.index:
                return self._close(event.now)
            case Report() if self._current(event.lease_id) and event.round == self.index:
                model = self.model if len(event.clients) >= self.needed else None
                return self._end_round(model, event.clients, event.compute_s, event.send_s, event.now)
            case Proceed() if self._current(event.lease_id) and not self.expected:
                return self._start(event.now)
            case Cancel() if self._current(event.lease_id):
                self.grant = None
                return [self.check_in(event.now)]
            case Refuse() if event.request_id == self.request_id:
                return [self.check_in(event.now)]
            case Verdict():
                # A lease that ended while its edge still ran has a verdict older than the upload.
                if event.lease_id == self.awaiting and event.now >= self.sent_at:
                    self.estimates = self.estimates.observe_up(event.now - self.sent_at)
                    self.awaiting = 0
                return []
            case Grant() | ClientUpdate() | Deadline() | Report() | Proceed() | Cancel() | Refuse():
                return []  # late, repeated or of an ended lease: changes nothing
        raise ProtocolError(f"an edge does not handle {type(event).__name__}")

    def received(self, grant: Grant, now: float) -> list[Any]:
        """Take a grant that was sent at `grant.now` and arrives now."""
        if not self._new(grant):
            return []
        self.estimates = self.estimates.observe_down(now - grant.now)
        return self._accept(grant, now)

    def _draw_rounds(self, draw: int) -> int:
        return int(once(self.seed, "edge_rounds", self.edge, draw).choice(self.edge_rounds))

    def _new(self, grant: Grant) -> bool:
        return grant.request_id == self.request_id and not self._current(grant.lease_id)

    def _current(self, lease_id: int) -> bool:
        return self.grant is not None and self.grant.lease_id == lease_id

    def _wanted(self, update: ClientUpdate) -> bool:
        return (
            self._current(update.lease_id)
            and update.round == self.index
            and update.client in self.expected
            and update.client not in self.updates
            and type(update.examples) is int
            and 0 < update.examples <= self.workloads[update.client].examples
        )

    def _accept(self, grant: Grant, now: float) -> list[Any]:
        self.grant, self.index, self.model, self.seen = grant, 0, grant.weights, set()
        self.grants += 1
        return self._start(now)

    def _start(self, now: float) -> list[Any]:
        grant = self._held()
        self.expected = self.participants(grant.lease_id, self.index)
        self.updates, self.started_at = {}, now
        tasks = []
        for client in self.expected if self.trains else ():
            workload, taken = self.workloads[client], self.taken[client]
            tasks.append(
                ClientTask(client, taken, workload.steps, workload.rate(taken), self.model, self.seed)
            )
            self.taken[client] = taken + workload.steps  # issued counts as taken, whatever becomes of it
        return [Round(self.edge, grant.lease_id, self.index, tuple(tasks), now + self.deadline_s, now)]

    def _close(self, now: float) -> list[Any]:
        updates = [self.updates[client] for client in sorted(self.updates)]
        made = self.aggregate(updates, self.needed, self.model) if len(updates) >= self.needed else None
        model, clients = made or (None, ())
        # Exact sums: the same whether they are made here or for the whole round at once.
        compute_s = math.fsum(update.compute_s for update in updates)
        send_s = math.fsum(update.send_s for update in updates)
        return self._end_round(model, clients, compute_s, send_s, now)

    def _end_round(
        self, model: Model | None, clients: Sequence[int], compute_s: float, send_s: float, now: float
    ) -> list[Any]:
        grant = self._held()
        if model is None:
            self.grant = None
            return [Abandon(self.edge, grant.lease_id, self.check_in(now), now)]
        self.model = model
        if len(self.seen) < len(self.everyone):
            self.seen = self.seen.union(clients)
        self.estimates = self.estimates.observe_round(compute_s, send_s, now - self.started_at)
        self.index += 1
        if self.index < self.rounds:
            self.expected, self.updates = (), {}  # nobody can report for a round that has not begun
            if self.asks_between_rounds:
                return [Progress(self.edge, grant.lease_id, now)]
            return self._start(now)
        self.grant, self.sent_at, self.awaiting = None, now, grant.lease_id
        examples = self.examples
        if len(self.seen) < len(self.everyone):
            examples = sum(self.workloads[client].examples for client in self.seen)
        return [Upload(self.edge, grant.lease_id, model, examples, self.check_in(now), now)]

    def _held(self) -> Grant:
        if self.grant is None:
            raise ProtocolError(f"edge {self.edge} has no lease")
        return self.grant


def _average(so_far: float, observed: float) -> float:
    return (1 - OBSERVED) * so_far + OBSERVED * observed
