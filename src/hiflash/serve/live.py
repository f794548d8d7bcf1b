"""The deployed cloud without its network: it applies one input after the other, in the journal's order.

Everything here is a pure function of the inputs and their times. Replaying a journal therefore gives the same
model, the same event rows and the same books.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from hiflash.core.cloud import Cloud
from hiflash.core.state import Stateful
from hiflash.core.timers import SlotTimer
from hiflash.messages import (
    Abandon,
    Cancel,
    CloudEffect,
    CloudEvent,
    Expire,
    Expired,
    Grant,
    Hello,
    Measure,
    Measured,
    Proceed,
    Refuse,
    RoundApplied,
    Slot,
    Upload,
    Verdict,
    Weights,
    Welcome,
)
from hiflash.serve import wire_pb2 as pb
from hiflash.serve.journal import Input
from hiflash.serve.wire import Malformed, Wire
from hiflash.serve.wire import Measured as MeasuredRound
from hiflash.sim.events import Log
from hiflash.sim.ledger import Ledger
from hiflash.sim.world import RoundTiming

__all__ = ["CLOUD", "Finished", "LiveCloud"]

CLOUD = -1  # the node of inputs that the cloud gives itself
LATE_KEPT = 10_000  # expired leases whose upload may still arrive


class Finished(Exception):  # noqa: N818  # not an error: the run has reached its end
    """The run is over: nothing changes the model any more."""


class LiveCloud(Stateful):
    """A cloud with its books and its event rows. It ends when a budget of `limits` is used up."""

    STATE = ("rounds", "refusals", "late", "now", "finished")

    def __init__(
        self,
        cloud: Cloud,
        ledger: Ledger,
        wire: Wire,
        *,
        limits: Mapping[str, float],
        clusters: Sequence[Sequence[int]],
        log: Log,
    ) -> None:
        self.cloud = cloud
        self.ledger = ledger
        self.wire = wire
        self.limits = limits
        self.clusters = [list(cluster) for cluster in clusters]
        self.log = log
        self.timer = SlotTimer(None)  # a deployed cloud answers on arrival
        self.rounds: dict[int, int] = {}  # edge rounds of every edge's next lease
        self.refusals: dict[int, int] = {}  # the last refused request of every edge
        self.late: dict[int, int] = {}  # expired leases whose upload may still come, and their edges
        self.now = 0.0
        self.finished = ""  # why the run has ended

    @property
    def weights(self) -> Weights:
        """Return the global model."""
        return self.cloud.weights

    @property
    def version(self) -> int:
        """Return the number of updates of the global model."""
        return self.cloud.version

    def apply(self, given: Input, now: float) -> list[CloudEffect]:
        """Take one input and return its effects; a malformed or late one raises and changes nothing."""
        if self.finished:
            raise Finished(self.finished)
        event, measured, rounds = self._event(given, now)
        lease = self.cloud.leases.get(event.lease_id) if isinstance(event, Upload | Abandon) else None
        held = lease is not None and lease.edge == given.node
        effects = self.cloud.handle(event)
        self.now = now
        if rounds is not None:
            self.rounds[given.node] = rounds
        if lease is not None and held:
            self._worked(lease.lease_id, given.node, measured)
        if isinstance(event, Slot):
            self.timer.passed(event)
        for effect in effects:
            self._book(effect, held=held)
        self.finished = next((f"{name} used up" for name, share in self.used().items() if share >= 1), "")
        return effects

    def due(self, now: float) -> list[tuple[float, Input]]:
        """Return the inputs that the cloud gives itself, each with its time: now, or a deadline."""
        if self.finished:
            return []
        slots = self.timer.schedule(self.cloud, now)
        return [(slot.now, Input("slot", CLOUD, str(slot.index).encode())) for slot in slots]

    def used(self) -> dict[str, float]:
        """Return the used share of each budget."""
        spent = {
            "communications": self.ledger.communications,
            "client_steps": self.ledger.client_steps,
            "virtual_s": self.now,
        }
        return {name: spent[name] / limit for name, limit in self.limits.items()}

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state."""
        return {
            **super().snapshot(),
            "cloud": self.cloud.snapshot(),
            "ledger": self.ledger.snapshot(),
            "last_slot": self.timer.last_slot,  # alarms are set anew after a restart
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot."""
        super().restore(state)
        self.cloud.restore(state["cloud"])
        self.ledger.restore(state["ledger"])
        self.timer = SlotTimer(None)
        self.timer.last_slot = state["last_slot"]

    def _event(self, given: Input, now: float) -> tuple[CloudEvent, list[MeasuredRound], int | None]:
        """Return the event in an input, the measured rounds that it reports, and those of the next lease."""
        wire, body = self.wire, given.body
        match given.kind:
            case "check_in":
                asked = wire.read(pb.CheckIn, body)
                return wire.check_in(asked, now), [], asked.rounds
            case "upload":
                sent = wire.read(pb.Upload, body)
                return wire.upload(sent, now), wire.measured(sent.rounds), _next_rounds(sent)
            case "progress":
                return wire.progress(wire.read(pb.Lease, body), now), [], None
            case "abandon":
                given_up = wire.read(pb.Lease, body)
                return wire.abandon(given_up, now), wire.measured(given_up.rounds), _next_rounds(given_up)
            case "hello":
                return Hello(given.node, now), [], None
            case "slot":
                return Slot(int(body), now), [], None
            case "expire":
                return Expire(int(body), now), [], None
            case "measured":
                recall = json.loads(body)
                return Measured(None if recall is None else tuple(recall), now), [], None
            case _:
                raise Malformed(f"an input of unknown kind {given.kind[:20]!r}")

    def _worked(self, lease_id: int, edge: int, measured: list[MeasuredRound]) -> None:
        """Book the measured rounds of a lease that ends."""
        for index, each in enumerate(measured):
            self.ledger.round_done(lease_id, each.steps, _timing(each, self.now))
            self._log(
                "edge_round",
                edge=edge,
                lease=lease_id,
                index=index,
                asked=each.asked,
                clients=each.delivered,
                steps=each.steps,
            )

    def _book(self, effect: CloudEffect, *, held: bool) -> None:
        match effect:
            case Grant():
                if effect.lease_id not in self.ledger.open:  # else it repeats a grant that got lost
                    self._granted(effect)
            case Refuse():
                if effect.reason in ("refused", "waited") and self._is_new(effect):
                    self.ledger.refused += effect.reason == "refused"
                    self.ledger.waited += effect.reason == "waited"
                    self._log("refuse", edge=effect.edge, reason=effect.reason)
            case Verdict():
                self._verdict(effect, first=held)
            case RoundApplied():
                for lease_id in effect.leases:
                    self.ledger.settle(lease_id, applied=True)
                for lease_id in effect.dropped:
                    self.ledger.settle(lease_id, applied=False)
                self._log(
                    "round", version=effect.version, leases=list(effect.leases), dropped=list(effect.dropped)
                )
            case Expired():
                self._expired(effect)
            case Cancel():
                running = self.ledger.open.get(effect.lease_id)
                if running is not None and running.in_flight:  # else its upload came before a late question
                    self.ledger.cancelled += 1
                    self.ledger.settle(effect.lease_id, applied=False)
                    self._log("cancel", edge=effect.edge, lease=effect.lease_id)
            case Measure() | Proceed() | Welcome():
                pass
            case _:
                assert_never(effect)

    def _is_new(self, refusal: Refuse) -> bool:
        """Return whether a refusal was not given before: one that got lost is repeated."""
        new = self.refusals.get(refusal.edge) != refusal.request_id
        self.refusals[refusal.edge] = refusal.request_id
        return new

    def _granted(self, grant: Grant) -> None:
        costs = self.cloud.costs[grant.edge]
        self.ledger.granted(grant, grant.now + costs.duration_s, costs.compute_s)
        self._log(
            "grant",
            edge=grant.edge,
            lease=grant.lease_id,
            version=grant.base_version,
            threshold=str(grant.threshold),
            rounds=self.rounds.get(grant.edge, 1),
        )

    def _verdict(self, verdict: Verdict, *, first: bool) -> None:
        if not first:
            if self.late.pop(verdict.lease_id, None) is None:
                return  # a repeat, or no lease of ours
            self.ledger.communications += 1
            self.ledger.wan_bytes_up += self.ledger.payloads.up
            self.ledger.rejected += 1
            self.ledger.rejections[verdict.reason] += 1
        else:
            self.ledger.arrived(verdict, {})
        self._log(
            "upload",
            edge=verdict.edge,
            lease=verdict.lease_id,
            status=verdict.status,
            staleness=verdict.staleness,
            version=verdict.version,
            reason=verdict.reason,
        )

    def _expired(self, expired: Expired) -> None:
        if expired.reason == "abandoned":
            self.ledger.abandoned += 1
        else:
            self.late[expired.lease_id] = expired.edge
            if len(self.late) > LATE_KEPT:
                del self.late[next(iter(self.late))]
        self.ledger.settle(expired.lease_id, applied=False)
        self._log("expire", edge=expired.edge, lease=expired.lease_id, reason=expired.reason)

    def _log(self, kind: str, **row: Any) -> None:
        self.log(self.now, kind, row)


def _timing(each: MeasuredRound, now: float) -> RoundTiming:
    """Return a measured round as the books take it."""
    asked, delivered = tuple(range(each.asked)), tuple(range(each.delivered))
    sums = (each.compute_s, each.send_s)
    return RoundTiming(now, asked, delivered, (), (), *sums, *sums)


def _next_rounds(sent: pb.Upload | pb.Lease) -> int | None:
    return sent.check_in.rounds if sent.HasField("check_in") else None
