"""The simulator: the same cloud and edges as over a network, in virtual time.

Events are a heap of (time, counter). Each step takes the next event, hands it to a state machine, and turns
the effects into more events.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, assert_never

from hiflash.errors import ProtocolError
from hiflash.messages import (
    Abandon,
    Ask,
    Cancel,
    CheckIn,
    CloudEffect,
    ClusterChange,
    EdgeEffect,
    Expired,
    Grant,
    Measure,
    Measured,
    Proceed,
    Progress,
    Received,
    Refuse,
    Report,
    Round,
    RoundApplied,
    Slot,
    Upload,
    Verdict,
    Welcome,
)
from hiflash.sim.events import RoundEnd, SimulatorEvent
from hiflash.sim.mobility import Change
from hiflash.sim.readings import Readings
from hiflash.sim.training import Finished

__all__ = ["Simulator"]


class Simulator(Readings):
    """Drives one cloud and its edges through virtual time, one event per `step`."""

    def start(self) -> None:
        """Let every edge that has a client check in at time zero."""
        self._from_edge(self._opening)
        if self.mobility is not None:
            for first in self.mobility.first():
                self._push(*first)
        for edge in self.edges:
            if edge.everyone and not edge.request_id:
                self._from_edge(edge.handle(Ask(0.0)))
        self._schedule_slots()

    def step(self) -> None:
        """Handle the next event."""
        if not self.heap:
            raise ProtocolError("the simulation has no event left, yet its stop condition is not met")
        self.now, _, event = heapq.heappop(self.heap)
        match event:
            case Slot():
                self.timer.passed(event)
                self.world.forget(self.now)
                self._from_cloud(self.cloud.handle(event))
            case CheckIn():
                if self.edges[event.edge].everyone:  # its last client may have left before this retry
                    self._from_cloud(self.cloud.handle(event.at(self.now)))
            case Grant():
                took_s = self.now - event.now
                self._from_edge(self.edges[event.edge].handle(Received(event, took_s, self.now)))
            case RoundEnd():
                self._end_round(event)
            case Upload():
                self._arrive(event)
            case Abandon():
                self._give_up(event)
            case Change():
                self._change(event)
            case _:
                assert_never(event)
        self._schedule_slots()

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state of the simulation."""
        return {
            **super().snapshot(),
            "cloud": self.cloud.snapshot(),
            "edges": [edge.snapshot() for edge in self.edges],
            "world": self.world.snapshot(),
            "ledger": self.ledger.snapshot(),
            "timer": self.timer.snapshot(),
            "training": self.training.snapshot(),
            **({} if self.mobility is None else {"mobility": self.mobility.snapshot()}),
            **({} if self.spending is None else {"spending": self.spending.snapshot()}),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot."""
        super().restore(state)
        if self.spending is not None:
            self.spending.restore(state["spending"])
        self.cloud.restore(state["cloud"])
        for edge, saved in zip(self.edges, state["edges"], strict=True):
            edge.restore(saved)
        self.world.restore(state["world"])
        self.ledger.restore(state["ledger"])
        self.timer.restore(state["timer"])
        self.training.restore(state["training"])
        if self.mobility is not None:
            self.mobility.restore(state["mobility"])

    def _push(self, time: float, event: SimulatorEvent) -> None:
        self.counter += 1
        heapq.heappush(self.heap, (time, self.counter, event))

    def _schedule_slots(self) -> None:
        for slot in self.timer.schedule(self.cloud, self.now):
            self._push(slot.now, slot)

    def _from_cloud(self, effects: Sequence[CloudEffect]) -> None:
        for effect in effects:
            match effect:
                case Grant():
                    self._grant(effect)
                case Refuse():
                    self._refuse(effect)
                case Verdict():
                    self._verdict(effect)
                case RoundApplied():
                    self._charge_cloud(effect)
                    for lease_id in effect.leases:
                        self.ledger.settle(lease_id, applied=True, now=self.now)
                    for lease_id in effect.dropped:
                        self.ledger.settle(lease_id, applied=False, now=self.now)
                    self._log("round", version=effect.version, leases=list(effect.leases),
                              dropped=list(effect.dropped))  # fmt: skip
                case Expired():  # the books stay open until the edge hears of it or gives up
                    self._log("expire", edge=effect.edge, lease=effect.lease_id, reason=effect.reason)
                case Measure():
                    recall = None if self.recall is None else self.recall(self.cloud.weights)
                    self._log("measure", version=effect.version, recall=recall and list(recall))
                    self._from_cloud(self.cloud.handle(Measured(recall, self.now)))
                case Proceed():
                    self._from_edge(self.edges[effect.edge].handle(Received(effect, None, self.now)))
                case Cancel():
                    self._cancel(effect)
                case Welcome():
                    raise ProtocolError("the cloud sent a Welcome, but simulated edges never restart")
                case _:
                    assert_never(effect)

    def _from_edge(self, effects: Sequence[EdgeEffect | ClusterChange]) -> None:
        for effect in effects:
            match effect:
                case Round():
                    self._start_round(effect)
                case Upload() | Abandon():
                    self._push(self.now + self.timelines[effect.lease_id].up_s, effect)
                case CheckIn() if self._spent_since(effect.edge):
                    pass
                case CheckIn() | ClusterChange() | Progress():
                    self._from_cloud(self.cloud.handle(effect))
                case _:
                    assert_never(effect)

    def _change(self, change: Change) -> None:
        if self.mobility is None:
            raise ProtocolError("clients move, join and leave only with mobility")
        if (following := self.mobility.following(change, self.now)) is not None:
            self._push(*following)
        self._from_edge(self.mobility.handle(change, self.now))

    def _grant(self, grant: Grant) -> None:
        if self.mobility is not None:
            self.mobility.granted(grant.edge)
        first = not self.ledger.grants[grant.edge]
        timeline = self.world.timeline(self.edges[grant.edge], grant.lease_id, self.now, first=first)
        self.timelines[grant.lease_id] = timeline
        rounds = len(timeline.rounds)
        self.ledger.granted(grant, timeline.arrives_at, timeline.total_compute_s, rounds)
        self._log("grant", edge=grant.edge, lease=grant.lease_id, version=grant.base_version,
                  threshold=str(grant.threshold), rounds=rounds)  # fmt: skip
        self._push(timeline.starts_at, grant)

    def _refuse(self, refusal: Refuse) -> None:
        if refusal.reason == "refused":
            self.ledger.refused += 1
        else:
            self.ledger.waited += 1
        self._log("refuse", edge=refusal.edge, reason=refusal.reason)
        for retry in self.edges[refusal.edge].handle(Received(refusal, None, self.now)):
            if self.timer.slot_s is None and isinstance(retry, CheckIn):
                # Without slots no other event wakes the edge for its retry.
                self._push(self.now + refusal.retry_after, retry)
            else:
                self._from_edge([retry])

    def _cancel(self, cancel: Cancel) -> None:
        self.ledger.cancelled += 1
        self.training.drop(cancel.lease_id)
        self.ledger.settle(cancel.lease_id, applied=False, now=self.now)
        del self.timelines[cancel.lease_id]
        self._log("cancel", edge=cancel.edge, lease=cancel.lease_id)
        effects = self.edges[cancel.edge].handle(Received(cancel, None, self.now))
        again = next((effect for effect in effects if isinstance(effect, CheckIn)), None)
        self._ask_again(cancel.edge, again)

    def _start_round(self, opened: Round) -> None:
        """Begin an edge round and schedule its end. If its lease is too stale by now, nothing is trained."""
        timeline = self.timelines[opened.lease_id]
        timing = timeline.rounds[opened.index]
        model = None
        if self.training.trains:
            needed, wanted = self.edges[opened.edge].needed, not self.cloud.stale(opened.lease_id)
            model = self.training.start(opened, timing.reporting, needed, timeline.arrives_at, wanted=wanted)
        self._push(timing.ends_at, RoundEnd(opened.edge, opened.lease_id, opened.index, model))

    def _end_round(self, end: RoundEnd) -> None:
        """Report the end of a round to its edge, with the promise of the edge model."""
        edge, timing = self.edges[end.edge], self.timelines[end.lease_id].rounds[end.index]
        steps = edge.steps(timing.clients)
        self.ledger.round_done(end.lease_id, steps, timing)
        self._log("edge_round", edge=end.edge, lease=end.lease_id, index=end.index,
                  asked=len(timing.clients), clients=len(timing.reporting), steps=steps,
                  **({"lost": list(timing.lost)} if timing.lost else {}))  # fmt: skip
        if self.spending is not None:
            opened = len(timing.reporting) >= edge.needed  # else the sum of this round stays closed
            able = edge.able(end.lease_id, end.index)
            self.spending.round_over(able, timing.clients, timing.reporting, opened=opened)
        compute_s, send_s = timing.reported_compute_s, timing.reported_send_s
        report = Report(end.lease_id, end.index, timing.reporting, end.model, compute_s, send_s, self.now)
        self._from_edge(edge.handle(report))

    def _charge_cloud(self, applied: RoundApplied) -> None:
        """Charge a round of clients that the cloud adds up itself."""
        if self.spending is not None and self.spending.plan.at_cloud:
            members = [client for edge in self.edges for client in edge.everyone]
            able = [c for c, left in zip(members, self.spending.left(members), strict=True) if left > 0]
            joined = [self.ledger.open[lease_id].edge for lease_id in (*applied.leases, *applied.dropped)]
            self.spending.charge(able, joined)
            for client, left in zip(able, self.spending.left(able), strict=True):
                if not left:  # its next check-in came with the upload
                    self.cloud.handle(ClusterChange(client, 0, self.now))

    def _spent_since(self, client: int) -> bool:
        """Return whether a client that checks in was charged its last round after it asked."""
        at_cloud = self.spending is not None and self.spending.plan.at_cloud
        return at_cloud and self.spending is not None and not self.spending.left([client])[0]

    def _arrive(self, upload: Upload) -> None:
        lease_id, finished = upload.lease_id, None
        if not self.cloud.stale(lease_id):
            rounds = len(self.timelines[lease_id].rounds)
            finished = self.training.finish(upload, self.cloud.leases[lease_id], rounds, self.now)
            if finished is None:
                self.ledger.unusable()
                self._give_up(Abandon(upload.edge, lease_id, upload.check_in, self.now))
                return
            self.ledger.secured["clipped_values"] += finished.clipped
            self._hand_in(finished.fill(upload, self.now), finished)
        else:
            self._hand_in(replace(upload, now=self.now))

    def _give_up(self, abandon: Abandon) -> None:
        self.ledger.abandoned += 1
        self.ledger.settle(abandon.lease_id, applied=False, now=self.now)
        self.training.drop(abandon.lease_id)
        if abandon.lease_id not in self.cloud.leases:  # it expired before, so the cloud stays silent
            self._log("expire", edge=abandon.edge, lease=abandon.lease_id, reason="abandoned")
        self._hand_in(replace(abandon, now=self.now))

    def _hand_in(self, last: Upload | Abandon, finished: Finished | None = None) -> None:
        """Give the cloud the last message of a lease, with the check-in for the next lease.

        A stale upload changes nothing, so it does not matter whether it was computed.
        """
        del self.timelines[last.lease_id]
        again = last.check_in
        apart = self.mobility is not None  # the cluster may change in between
        effects = self.cloud.handle(replace(last, check_in=None) if apart else last)
        if finished is not None and self.cloud.verdicts[last.lease_id].status != "rejected":
            self.training.settled(last.edge, finished)
        self._metrics = {} if finished is None else finished.metrics
        self._from_cloud(effects)
        self._metrics = {}
        if apart:
            self._ask_again(last.edge, again)

    def _ask_again(self, edge: int, check_in: CheckIn | None) -> None:
        """Let an edge check in after its lease, with its present cluster, if it wants to."""
        if self.mobility is not None:
            self._from_edge(self.mobility.returned(edge, check_in, self.now))
        elif check_in is not None:
            self._from_edge([check_in])

    def _verdict(self, verdict: Verdict) -> None:
        self.ledger.arrived(verdict, self._metrics)
        self.training.drop(verdict.lease_id)
        self.training.drop_stale(self.cloud)  # this upload may have made other leases too stale
        self._log("upload", edge=verdict.edge, lease=verdict.lease_id, status=verdict.status,
                  staleness=verdict.staleness, version=verdict.version, reason=verdict.reason,
                  **({"metrics": dict(self._metrics)} if self._metrics else {}))  # fmt: skip
        edge = self.edges[verdict.edge]
        # If the lease ended while its edge still ran, the verdict is older than the upload.
        took_s = verdict.now - edge.sent_at if verdict.now >= edge.sent_at else None
        edge.handle(Received(verdict, took_s, self.now))

    def _log(self, kind: str, **row: Any) -> None:
        self.log(self.now, kind, row)
