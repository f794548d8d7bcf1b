"""The books of a deployed cloud: event rows and the ledger, from its effects and from what edges measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from hiflash.core.cloud import Cloud
from hiflash.core.state import Stateful
from hiflash.messages import (
    Cancel,
    CloudEffect,
    Expired,
    Grant,
    Measure,
    Proceed,
    Refuse,
    RoundApplied,
    Verdict,
    Welcome,
)
from hiflash.privacy.sums.messages import PHASES
from hiflash.serve.memory import Outcomes
from hiflash.serve.wire import MOST_NAMES, Measured
from hiflash.sim.events import Log
from hiflash.sim.ledger import Ledger
from hiflash.sim.world import RoundTiming

__all__ = ["Books"]

NOBODY = (0,) * len(PHASES)
LATE_KEPT = 10_000  # expired leases whose upload may still arrive


class Books(Stateful):
    """Writes down what happens. Its rows are those of a simulation."""

    STATE = ("rounds", "refusals", "late", "seconds")

    def __init__(self, ledger: Ledger, log: Log) -> None:
        self.ledger = ledger
        self.log = log
        self.outcomes = Outcomes()
        self.rounds: dict[int, int] = {}  # edge rounds of every edge's next lease
        self.refusals: dict[int, int] = {}  # the last refused request of every edge
        self.late: dict[int, int] = {}  # expired leases whose upload may still come, and their edges
        self.seconds: dict[int, tuple[int, float, float]] = {}  # by edge: rounds, their seconds, waiting

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state."""
        return super().snapshot() | {
            "ledger": self.ledger.snapshot(),
            "outcomes": self.outcomes.snapshot(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot."""
        super().restore(state)
        self.ledger.restore(state["ledger"])
        self.outcomes.restore(state["outcomes"])

    def worked(self, lease_id: int, edge: int, rounds: Sequence[Measured], now: float) -> None:
        """Book the measured rounds of a lease that ends."""
        for index, each in enumerate(rounds):
            lost = () if self.ledger.secure is None else each.lost or NOBODY
            self.ledger.round_done(lease_id, each.steps, _timing(each, lost, now))
            if lost:
                self.ledger.sum_told(each.asked, lost, each.clipped, unopened=each.unopened)
            self.outcomes.closed(lease_id, index, each.counted)
            count, round_s, waiting_s = self.seconds.get(edge, (0, 0.0, 0.0))
            self.seconds[edge] = (count + 1, round_s + each.round_s, waiting_s + each.waiting_s)
            self.log(
                now,
                "edge_round",
                {
                    "edge": edge,
                    "lease": lease_id,
                    "index": index,
                    "asked": each.asked,
                    "clients": each.delivered,
                    "steps": each.steps,
                    "round_s": each.round_s,
                    **({"lost": list(lost)} if lost else {}),
                },
            )

    def effect(
        self, effect: CloudEffect, cloud: Cloud, now: float, *, held: bool, metrics: Mapping[str, float]
    ) -> None:
        """Book an effect; `held` says that its event was an upload under an open lease of its edge."""
        match effect:
            case Grant():
                if effect.lease_id not in self.ledger.open:  # else it repeats a grant that got lost
                    self._granted(effect, cloud, now)
            case Refuse():
                if effect.reason in ("refused", "waited") and self._is_new(effect):
                    self.ledger.refused += effect.reason == "refused"
                    self.ledger.waited += effect.reason == "waited"
                    self.log(now, "refuse", {"edge": effect.edge, "reason": effect.reason})
            case Verdict():
                self._verdict(effect, now, first=held, metrics=metrics)
            case RoundApplied():
                for lease_id in effect.leases:
                    self.ledger.settle(lease_id, applied=True, now=now)
                for lease_id in effect.dropped:
                    self.ledger.settle(lease_id, applied=False, now=now)
                row = {"version": effect.version, "leases": list(effect.leases)}
                self.log(now, "round", {**row, "dropped": list(effect.dropped)})
            case Expired():
                self._expired(effect, now)
            case Cancel():
                running = self.ledger.open.get(effect.lease_id)
                if running is not None and running.in_flight:  # else its upload came before a late question
                    self.ledger.cancelled += 1
                    self.ledger.settle(effect.lease_id, applied=False, now=now)
                    self.outcomes.ended(effect.lease_id, accepted=False)
                    self.log(now, "cancel", {"edge": effect.edge, "lease": effect.lease_id})
            case Measure():
                self.log(now, "measure", {"version": effect.version})
            case Proceed() | Welcome():
                pass
            case _:
                assert_never(effect)

    def edges_ms(self, edges: int) -> dict[str, list[float]]:
        """Return response latency and waiting time of every edge: means of its measured rounds."""
        means = [self.seconds.get(edge, (0, 0.0, 0.0)) for edge in range(edges)]
        return {
            "latency_per_edge_ms": [1e3 * round_s / max(count, 1) for count, round_s, _ in means],
            "waiting_per_edge_ms": [1e3 * waiting_s / max(count, 1) for count, _, waiting_s in means],
        }

    def _is_new(self, refusal: Refuse) -> bool:
        """Return whether a refusal was not given before: one that got lost is repeated."""
        new = self.refusals.get(refusal.edge) != refusal.request_id
        self.refusals[refusal.edge] = refusal.request_id
        return new

    def _granted(self, grant: Grant, cloud: Cloud, now: float) -> None:
        costs = cloud.costs[grant.edge]
        rounds = self.rounds.get(grant.edge, 1)
        self.ledger.granted(grant, grant.now + costs.duration_s, costs.compute_s, rounds)
        row = {"edge": grant.edge, "lease": grant.lease_id, "version": grant.base_version}
        self.log(now, "grant", {**row, "threshold": str(grant.threshold), "rounds": rounds})

    def _verdict(self, verdict: Verdict, now: float, *, first: bool, metrics: Mapping[str, float]) -> None:
        # Names come from clients: the books must not grow with them.
        room = MOST_NAMES - len(self.ledger.told)
        new = [name for name in metrics if name not in self.ledger.told][: max(room, 0)]
        metrics = {name: value for name, value in metrics.items() if name in self.ledger.told or name in new}
        if not first:
            if self.late.pop(verdict.lease_id, None) is None:
                return  # a repeat, or no lease of ours
            self.ledger.communications += 1
            self.ledger.wan_bytes_up += self.ledger.payloads.up
            self.ledger.rejected += 1
            self.ledger.rejections[verdict.reason] += 1
        else:
            self.ledger.arrived(verdict, metrics)
            self.outcomes.ended(verdict.lease_id, accepted=verdict.status != "rejected")
        row = {
            "edge": verdict.edge,
            "lease": verdict.lease_id,
            "status": verdict.status,
            "staleness": verdict.staleness,
            "version": verdict.version,
            "reason": verdict.reason,
        }
        self.log(now, "upload", {**row, **({"metrics": dict(metrics)} if metrics else {})})

    def _expired(self, expired: Expired, now: float) -> None:
        if expired.reason == "abandoned":
            self.ledger.abandoned += 1
        else:
            self.late[expired.lease_id] = expired.edge
            if len(self.late) > LATE_KEPT:
                del self.late[next(iter(self.late))]
        self.ledger.settle(expired.lease_id, applied=False, now=now)
        self.outcomes.ended(expired.lease_id, accepted=False)
        self.log(now, "expire", {"edge": expired.edge, "lease": expired.lease_id, "reason": expired.reason})


def _timing(each: Measured, lost: tuple[int, ...], now: float) -> RoundTiming:
    """Return a measured round as the ledger takes it."""
    asked, delivered = tuple(range(each.asked)), tuple(range(each.delivered))
    sums = (each.compute_s, each.send_s)
    return RoundTiming(now, asked, delivered, (), (), *sums, *sums, lost)
