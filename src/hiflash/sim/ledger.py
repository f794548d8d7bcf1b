"""The books of a run: communications, steps, bytes and costs (docs/metrics.md says what each means)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from hiflash.core.compression import Payloads
from hiflash.core.state import Stateful, record
from hiflash.messages import Grant, Verdict
from hiflash.sim.world import RoundTiming

__all__ = ["Ledger", "OpenLease", "Prices"]


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices of a run's time and work.

    A slot costs 1. Computing costs `compute_weight` per cost unit, and sending `send_weight`. `unit_s` has
    the seconds of both cost units.
    """

    unit_s: tuple[float, float]
    slot_s: float
    compute_weight: float = 1.0
    send_weight: float = 1.0


@record
class OpenLease(NamedTuple):
    """An unsettled lease: its slots, its expected computing, and its work so far.

    `first_slot` has the grant, `last_slot` the expected arrival of the upload. `compute_s` is the expected
    computing of all rounds. `computed_s` and `sent_s` have one entry for each
    finished round.
    """

    edge: int
    first_slot: int
    last_slot: int
    compute_s: float
    computed_s: tuple[float, ...] = ()
    sent_s: tuple[float, ...] = ()
    steps_done: int = 0
    in_flight: bool = True
    staleness: int = 0


class Ledger(Stateful):
    """Counts communications, steps, bytes and costs, from the events alone."""

    COUNTS = (
        "communications",
        "client_uploads",
        "client_steps",
        "wasted_client_steps",
        "wan_bytes_up",
        "wan_bytes_down",
        "lan_bytes_up",
        "lan_bytes_down",
        "refused",
        "waited",
        "cancelled",
        "discarded",
        "rejected",
        "abandoned",
    )
    STATE = (*COUNTS, "staleness", "thresholds", "rejections", "grants", "applied", "open", "compute_cost",
             "send_cost", "told")  # fmt: skip

    def __init__(
        self, edges: int, payloads: Payloads, prices: Prices, *, flat: bool, synchronous: bool
    ) -> None:
        self.flat = flat
        self.synchronous = synchronous
        self.payloads = payloads
        self.prices = prices
        self.compute_unit_s, self.send_unit_s = prices.unit_s
        for name in self.COUNTS:
            setattr(self, name, 0)
        self.staleness: Counter[int] = Counter()
        self.thresholds: Counter[str] = Counter()
        self.rejections: Counter[str] = Counter()  # reasons other than staleness
        self.grants = [0] * edges
        self.applied = [0] * edges
        self.open: dict[int, OpenLease] = {}
        self.compute_cost = 0.0  # of leases that ended
        self.send_cost = 0.0
        self.told: dict[str, tuple[float, int]] = {}  # sum and number of each metric of accepted uploads

    communications: int
    client_uploads: int
    client_steps: int
    wasted_client_steps: int
    wan_bytes_up: int
    wan_bytes_down: int
    lan_bytes_up: int
    lan_bytes_down: int
    refused: int
    waited: int
    cancelled: int
    discarded: int
    rejected: int
    abandoned: int

    def rescale(self, slot_s: float, unit_s: tuple[float, float]) -> None:
        """Set the length of a slot and the cost units; a deployed cloud learns them when it starts."""
        self.prices = replace(self.prices, slot_s=slot_s, unit_s=unit_s)
        self.compute_unit_s, self.send_unit_s = unit_s

    @property
    def wan_bytes(self) -> int:
        """Return the bytes over the WAN in both directions."""
        return self.wan_bytes_up + self.wan_bytes_down

    @property
    def lan_bytes(self) -> int:
        """Return the bytes over the LAN in both directions."""
        return self.lan_bytes_up + self.lan_bytes_down

    def slot(self, now: float) -> int:
        """Return the index of the slot that `now` lies in."""
        return math.floor(now / self.prices.slot_s + 1e-9)  # k * slot_s / slot_s may fall just short of k

    def granted(self, grant: Grant, arrives_at: float, compute_s: float) -> None:
        """Open the books of a lease with its expected arrival and computing."""
        first = not self.grants[grant.edge]
        self.wan_bytes_down += self.payloads.first_down if first else self.payloads.down
        self.grants[grant.edge] += 1
        if not self.synchronous:  # a synchronous schedule has no threshold
            self.thresholds[str(grant.threshold)] += 1
        self.open[grant.lease_id] = OpenLease(
            grant.edge, self.slot(grant.now), self.slot(arrives_at), compute_s
        )

    def round_done(self, lease_id: int, steps: int, timing: RoundTiming) -> None:
        """Count an edge round that was completed in virtual time."""
        lease = self.open[lease_id]
        self.open[lease_id] = OpenLease(
            lease.edge,
            lease.first_slot,
            lease.last_slot,
            lease.compute_s,
            (*lease.computed_s, timing.total_compute_s),
            (*lease.sent_s, timing.total_send_s),
            lease.steps_done + steps,
        )
        sent, reported = len(timing.clients), len(timing.reporting)
        self.client_steps += steps
        self.client_uploads += reported
        if not self.flat:  # the access hop of a flat client is part of its way over the WAN
            self.lan_bytes_down += sent * (self.payloads.model + self.payloads.lan_down)
            self.lan_bytes_up += reported * (self.payloads.model + self.payloads.lan_up)

    def arrived(self, verdict: Verdict, metrics: Mapping[str, float]) -> None:
        """Count an upload that reached the cloud, with the metrics of its clients."""
        self.communications += 1
        self.wan_bytes_up += self.payloads.up
        if verdict.status == "rejected":
            if verdict.reason == "stale":
                self.discarded += 1
            else:
                self.rejected += 1
                self.rejections[verdict.reason] += 1
            self.settle(verdict.lease_id, applied=False)
        elif verdict.status == "applied":
            self.settle(verdict.lease_id, applied=True, staleness=verdict.staleness)
        else:  # buffered: charge the lease now, and settle it when the cloud applies its buffer
            lease = self.open[verdict.lease_id]
            self.open[verdict.lease_id] = lease._replace(in_flight=False, staleness=verdict.staleness)
            self._charge(lease)
        if verdict.status != "rejected":
            for name, value in metrics.items():
                total, count = self.told.get(name, (0.0, 0))
                self.told[name] = (total + value, count + 1)

    def settle(self, lease_id: int, *, applied: bool, staleness: int | None = None) -> None:
        """Close the books of a lease; those of a buffered upload already hold its staleness."""
        lease = self.open.pop(lease_id)
        if lease.in_flight:
            self._charge(lease)
        if applied:
            self.applied[lease.edge] += 1
            self.staleness[lease.staleness if staleness is None else staleness] += 1
        else:
            self.wasted_client_steps += lease.steps_done

    def costs(self, now: float) -> dict[str, float]:
        """Return the costs so far: computing, sending, and their weighted sum plus 1 for each slot."""
        return self.costs_by(self.slot(now))

    def costs_by(self, slot: int) -> dict[str, float]:
        """Return the costs at the end of a slot if nothing more happens in it."""
        running = math.fsum(
            [lease.compute_s * _share(lease, slot) for lease in self.open.values() if lease.in_flight]
        )
        compute = self.compute_cost + running / self.compute_unit_s
        total = self.prices.compute_weight * compute + self.prices.send_weight * self.send_cost + slot + 1
        return {"compute_cost": compute, "send_cost": self.send_cost, "total_cost": total}

    def totals(self, now: float) -> dict[str, Any]:
        """Return the coordinates against which accuracy is drawn."""
        return {
            "communications": self.communications,
            "client_steps": self.client_steps,
            "virtual_s": now,
            "wan_bytes": self.wan_bytes,
            "lan_bytes": self.lan_bytes,
            **self.costs(now),
        }

    def figures(self) -> dict[str, Any]:
        """Return the counts that a result reports beside the coordinates."""
        counts = [n for n in self.COUNTS if n not in ("communications", "client_steps")]
        return {
            **{name: getattr(self, name) for name in counts},
            "wasted_client_steps": self.wasted_client_steps + self._left_over(),
            "staleness": {
                "mean": self.mean_staleness(),
                "max": max(self.staleness, default=0),
                "histogram": {str(tau): self.staleness[tau] for tau in sorted(self.staleness)},
            },
            "thresholds": {name: self.thresholds[name] for name in sorted(self.thresholds, key=float)},
            "rejections": dict(self.rejections),
            "grants_per_edge": self.grants,
            "applied_per_edge": self.applied,
            "client_metrics": {name: total / count for name, (total, count) in sorted(self.told.items())},
        }

    def mean_staleness(self) -> float:
        """Return the mean staleness of the uploads that were applied."""
        applied = sum(self.staleness.values())
        return sum(tau * count for tau, count in self.staleness.items()) / applied if applied else 0.0

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot."""
        super().restore(state)
        for name in ("staleness", "thresholds", "rejections"):
            setattr(self, name, Counter(state[name]))

    def _left_over(self) -> int:
        """Return the steps of uploads in an asynchronous cloud's buffer; so far they are wasted."""
        if self.synchronous:
            return 0
        return sum(lease.steps_done for lease in self.open.values() if not lease.in_flight)

    def _charge(self, lease: OpenLease) -> None:
        """Add the cost of a lease's finished rounds, once the lease no longer runs."""
        self.compute_cost += math.fsum(lease.computed_s) / self.compute_unit_s
        self.send_cost += math.fsum(lease.sent_s) / self.send_unit_s


def _share(lease: OpenLease, slot: int) -> float:
    """Return the charged share of a running lease's computing, which is spread evenly over its slots."""
    return min(1.0, (slot - lease.first_slot + 1) / (lease.last_slot - lease.first_slot + 1))
