"""Clients that move, join and leave, drawn or on a given schedule, and repairs of their association."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hiflash.core.association.membership import ABSENT, Membership, homes
from hiflash.core.association.repair import Placement
from hiflash.core.association.strategies import label_distribution
from hiflash.core.edge import Edge
from hiflash.core.state import Stateful, record
from hiflash.data.federation import EVENTS, Availability
from hiflash.messages import Ask, CheckIn, ClusterChange, EdgeEffect, Recluster
from hiflash.seeding import rng
from hiflash.sim.world import World

__all__ = ["Change", "Mobility", "MobilityRules", "Paths"]

Floats = npt.NDArray[np.float64]
Log = Callable[[float, str, Mapping[str, Any]], None]

COUNTED = {"move": "moves", "join": "joins", "leave": "leaves"}


@record
@dataclass(frozen=True, slots=True)
class Change:
    """The next `move`, `join`, `leave` or `repair`, or event of the schedule (`given`), counted from 1."""

    kind: str
    index: int


@dataclass(frozen=True)
class Paths:
    """The send times of clients, at first and after a move. If `flat`, to the best edge only."""

    at_first: Callable[[], Floats]
    """All pairs, `[edges, clients]`, or `[clients]` if `flat`."""
    after_move: Callable[[int], Floats]
    flat: bool
    reach: int | None = None
    """Number of edges that a client can belong to: those with its shortest send times. None means all."""
    link_s: Callable[[int, int], float] | None = None
    """If `flat`, the send time of a client to one edge."""
    hop: float = 1.0
    """If `flat`, the part of a model that the access hop carries."""


@dataclass(frozen=True)
class MobilityRules:
    """How often clients move, join and leave, how many are absent at first, and how clusters are repaired.

    `rates` are per virtual second. `target` is the label distribution that a cluster should have; None means
    that of all clients. A `schedule` says who joins, leaves and moves when, and who is absent at first.
    """

    rates: Mapping[str, float]
    absent: int
    repair_s: float | None
    switching_cost: float
    heterogeneity_weight: float
    capacity: int | None
    target: Floats | None
    schedule: Availability | None = None


class Mobility(Stateful):
    """Decides which client belongs to which edge, and tells edges, world and cloud.

    Moves, joins and leaves are Poisson processes over virtual time, or follow a schedule. Drawn times and
    clients depend only on the seed and on earlier joins and leaves, so all methods see the same changes.
    """

    STATE = ("moved", "done", "steps", "counts", "repairs", "level_s", "level_until")

    def __init__(
        self,
        edges: Sequence[Edge],
        world: World,
        paths: Paths,
        labels: npt.NDArray[np.int64] | None,
        rules: MobilityRules,
        *,
        seed: int,
        log: Log,
        known: npt.NDArray[np.int64] | None = None,
    ) -> None:
        clients = len(world.compute_s)
        self.edges = edges
        self.world = world
        self.paths = paths
        self.labels = np.zeros((clients, 0), dtype=np.int64) if labels is None else labels
        self.known = self.labels if known is None else known  # with the noise that clients have added
        self.overall = label_distribution(self.labels.sum(axis=0))
        self.rules = rules
        self.rates = {kind: rate for kind, rate in rules.rates.items() if rate > 0}
        self.seed = seed
        self.log = log
        place = homes([edge.everyone for edge in edges], clients)
        home = place.copy()
        home[rng(seed, "mobility", "absent").choice(clients, size=rules.absent, replace=False)] = ABSENT
        if rules.schedule is not None:
            home[rules.schedule.absent] = ABSENT
        self.membership = Membership(place, home)
        self.placement = self._placement()
        self.send_s = paths.at_first()
        self.moved: dict[int, int] = {}  # the last drawn move of each client that moved
        self.done = 0  # events of the schedule that have happened
        self.measured_s: dict[tuple[int, int], float] = {}  # links that the schedule changed
        self.steps: dict[int, int] = {}  # local steps so far of each client outside all clusters
        self.counts = dict.fromkeys((*COUNTED.values(), "switches"), 0)
        self.repairs: list[dict[str, Any]] = []
        self.level_s, self.level_until = np.zeros(2), 0.0  # integral of `_levels`, and its end

    def start(self) -> list[EdgeEffect | ClusterChange]:
        """Return the effects on edges and cloud of the clients that are absent at first."""
        return self._settle(0.0)

    def first(self) -> list[tuple[float, Change]]:
        """Return the first event of each kind, and when it is due."""
        kinds = [*self.rates, *(["repair"] if self.rules.repair_s is not None else []), "given"]
        nexts = [self.following(Change(kind, 0), 0.0) for kind in kinds]
        return [each for each in nexts if each is not None]

    def following(self, change: Change, now: float) -> tuple[float, Change] | None:
        """Return the event of the same kind after this one, and when it is due; None if it was the last."""
        index, schedule = change.index + 1, self.rules.schedule
        if change.kind == "given":
            if schedule is None or index > len(schedule):
                return None
            return float(schedule.time_s[index - 1]), Change("given", index)
        if change.kind == "repair" and self.rules.repair_s is not None:
            return index * self.rules.repair_s, Change("repair", index)
        gap_s = rng(self.seed, "mobility", change.kind, "gap", index).exponential(1 / self.rates[change.kind])
        return now + gap_s, Change(change.kind, index)

    def handle(self, change: Change, now: float) -> list[EdgeEffect | ClusterChange]:
        """Apply a change and return its effects on edges and cloud."""
        self.level_s, self.level_until = self._level_s(now), now
        if change.kind == "repair" and self.placement is not None:
            return self._repair(self.placement, now)
        if change.kind == "given" and self.rules.schedule is not None:
            return self._follow(self.rules.schedule, change.index - 1, now)
        members = self.membership
        candidates = members.absent() if change.kind == "join" else members.present()
        if len(candidates) <= (change.kind == "leave"):  # no candidate; the last client never leaves
            return []
        which = rng(self.seed, "mobility", change.kind, "who", change.index).integers(len(candidates))
        client = int(candidates[which])
        edge = int(members.home[client])
        if change.kind == "move":
            self.moved[client] = change.index
            self._put(client, change.index)
            if self.placement is not None and not np.isfinite(self.send_s[edge, client]):  # out of its reach
                edge = self.placement.cheapest(client, self._latency_ms(client))
                self._assign(client, edge)
            self._renew(client)
        elif change.kind == "leave":
            self._assign(client, ABSENT)
        else:
            edge = client
            if self.placement is not None:
                edge = self.placement.cheapest(client, self._latency_ms(client))
            self._assign(client, edge)
        self.counts[COUNTED[change.kind]] += 1
        self.log(now, change.kind, {"client": client, "edge": edge})
        return self._settle(now)

    def granted(self, edge: int) -> None:
        """Keep the cluster of an edge as it is: the edge has a lease."""
        self.membership.granted(edge)

    def returned(self, edge: int, check_in: CheckIn | None, now: float) -> list[EdgeEffect | ClusterChange]:
        """Return the effects of the end of an edge's lease; with its `check_in` it asks for another."""
        self.membership.returned(edge)
        effects = self._settle(now)
        if check_in is not None and not any(effect.edge == edge for effect in effects):
            effects.append(check_in.at(now))
        return effects

    def clusters(self) -> list[list[int]]:
        """Return the clients that belong to each edge."""
        return self.membership.clusters(len(self.edges))

    def figures(self, now: float) -> dict[str, Any]:
        """Return the mobility figures of a result."""
        total_js, latency_ms = (self._level_s(now) / now if now else self._levels()).tolist()
        means = {"mean_total_js": total_js, "mean_latency_ms": latency_ms}
        return {**self.counts, **means, "repairs": self.repairs}

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state."""
        return super().snapshot() | {"membership": self.membership.snapshot()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot. Restore the edges first."""
        super().restore(state)
        self.membership.restore(state["membership"])
        self.placement = self._placement()
        self.send_s = self.paths.at_first()
        for client, move in self.moved.items():
            self._put(client, move)
        self.measured_s = {}
        if self.rules.schedule is not None:
            for row in range(self.done):
                self._relink(self.rules.schedule, row)
        for edge in self.edges:
            self._refresh(edge.edge, edge.everyone)

    def _follow(self, schedule: Availability, row: int, now: float) -> list[EdgeEffect | ClusterChange]:
        """Apply an event of the schedule and return its effects."""
        client, kind, edge = int(schedule.client[row]), EVENTS[schedule.kind[row]], int(schedule.edge[row])
        self.done = row + 1
        self._relink(schedule, row)
        home = int(self.membership.home[client])
        if kind == "leave":
            self._assign(client, ABSENT)
            edge = home
        else:
            if self.placement is None:
                edge = client
            elif edge == ABSENT:
                edge = self.placement.cheapest(client, self._latency_ms(client))
            if edge != home:
                self._assign(client, edge)
            self._renew(client)
        self.counts[COUNTED[kind]] += 1
        self.log(now, kind, {"client": client, "edge": edge})
        return self._settle(now)

    def _relink(self, schedule: Availability, row: int) -> None:
        """Set the send time of a client that an event of the schedule changes."""
        client, edge, send_ms = int(schedule.client[row]), int(schedule.edge[row]), schedule.send_ms[row]
        if not np.isnan(send_ms):
            self.measured_s[client, edge] = float(send_ms) / 1e3 * self.paths.hop
            if not self.paths.flat:
                self.send_s[edge, client] = self.measured_s[client, edge]
        if self.paths.link_s is not None and edge != ABSENT:  # a flat client goes over the edge it is at
            at_first = self.paths.link_s(client, edge)
            self.send_s[client] = self.measured_s.get((client, edge), at_first)

    def _renew(self, client: int) -> None:
        """Tell the world the new send time of a client that is in a cluster."""
        place = int(self.membership.place[client])
        if place != ABSENT:
            self._refresh(place, self.edges[place].everyone)

    def _repair(self, placement: Placement, now: float) -> list[EdgeEffect | ClusterChange]:
        before = self._total_js()
        switches = placement.repair(self._latency_ms(), self.rules.switching_cost)
        for switch in switches:
            self.membership.assign(switch.client, switch.target)
        self.counts["switches"] += len(switches)
        total_js = self._total_js()
        self.repairs.append(
            {"virtual_s": now, "switches": len(switches), "total_js_before": before, "total_js": total_js}
        )
        switched = [[switch.client, switch.source, switch.target] for switch in switches]
        self.log(now, "repair", {"switched": switched, "total_js_before": before, "total_js": total_js})
        return self._settle(now)

    def _total_js(self) -> float:
        """Return the true divergence of all edges, whatever the placement knows."""
        if self.placement is None:
            return 0.0
        true = self.placement if self.known is self.labels else self._placement_by(self.labels)
        return float(true.divergence(self.overall).sum())

    def _levels(self) -> Floats:
        """Return the total divergence and the mean latency of the clients that are present."""
        present = self.membership.present()
        path = present if self.paths.flat else (self.membership.home[present], present)
        latency_s = self.world.compute_s[present] + self.send_s[path]
        return np.array([self._total_js(), 1000 * latency_s.mean()])

    def _level_s(self, now: float) -> Floats:
        return self.level_s + (now - self.level_until) * self._levels()

    def _assign(self, client: int, edge: int) -> None:
        self.membership.assign(client, edge)
        if self.placement is not None:
            self.placement.assign(client, edge)

    def _settle(self, now: float) -> list[EdgeEffect | ClusterChange]:
        """Make the changes of clusters that leases allow now, and return their effects."""
        leaving: dict[int, list[int]] = {}
        entering: dict[int, list[int]] = {}
        for transfer in self.membership.settle():
            (entering if transfer.enters else leaving).setdefault(transfer.edge, []).append(transfer.client)
        for index, clients in leaving.items():
            self.steps |= {client: self.edges[index].taken[client] for client in clients}
        effects: list[EdgeEffect | ClusterChange] = []
        for index in sorted({*leaving, *entering}):
            edge, gone = self.edges[index], set(leaving.get(index, ()))
            brought = {client: self.steps.pop(client, 0) for client in entering.get(index, ())}
            cluster = tuple(sorted({*edge.everyone, *brought} - gone))
            self._refresh(index, cluster)
            estimates = self.world.estimates(index, edge.rules.clients_per_round) if cluster else None
            edge.handle(Recluster(tuple(gone), brought, estimates, now))
            effects.append(ClusterChange(index, edge.examples, now))
            if cluster:
                effects += edge.handle(Ask(now))
        return effects

    def _refresh(self, edge: int, members: Sequence[int]) -> None:
        """Tell the world the clients of a cluster and their send times."""
        cluster = np.array(members, dtype=np.int64)
        send_s = self.send_s[cluster] if self.paths.flat else self.send_s[edge, cluster]
        # A client that moved out of reach ends its lease at the old speed, and then leaves.
        send_s = np.where(np.isfinite(send_s), send_s, self.world.send_s[cluster])
        self.world.recluster(edge, cluster, send_s)

    def _put(self, client: int, move: int) -> None:
        """Set the send times of a client after one of its moves."""
        self.send_s[..., client] = self.paths.after_move(move)

    def _latency_ms(self, client: int | slice = slice(None)) -> Floats:
        send_s, reach = self.send_s[:, client], self.paths.reach
        latency_ms: Floats = 1000 * (self.world.compute_s[client] + send_s)
        if reach is not None:
            latency_ms[send_s > np.partition(send_s, reach - 1, axis=0)[reach - 1]] = np.inf
        return latency_ms

    def _placement(self) -> Placement | None:
        """Return the present association, None for a flat method."""
        return None if self.paths.flat else self._placement_by(self.known)

    def _placement_by(self, labels: npt.NDArray[np.int64]) -> Placement:
        """Return the present association with these labels of clients."""
        target = self.rules.target
        if target is None and labels is self.labels:
            target = self.overall
        elif target is None:
            total = labels.sum(axis=0)
            target = label_distribution(total if total.any() else np.ones_like(total))  # noise may leave none
        return Placement(
            self.membership.home,
            len(self.edges),
            labels,
            target,
            heterogeneity_weight=self.rules.heterogeneity_weight,
            capacity=self.rules.capacity,
        )
