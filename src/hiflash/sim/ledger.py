"""The books of a run: communications, steps, bytes and costs (docs/metrics.md says what each means)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hiflash.core.compression import Payloads
from hiflash.core.state import Stateful
from hiflash.messages import Grant, Verdict
from hiflash.privacy.sums.messages import PHASES
from hiflash.privacy.sums.sizes import ended_at, round_bytes
from hiflash.sim.accounting import ACCOUNTINGS, OpenLease
from hiflash.sim.world import RoundTiming, Timeline

__all__ = ["Ledger", "OpenLease", "Prices"]

KINDS = ("lost", "bytes")  # what is counted for every phase of secure sums


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices of a run's time and work.

    A slot costs 1. Computing costs `compute_weight` per cost unit, and sending `send_weight`. `unit_s` has
    the seconds of both cost units. `accounting` says what work is charged, and when (`ACCOUNTINGS`).
    """

    unit_s: tuple[float, float]
    slot_s: float
    compute_weight: float = 1.0
    send_weight: float = 1.0
    accounting: str = "lease"


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
             "send_cost", "told", "charged_to", "secured")  # fmt: skip

    def __init__(
        self,
        edges: int,
        payloads: Payloads,
        prices: Prices,
        *,
        flat: bool,
        synchronous: bool,
        secure: float | None = None,
    ) -> None:
        self.flat = flat
        self.secure = secure  # the quorum of secure sums, None without them
        self.synchronous = synchronous
        self.payloads = payloads
        self.prices = prices
        self.compute_unit_s, self.send_unit_s = prices.unit_s
        self.accounting = ACCOUNTINGS[prices.accounting]
        self.by_slot = prices.accounting == "paper"
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
        self.charged_to: dict[int, int] = {}  # paper: the last slot that each edge has paid for
        self.told: dict[str, tuple[float, int]] = {}  # sum and number of each metric of accepted uploads
        self.secured: Counter[str] = Counter()  # what happened in secure sums

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

    def granted(self, grant: Grant, arrives_at: float, compute_s: float, rounds: int) -> None:
        """Open the books of a lease with its expected arrival, and the expected computing of its rounds."""
        first = not self.grants[grant.edge]
        self.wan_bytes_down += self.payloads.first_down if first else self.payloads.down
        self.grants[grant.edge] += 1
        if not self.synchronous:  # a synchronous schedule has no threshold
            self.thresholds[str(grant.threshold)] += 1
        first_slot = self.accounting.first_slot(self.slot(grant.now), self.charged_to.get(grant.edge, -1))
        self.open[grant.lease_id] = OpenLease(
            grant.edge, first_slot, self.slot(arrives_at), compute_s, rounds
        )

    def round_done(self, lease_id: int, steps: int, timing: RoundTiming) -> None:
        """Count an edge round that was completed in virtual time."""
        lease = self.open[lease_id]
        self.open[lease_id] = OpenLease(
            lease.edge,
            lease.first_slot,
            lease.last_slot,
            lease.compute_s,
            lease.rounds,
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
        if self.secure is not None:
            self._count_phases(sent, timing.lost, self.secure)

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
            self.settle(verdict.lease_id, applied=False, now=verdict.now)
        elif verdict.status == "applied":
            self.settle(verdict.lease_id, applied=True, staleness=verdict.staleness, now=verdict.now)
        else:  # buffered: charge the lease now, and settle it when the cloud applies its buffer
            lease = self.open[verdict.lease_id]
            self.open[verdict.lease_id] = lease._replace(in_flight=False, staleness=verdict.staleness)
            self._charge(lease, self.slot(verdict.now))
        if verdict.status != "rejected":
            for name, value in metrics.items():
                total, count = self.told.get(name, (0.0, 0))
                self.told[name] = (total + value, count + 1)

    def settle(self, lease_id: int, *, applied: bool, now: float, staleness: int | None = None) -> None:
        """Close the books of a lease; those of a buffered upload already hold its staleness and its end."""
        lease = self.open.pop(lease_id)
        if lease.in_flight:
            self._charge(lease, self.slot(now))
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
            [self.accounting.running_s(lease, slot) for lease in self.open.values() if lease.in_flight]
        )
        compute = self.compute_cost + running / self.compute_unit_s
        total = self.prices.compute_weight * compute + self.prices.send_weight * self.send_cost + slot + 1
        return {"compute_cost": compute, "send_cost": self.send_cost, "total_cost": total}

    def cost_when_done(self, running: Mapping[int, Timeline], slot: int) -> float:
        """Return the total cost once these running leases have uploaded, at the earliest before `slot`."""
        compute_s = send_s = 0.0
        for lease_id, timeline in running.items():
            arrives = self.slot(timeline.arrives_at)
            more = self.accounting.expected_s(self.open[lease_id], timeline, arrives)
            compute_s, send_s, slot = compute_s + more[0], send_s + more[1], max(slot, arrives + 1)
        compute = self.compute_cost + compute_s / self.compute_unit_s
        send = self.send_cost + send_s / self.send_unit_s
        return self.prices.compute_weight * compute + self.prices.send_weight * send + slot

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
            **({} if self.secure is None else {"secure": self.secure_figures()}),
        }

    def unusable(self) -> None:
        """Count an edge round with too few usable models, though enough clients reported."""
        self.rejections["not finite"] += 1
        self.secured["abandoned"] += self.secure is not None

    def sum_told(self, asked: int, lost: tuple[int, ...], clipped: int, *, unopened: bool) -> None:
        """Count what an edge tells of a secure sum beside its losses."""
        self.secured["clipped_values"] += clipped
        if unopened and ended_at(asked, lost, self.secure or 0.0) is None:
            self.secured["abandoned"] += 1

    def secure_figures(self) -> dict[str, Any]:
        """Return what happened in secure sums."""
        by_phase = {kind: {phase: self.secured[f"{kind} {phase}"] for phase in PHASES} for kind in KINDS}
        counts = {name: self.secured[name] for name in ("rounds", "abandoned", "clipped_values")}
        return {**counts, **by_phase}

    def mean_staleness(self) -> float:
        """Return the mean staleness of the uploads that were applied."""
        applied = sum(self.staleness.values())
        return sum(tau * count for tau, count in self.staleness.items()) / applied if applied else 0.0

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot."""
        state = {"secured": {}, **state}  # older ones have none
        super().restore(state)
        for name in ("staleness", "thresholds", "rejections", "secured"):
            setattr(self, name, Counter(state[name]))

    def _count_phases(self, asked: int, lost: tuple[int, ...], quorum: float) -> None:
        """Count the messages of a secure sum, and the clients that its phases have lost."""
        self.secured["rounds"] += 1
        self.secured["abandoned"] += ended_at(asked, lost, quorum) is not None
        for phase, (down, up) in round_bytes(asked, lost, quorum).items():
            self.secured[f"bytes {phase}"] += down + up
            self.lan_bytes_down += down
            self.lan_bytes_up += up
        for phase, gone in zip(PHASES, lost, strict=True):
            self.secured[f"lost {phase}"] += gone

    def _left_over(self) -> int:
        """Return the steps of uploads in an asynchronous cloud's buffer; so far they are wasted."""
        if self.synchronous:
            return 0
        return sum(lease.steps_done for lease in self.open.values() if not lease.in_flight)

    def _charge(self, lease: OpenLease, slot: int) -> None:
        """Add the cost of a lease that ended in a slot."""
        compute_s, send_s = self.accounting.ended_s(lease, slot)
        self.compute_cost += compute_s / self.compute_unit_s
        self.send_cost += send_s / self.send_unit_s
        if self.by_slot:
            self.charged_to[lease.edge] = slot
