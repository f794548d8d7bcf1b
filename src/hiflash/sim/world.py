"""The simulated world: how fast every client computes and sends, and how far the cloud is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import compress
from operator import add
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hiflash.core.association.strategies import latency_per_edge_ms, mean_of_peopled, waiting_per_edge_ms
from hiflash.core.compression import Payloads
from hiflash.core.cost import Fluctuation, WanLink
from hiflash.core.edge import Edge, taking_part
from hiflash.core.state import record
from hiflash.messages import Estimates
from hiflash.seeding import Streams
from hiflash.sim.phases import Phases

__all__ = ["RoundTiming", "Timeline", "World"]

Floats = npt.NDArray[np.float64]


@record
class RoundTiming(NamedTuple):
    """One edge round in virtual time: its end, its clients and their times, and the clients that report.

    `total_*` are sums over all clients, `reported_*` over those that report. Under secure sums `lost` has how
    many clients each phase has lost.
    """

    ends_at: float
    clients: tuple[int, ...]
    reporting: tuple[int, ...]
    compute_s: tuple[float, ...]
    send_s: tuple[float, ...]
    total_compute_s: float
    total_send_s: float
    reported_compute_s: float
    reported_send_s: float
    lost: tuple[int, ...] = ()


@record
@dataclass(slots=True)
class Timeline:
    """A lease in virtual time from the grant to the arrival of its upload.

    `arrives_at` is the time of this arrival. `total_compute_s` is the computing of all clients in all rounds.
    """

    granted_at: float
    starts_at: float
    rounds: tuple[RoundTiming, ...]
    up_s: float
    arrives_at: float = field(init=False)  # stored because every slot reads both
    total_compute_s: float = field(init=False)

    def __post_init__(self) -> None:
        """Derive arrival and total computing from the rounds."""
        self.arrives_at = self.rounds[-1].ends_at + self.up_s
        self.total_compute_s = self.compute_s(len(self.rounds))

    def compute_s(self, rounds: int) -> float:
        """Return the client seconds spent computing in the first rounds."""
        return math.fsum([timing.total_compute_s for timing in self.rounds[:rounds]])

    def send_s(self, rounds: int) -> float:
        """Return the client seconds spent sending in the first rounds."""
        return math.fsum([timing.total_send_s for timing in self.rounds[:rounds]])


class World:
    """Mean seconds per task of every client, every edge's WAN link, and their dynamics.

    `compute_s` and `send_s` are indexed by client; `send_s` is the time to the client's own edge. Costs are
    divided by `cost_unit_s`, the seconds of computing and of sending of a mean lease.
    """

    def __init__(
        self,
        *,
        compute_s: Floats,
        send_s: Floats,
        cost_unit_s: tuple[float, float],
        clusters: Sequence[Sequence[int]],
        links: Sequence[WanLink] | None,
        payloads: Payloads,
        seed: int,
        fluctuation: tuple[float, float] | None,
        phases: Phases | None = None,
    ) -> None:
        self.compute_s = compute_s
        self.send_s = send_s.copy()  # changes when clients move
        self.cost_unit_s = cost_unit_s
        self.clusters = [np.array(cluster, dtype=np.int64) for cluster in clusters]
        self.links = links
        self._wan = {way: Streams(seed, "wan", way) for way in ("down", "up")}
        self.payloads = payloads
        self.phases = phases
        # Caches for edges whose whole cluster takes part. `recluster` clears them.
        self._steady: dict[int, tuple[int, RoundTiming]] = {}
        self._clusters_means: dict[int, tuple[Floats, npt.NDArray[np.int64]]] = {}
        self.fluctuation: Fluctuation | None = None
        if fluctuation is not None:
            rho, spread = fluctuation
            self.fluctuation = Fluctuation(2 * len(compute_s), rho=rho, spread=spread, seed=seed)

    def estimates(self, edge: int, clients_per_round: float | None) -> Estimates:
        """Return the mean times that an edge declares."""
        cluster = self.clusters[edge]
        share = taking_part(clients_per_round, len(cluster)) / len(cluster)
        down_s, up_s = (
            self.links[edge].mean_s(size) if self.links else 0.0
            for size in (self.payloads.down, self.payloads.up)
        )
        return Estimates(
            compute_s=float(self.compute_s[cluster].sum() * share),
            send_s=float(self.send_s[cluster].sum() * share),
            round_s=float(self.latency_s(edge).max()) + self._phases_s(cluster),
            down_s=down_s,
            up_s=up_s,
        )

    def latency_s(self, edge: int) -> Floats:
        """Return the response latency L^{m,k} of every client of an edge at mean resources."""
        cluster = self.clusters[edge]
        return self.compute_s[cluster] + self.send_s[cluster]

    @cached_property
    def response_latency_ms(self) -> float:
        """Return the mean response latency of the edges that have clients."""
        return mean_of_peopled(self.latency_per_edge_ms(), self.clusters)

    @cached_property
    def waiting_ms(self) -> float:
        """Return the mean waiting time of the edges that have clients."""
        return mean_of_peopled(self.waiting_per_edge_ms(), self.clusters)

    def latency_per_edge_ms(self) -> list[float]:
        """Return L^m of every edge: the latency of its slowest client; 0 without clients."""
        return latency_per_edge_ms(self.compute_s + self.send_s, self.clusters)

    def waiting_per_edge_ms(self) -> list[float]:
        """Return the waiting time of every edge: the mean latency of its clients minus the smallest."""
        return waiting_per_edge_ms(self.compute_s + self.send_s, self.clusters)

    def recluster(self, edge: int, cluster: npt.NDArray[np.int64], send_s: Floats) -> None:
        """Give an edge a new cluster, with the send times of its clients.

        A running lease keeps the timeline from its grant.
        """
        self.clusters[edge] = cluster
        self.send_s[cluster] = send_s
        self._steady.pop(edge, None)
        self._clusters_means.pop(edge, None)
        for name in ("response_latency_ms", "waiting_ms"):
            self.__dict__.pop(name, None)  # computed again on the next read

    def timeline(self, edge: Edge, lease_id: int, now: float, *, first: bool = False) -> Timeline:
        """Return the timeline of a lease granted now; `first` marks the first lease of an edge."""
        down_bytes = self.payloads.first_down if first else self.payloads.down
        # Both draws in a row: this is faster than with the rounds between them.
        down_s = self._wan_s(edge.edge, lease_id, "down", down_bytes)
        up_s = self._wan_s(edge.edge, lease_id, "up", self.payloads.up)
        starts_at = time = now + down_s
        rounds = []
        for index in range(edge.rounds):
            timing = self._round(edge, lease_id, index, time)
            rounds.append(timing)
            time = timing.ends_at
        return Timeline(now, starts_at, tuple(rounds), up_s)

    def forget(self, now: float) -> None:
        """Drop the fluctuation before `now`."""
        if self.fluctuation is not None:
            self.fluctuation.forget(now)

    def snapshot(self) -> dict[str, Any]:
        """Return the state of the dynamics."""
        return {} if self.fluctuation is None else self.fluctuation.snapshot()

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a snapshot."""
        if self.fluctuation is not None:
            self.fluctuation.restore(state)

    def _round(self, edge: Edge, lease_id: int, index: int, now: float) -> RoundTiming:
        participants = edge.participants(lease_id, index)
        everyone = participants is edge.everyone
        # Resources are those of the second in which the round starts.
        second = 0 if self.fluctuation is None else int(now)
        known_second, known = self._steady.get(edge.edge, (-1, None))
        if everyone and known is not None and known_second == second:
            return RoundTiming(now + known[0], *known[1:])  # the same clients at the same speed
        seconds, places = self._means(edge, participants)
        if self.fluctuation is not None:
            seconds = seconds / self.fluctuation.factors(now)[places]
        # Lists, not arrays: reading the numbers of an array one by one takes several times as long.
        both = seconds.tolist()
        compute, send = tuple(both[: len(participants)]), tuple(both[len(participants) :])
        longest_s = max(map(add, compute, send), default=0.0)  # nobody may have joined
        total_compute_s, total_send_s = math.fsum(compute), math.fsum(send)
        reporting, reported = participants, (total_compute_s, total_send_s)
        in_time: list[bool] | None = None
        if longest_s > edge.rules.deadline_s:
            in_time = [latency_s <= edge.rules.deadline_s for latency_s in map(add, compute, send)]
            reporting = tuple(compress(participants, in_time))
            reported = (math.fsum(compress(compute, in_time)), math.fsum(compress(send, in_time)))
        lasts_s = min(longest_s, edge.rules.deadline_s)
        lost: tuple[int, ...] = ()
        if self.phases is not None:
            trips = self.phases.trips(participants, send, in_time)
            lasts_s, lost = lasts_s + trips.lasts_s, trips.lost
            total_send_s, reported = total_send_s + trips.all_s, (reported[0], reported[1] + trips.stayed_s)
        rest = (participants, reporting, compute, send, total_compute_s, total_send_s, *reported, lost)
        if everyone:
            self._steady[edge.edge] = (second, RoundTiming(lasts_s, *rest))
        return RoundTiming(now + lasts_s, *rest)

    def _phases_s(self, cluster: npt.NDArray[np.int64]) -> float:
        """Return what the phases of a secure sum add to a round of a whole cluster at mean resources."""
        if self.phases is None:
            return 0.0
        clients = cluster.tolist()
        return self.phases.trips(clients, self.send_s[cluster].tolist(), None).lasts_s

    def _means(self, edge: Edge, participants: tuple[int, ...]) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Return mean compute and send times, and indices into the fluctuation factors."""
        everyone = participants is edge.everyone
        if everyone and edge.edge in self._clusters_means:
            return self._clusters_means[edge.edge]
        clients = np.array(participants, dtype=np.int64)
        means = (
            np.concatenate([self.compute_s[clients], self.send_s[clients]]),
            np.concatenate([clients, len(self.compute_s) + clients]),
        )
        if everyone and self.fluctuation is not None:  # else `_steady` is enough
            self._clusters_means[edge.edge] = means
        return means

    def _wan_s(self, edge: int, lease_id: int, way: str, size: int) -> float:
        if self.links is None:
            return 0.0
        return self.links[edge].draw_s(size, self._wan[way].once(edge, lease_id))
