"""The simulator: the same cloud and edges as everywhere, in virtual time.

Events are a heap of (time, counter). Control flow runs ahead of computation: an edge round is begun on an
executor when its edge starts it and handed on as a promise; the simulation waits for it when its upload
reaches the cloud, or drops it when that upload is known to be refused. A client task is pure, so when it
runs cannot change what it gives.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hiflash.core.async_cloud import AsyncCloud
from hiflash.core.cloud import Cloud
from hiflash.core.compression import Uplink
from hiflash.core.edge import Edge
from hiflash.core.state import Stateful, record
from hiflash.errors import ProtocolError
from hiflash.execute.executor import Executor, PendingModel, begin, resolve
from hiflash.messages import (
    Abandon,
    Cancel,
    CheckIn,
    ClientUpdate,
    ClusterChange,
    Deadline,
    Expired,
    Grant,
    Measure,
    Measured,
    Proceed,
    Progress,
    Refuse,
    Report,
    Round,
    RoundApplied,
    Slot,
    Upload,
    Verdict,
    Weights,
)
from hiflash.sim.ledger import Ledger
from hiflash.sim.mobility import Change, Mobility
from hiflash.sim.world import RoundTiming, World

__all__ = ["RoundEnd", "Simulator", "StandIn"]

StandIn = Callable[[int, Weights, int], Weights]
"""From an edge, the model it received and its edge rounds to what training would have made of it."""


@record
@dataclass(slots=True)
class RoundEnd:
    """An edge round is over in virtual time."""

    edge: int
    lease_id: int
    index: int


class Simulator(Stateful):
    """Drives one cloud and its edges through virtual time, one event per `step`."""

    STATE = ("now", "heap", "counter", "last_slot", "slot_due", "deadline", "open_rounds", "kept")

    def __init__(
        self,
        cloud: Cloud,
        edges: Sequence[Edge],
        world: World,
        ledger: Ledger,
        executor: Executor | None,
        *,
        slot_s: float | None,
        limits: Mapping[str, float | None],
        recall: Callable[[Weights], tuple[float, ...]] | None = None,
        stand_in: StandIn | None = None,
        log: Callable[[float, str, Mapping[str, Any]], None],
        uplink: Uplink | None = None,
        mobility: Mobility | None = None,
    ) -> None:
        self.cloud = cloud
        self.edges = list(edges)
        self.world = world
        self.ledger = ledger
        self.executor = executor
        self.slot_s = slot_s
        self.limits = {name: limit for name, limit in limits.items() if limit is not None}
        self._budgets = {name: f"{limit:,} {name.replace('_', ' ')}" for name, limit in self.limits.items()}
        self.recall = recall
        self.stand_in = stand_in
        self.log = log
        self.uplink = uplink or Uplink()
        self.mobility = mobility
        # Whoever is absent at first is so from the beginning, also for those who look before the start.
        self._opening = [] if mobility is None else mobility.start()
        self.now = 0.0
        self.heap: list[tuple[float, int, Any]] = []
        self.counter = 0
        self.last_slot = -1
        self.slot_due = False
        self.deadline = math.inf
        self.open_rounds: dict[int, Round] = {}
        self.kept: dict[int, Weights] = {}  # what clients keep to themselves, if the model has such parts

    def start(self) -> None:
        """Let every edge that has a client check in at time zero."""
        self._from_edge(self._opening)
        if self.mobility is not None:
            for first in self.mobility.first():
                self._push(*first)
        for edge in self.edges:
            if edge.everyone and not edge.request_id:
                self._from_cloud(self.cloud.handle(edge.check_in(0.0)))
        self._schedule_slots()

    @property
    def weights(self) -> Weights:
        """Return the global model."""
        return self.cloud.weights

    @property
    def version(self) -> int:
        """Return how often the global model was updated."""
        return self.cloud.version

    def evaluations_due(self, every: int) -> int:
        """Return how many evaluations should have been made by now."""
        return self.ledger.communications // every

    def used(self) -> dict[str, float]:
        """Return the share of each budget that is used up; no event beyond the last virtual second runs."""
        spent = {
            "communications": self.ledger.communications,
            "client_steps": self.ledger.client_steps,
            "virtual_s": self.heap[0][0] if self.heap else math.inf,
        }
        return {self._budgets[name]: spent[name] / limit for name, limit in self.limits.items()}

    def totals(self) -> dict[str, Any]:
        """Return the coordinates of an evaluation."""
        return self.ledger.totals(self.now)

    @property
    def clusters(self) -> list[list[int]]:
        """Return the clients that belong to each edge."""
        if self.mobility is not None:
            return self.mobility.clusters()
        return [list(edge.everyone) for edge in self.edges]

    def figures(self) -> dict[str, Any]:
        """Return the rest of what a result reports."""
        return {
            **self.ledger.figures(),
            **({} if self.mobility is None else {"mobility": self.mobility.figures(self.now)}),
            "response_latency_ms": self.world.response_latency_ms,
            "waiting_ms": self.world.waiting_ms,
        }

    def edges_ms(self) -> dict[str, list[float]]:
        """Return response latency and waiting time of every edge."""
        return {
            "latency_per_edge_ms": self.world.latency_per_edge_ms(),
            "waiting_per_edge_ms": self.world.waiting_per_edge_ms(),
        }

    def decision(self) -> tuple[int, float] | None:
        """Return which edge the next event will answer, and when; None if that event is another."""
        time, _, event = self.heap[0]
        if not (isinstance(event, Slot) and isinstance(self.cloud, AsyncCloud)):
            return None
        edge = self.cloud.asked(event)
        return None if edge is None else (edge, time)

    def step(self) -> None:
        """Handle the next event."""
        if not self.heap:
            raise ProtocolError("the simulation has no event left, yet its stop condition is not met")
        self.now, _, event = heapq.heappop(self.heap)
        match event:
            case Slot():
                self.slot_due, self.last_slot = False, max(self.last_slot, event.index)
                self.world.forget(self.now)
                self._from_cloud(self.cloud.handle(event))
            case CheckIn():
                if self.edges[event.edge].everyone:  # else its last client left while it waited to ask again
                    self._from_cloud(self.cloud.handle(event.at(self.now)))
            case Change() if self.mobility is not None:
                self._push(*self.mobility.following(event, self.now))
                self._from_edge(self.mobility.handle(event, self.now))
            case Grant():
                self._from_edge(self.edges[event.edge].received(event, self.now))
            case RoundEnd():
                self._end_round(event)
            case Upload():
                self._arrive(event)
            case Abandon():
                self._give_up(event)
        self._schedule_slots()

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state of the simulation."""
        return {
            **super().snapshot(),
            "cloud": self.cloud.snapshot(),
            "edges": [edge.snapshot() for edge in self.edges],
            "world": self.world.snapshot(),
            "ledger": self.ledger.snapshot(),
            "uplink": self.uplink.snapshot(),
            **({} if self.mobility is None else {"mobility": self.mobility.snapshot()}),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot."""
        super().restore(state)
        self.cloud.restore(state["cloud"])
        for edge, saved in zip(self.edges, state["edges"], strict=True):
            edge.restore(saved)
        self.world.restore(state["world"])
        self.ledger.restore(state["ledger"])
        self.uplink.restore(state["uplink"])
        if self.mobility is not None:
            self.mobility.restore(state["mobility"])

    def _push(self, time: float, event: Any) -> None:
        self.counter += 1
        heapq.heappush(self.heap, (time, self.counter, event))

    def _schedule_slots(self) -> None:
        """Have check-ins answered: at the next slot boundary, or at once where there are no slots."""
        if not self.slot_due and self.cloud.answerable:
            self.slot_due = True
            index, time = self.last_slot + 1, self.now
            if self.slot_s is not None:
                index = max(math.ceil(self.now / self.slot_s), index)
                time = max(self.now, index * self.slot_s)
            self._push(time, Slot(index, time))
        if self.cloud.deadline not in (math.inf, self.deadline):
            self.deadline = self.cloud.deadline
            self._push(self.deadline, Slot(self.last_slot + 1, self.deadline))

    def _from_cloud(self, effects: Sequence[Any]) -> None:
        for effect in effects:
            match effect:
                case Grant():
                    self._grant(effect)
                case Refuse():
                    if effect.reason == "refused":
                        self.ledger.refused += 1
                    else:
                        self.ledger.waited += 1
                    self._log("refuse", edge=effect.edge, reason=effect.reason)
                    retry = self.edges[effect.edge].handle(effect)
                    if self.slot_s is None:  # nothing else would pass the time until it asks again
                        self._push(self.now + effect.retry_after, *retry)
                    else:
                        self._from_edge(retry)
                case Verdict():
                    self._verdict(effect)
                case RoundApplied():
                    for lease_id in effect.leases:
                        self.ledger.settle(lease_id, applied=True)
                    for lease_id in effect.dropped:
                        self.ledger.settle(lease_id, applied=False)
                    self._log("round", version=effect.version, leases=list(effect.leases),
                              dropped=list(effect.dropped))  # fmt: skip
                case Expired():  # its books stay open: the edge goes on until it is told, or gives up
                    self._log("expire", edge=effect.edge, lease=effect.lease_id, reason=effect.reason)
                case Measure():
                    recall = None if self.recall is None else self.recall(self.cloud.weights)
                    self._log("measure", version=effect.version, recall=recall and list(recall))
                    self._from_cloud(self.cloud.handle(Measured(recall, self.now)))
                case Proceed():
                    self._from_edge(self.edges[effect.edge].handle(effect))
                case Cancel():
                    self.ledger.cancelled += 1
                    self._drop(effect.lease_id)
                    self.ledger.settle(effect.lease_id, applied=False)
                    self._log("cancel", edge=effect.edge, lease=effect.lease_id)
                    (check_in,) = self.edges[effect.edge].handle(effect)
                    self._ask_again(check_in)

    def _grant(self, grant: Grant) -> None:
        if self.mobility is not None:
            self.mobility.granted(grant.edge)
        first = not self.ledger.grants[grant.edge]
        timeline = self.world.timeline(self.edges[grant.edge], grant.lease_id, self.now, first=first)
        self.ledger.granted(grant, timeline)
        self._log("grant", edge=grant.edge, lease=grant.lease_id, version=grant.base_version,
                  threshold=str(grant.threshold), rounds=len(timeline.rounds))  # fmt: skip
        self._push(timeline.starts_at, grant)

    def _from_edge(self, effects: Sequence[Any]) -> None:
        for effect in effects:
            match effect:
                case Round():
                    self._start_round(effect)
                case Upload() | Abandon():
                    self._push(self.now + self.ledger.open[effect.lease_id].timeline.up_s, effect)
                case CheckIn() | ClusterChange() | Progress():
                    self._from_cloud(self.cloud.handle(effect))

    def _end_round(self, end: RoundEnd) -> None:
        """Deliver what the clients of an edge round have made of their tasks, as promises."""
        edge, opened = self.edges[end.edge], self.open_rounds.pop(end.edge)
        timing = self._timing(opened)
        steps = edge.steps(timing.clients)
        self.ledger.round_done(
            end.lease_id,
            steps=steps,
            sent=len(timing.clients),
            reported=len(timing.reporting),
        )
        self._log("edge_round", edge=end.edge, lease=end.lease_id, index=end.index,
                  asked=len(timing.clients), clients=len(timing.reporting), steps=steps)  # fmt: skip
        if self.executor is None:  # nothing is trained: one message for the whole round
            self._from_edge(
                edge.handle(
                    Report(
                        end.lease_id,
                        end.index,
                        timing.reporting,
                        timing.reported_compute_s,
                        timing.reported_send_s,
                        self.now,
                    )
                )
            )
            return
        effects: list[Any] = []
        for update in self._updates(opened):
            effects += edge.handle(update)
        if len(timing.reporting) < len(opened.tasks):
            effects += edge.handle(Deadline(end.lease_id, end.index, self.now))
        self._from_edge(effects)

    def _start_round(self, opened: Round) -> None:
        """Take note of an edge round and have it computed, unless its upload is known to be refused."""
        timeline = self.ledger.open[opened.lease_id].timeline
        timing = timeline.rounds[opened.index]
        if self.kept:
            tasks = (replace(task, kept=self.kept.get(task.client)) for task in opened.tasks)
            opened = replace(opened, tasks=tuple(tasks))
        self.open_rounds[opened.edge] = opened
        self._push(timing.ends_at, RoundEnd(opened.edge, opened.lease_id, opened.index))
        if self.executor is None:
            return
        quorum = self.edges[opened.edge].needed
        if len(timing.reporting) >= quorum and not self.cloud.stale(opened.lease_id):
            model = PendingModel(tuple(self._updates(opened)), quorum)
            begin(model, self.executor, timeline.arrives_at)

    def _updates(self, opened: Round) -> list[ClientUpdate]:
        """Return what the clients that report in time will deliver; instead of weights, their tasks."""
        edge, timing = self.edges[opened.edge], self._timing(opened)
        seconds = dict(zip(timing.clients, zip(timing.compute_s, timing.send_s, strict=True), strict=True))
        return [
            ClientUpdate(
                client=task.client,
                lease_id=opened.lease_id,
                round=opened.index,
                weights=task,
                examples=edge.workloads[task.client].examples,
                loss=math.nan,
                compute_s=seconds[task.client][0],
                send_s=seconds[task.client][1],
                now=timing.ends_at,
            )
            for task in opened.tasks
            if task.client in timing.reporting
        ]

    def _timing(self, opened: Round) -> RoundTiming:
        return self.ledger.open[opened.lease_id].timeline.rounds[opened.index]

    def _arrive(self, upload: Upload) -> None:
        left, weights, examples = None, upload.weights, upload.examples
        if self.executor is not None and not self.cloud.stale(upload.lease_id):
            model = resolve(upload.weights, self.executor, self.now)
            if model is None:
                self._give_up(Abandon(upload.edge, upload.lease_id, upload.check_in, self.now))
                return
            # Only now: what is refused as stale may never have been computed, and must leave no trace.
            self.kept.update(model.kept)
            lease = self.cloud.leases[upload.lease_id]
            weights, left = self.uplink.send(upload.edge, model.weights, lease.received, lease.base)
            examples = sum(model.examples.values())
        elif self.stand_in is not None and not self.cloud.stale(upload.lease_id):
            rounds = len(self.ledger.open[upload.lease_id].timeline.rounds)
            received = self.cloud.leases[upload.lease_id].received
            weights = self.stand_in(upload.edge, received, rounds)
        arrived = Upload(upload.edge, upload.lease_id, weights, examples, upload.check_in, self.now)
        self._hand_in(arrived, left)

    def _give_up(self, abandon: Abandon) -> None:
        self.ledger.abandoned += 1
        self.ledger.settle(abandon.lease_id, applied=False)
        self._drop(abandon.lease_id)
        if abandon.lease_id not in self.cloud.leases:  # it came too late before, so the cloud says nothing
            self._log("expire", edge=abandon.edge, lease=abandon.lease_id, reason="abandoned")
        self._hand_in(replace(abandon, now=self.now))

    def _hand_in(self, last: Upload | Abandon, left: Weights | None = None) -> None:
        """Give the cloud the last message of a lease, which asks for the next one too.

        `left` is what an upload left out. One that is refused changes nothing, so that it cannot matter
        whether it was computed.
        """
        again = last.check_in
        apart = self.mobility is not None and again is not None  # the cluster may change between the two
        effects = self.cloud.handle(replace(last, check_in=None) if apart else last)
        if left is not None and self.cloud.verdicts[last.lease_id].status != "rejected":
            self.uplink.keep(last.edge, left)
        self._from_cloud(effects)
        if apart and again is not None:
            self._ask_again(again)

    def _ask_again(self, check_in: CheckIn) -> None:
        """Let an edge whose lease is over ask for the next one, with the cluster that it has by now."""
        if self.mobility is None:
            self._from_edge([check_in])
        else:
            self._from_edge(self.mobility.returned(check_in, self.now))

    def _drop(self, lease_id: int) -> None:
        if self.executor is not None:
            self.executor.drop(lease_id)

    def _verdict(self, verdict: Verdict) -> None:
        self.ledger.arrived(verdict)
        self._drop(verdict.lease_id)
        for lease_id in self.executor.leases() if self.executor is not None else ():
            if self.cloud.stale(lease_id):  # this upload was one too many for it
                self._drop(lease_id)
        self._log("upload", edge=verdict.edge, lease=verdict.lease_id, status=verdict.status,
                  staleness=verdict.staleness, version=verdict.version, reason=verdict.reason)  # fmt: skip
        self.edges[verdict.edge].handle(verdict)

    def _log(self, kind: str, **row: Any) -> None:
        self.log(self.now, kind, row)
