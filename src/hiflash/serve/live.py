"""The deployed cloud without its network: it applies one input after the other, in the journal's order.

Everything here is a pure function of the inputs and their times. Replaying a journal therefore gives the same
model, the same event rows and the same books.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hiflash.core.async_cloud import AsyncCloud
from hiflash.core.cloud import Cloud
from hiflash.core.state import Stateful, record
from hiflash.core.timers import SlotTimer
from hiflash.messages import (
    Abandon,
    CloudEffect,
    CloudEvent,
    ClusterChange,
    Expire,
    Hello,
    Slot,
    Upload,
    Weights,
)
from hiflash.messages import Measured as ClassesMeasured
from hiflash.serve import wire_pb2 as pb
from hiflash.serve.books import Books
from hiflash.serve.charges import Charges, read_charges, total
from hiflash.serve.journal import Input
from hiflash.serve.models import CloudModels
from hiflash.serve.wire import Malformed, Measured, Wire
from hiflash.sim.private import PrivacyPlan
from hiflash.sim.record import Record
from hiflash.sim.sent_histograms import SentHistograms
from hiflash.weights import digest

__all__ = ["CLOUD", "Finished", "LiveCloud", "Scale", "Wanted"]

CLOUD = -1  # the node of inputs that the cloud gives itself
MOST_WANTED = 16  # evaluations that may wait; when testing is slower than training, some are left out


class Finished(Exception):  # noqa: N818  # not an error: the run has reached its end
    """The run is over: nothing changes the model any more."""


@record
class Wanted(NamedTuple):
    """An evaluation that is due: the model, its version, and the coordinates of the run."""

    version: int
    totals: dict[str, Any]
    weights: Weights


@record
class Scale(NamedTuple):
    """The units of costs: seconds of a slot, and of a mean lease's computing and sending."""

    slot_s: float
    compute_s: float
    send_s: float


class _Given(NamedTuple):
    """What an input holds for the cloud and its books."""

    event: CloudEvent
    measured: Sequence[Measured] = ()
    next_lease: pb.CheckIn | None = None
    metrics: Mapping[str, float] = {}


class LiveCloud(Stateful):
    """A cloud with its books. It ends when a budget of `limits` is used up, or the target is reached.

    `opening` is the first row of events. Without a `record` nothing is evaluated. Where clients bring their
    own data, edges declare their samples, at most `most_examples` in a cluster. A lease has at most
    `most_rounds`, and a client takes at most `most_steps` in a round.
    """

    STATE = ("run", "now", "finished", "scale", "wanted", "wants", "evaluated", "charges")

    def __init__(
        self,
        cloud: Cloud,
        books: Books,
        wire: Wire,
        models: CloudModels,
        *,
        limits: Mapping[str, float],
        clusters: Sequence[Sequence[int]],
        record: Record | None = None,
        opening: Mapping[str, Any] | None = None,
        most_examples: int | None = None,
        most_rounds: int = 1,
        most_steps: int = 2**31,
        plan: PrivacyPlan | None = None,
        histograms: SentHistograms | None = None,
    ) -> None:
        self.cloud = cloud
        self.books = books
        self.ledger = books.ledger
        self.wire = wire
        self.models = models
        self.limits = limits
        self.clusters = [list(cluster) for cluster in clusters]
        self.record = record
        self.opening = opening or {}
        self.most_examples = most_examples
        self.most_rounds, self.most_steps = most_rounds, most_steps
        self.plan, self.histograms = plan, histograms
        self.charges: dict[int, Charges] = {}  # what edges have told of their privacy ledgers
        self.timer = SlotTimer(None)  # a deployed cloud answers on arrival
        self.run = ""  # the name of this run, drawn when its journal begins
        self.now = 0.0
        self.finished = ""  # why the run has ended
        self.scale: Scale | None = None  # known once the run has started
        self.wanted: dict[int, Wanted] = {}
        self.wants = 0
        self.evaluated = 0
        self.kept: Mapping[int, Weights] = {}  # clients keep what they do not share
        self._alarm_set = False

    @property
    def weights(self) -> Weights:
        """Return the global model."""
        return self.cloud.weights

    @property
    def version(self) -> int:
        """Return the number of updates of the global model."""
        return self.cloud.version

    @property
    def complete(self) -> bool:
        """Return whether the run is over and its last model was evaluated."""
        return bool(self.finished) and not self.wanted

    def apply(self, given: Input, now: float) -> list[CloudEffect]:
        """Take one input and return its effects; a malformed or late one raises and changes nothing."""
        if given.kind == "evaluated":
            return self._evaluated(given.body, now)
        if self.finished:
            raise Finished(self.finished)
        if given.kind == "begin":
            self.run = self.run or given.body.decode()
            return []
        if given.kind == "charges":
            self._charged(given.node, given.body)
            return []
        if given.kind == "start":
            return self._start(Scale(*json.loads(given.body)), now)
        effects = [] if given.kind == "time" else self._handle(given, now)
        self.now = now
        self._look_at_budgets()
        return effects

    def due(self, now: float) -> list[tuple[float, Input]]:
        """Return the inputs that the cloud gives itself, each with its time: now, or a deadline."""
        if self.finished:
            return []
        found = [
            (slot.now, Input("slot", CLOUD, str(slot.index).encode()))
            for slot in self.timer.schedule(self.cloud, now)
        ]
        if "virtual_s" in self.limits and not self._alarm_set:
            self._alarm_set = True
            found.append((self.limits["virtual_s"], Input("time", CLOUD, b"")))
        return found

    def used(self) -> dict[str, float]:
        """Return the used share of each budget."""
        spent = {
            "communications": self.ledger.communications,
            "client_steps": self.ledger.client_steps,
            "virtual_s": self.now,
        }
        return {name: spent[name] / limit for name, limit in self.limits.items()}

    def totals(self) -> dict[str, Any]:
        """Return the coordinates of an evaluation; virtual seconds are those of the cloud's clock."""
        return self.ledger.totals(self.now)

    def figures(self) -> dict[str, Any]:
        """Return the other figures of a result."""
        means = {}
        for name, values in self.edges_ms().items():
            known = [value for edge, value in enumerate(values) if edge in self.books.seconds]
            means[name.replace("_per_edge", "")] = sum(known) / max(len(known), 1)
        return {
            **self.ledger.figures(),
            "response_latency_ms": means["latency_ms"],
            "waiting_ms": means["waiting_ms"],
        }

    def spent(self) -> dict[str, Any]:
        """Return the privacy ledger, as edges have told theirs, and the histograms that clients have sent."""
        plan = self.plan
        return {
            **({} if plan is None else plan.report(total(plan, self.charges.values()))),
            **({} if self.histograms is None else {"histograms": self.histograms.report()}),
        }

    def privacy_status(self) -> dict[str, Any]:
        """Return the privacy ledger in a few numbers, and the charges of every edge; empty without one."""
        report = self.spent()
        if self.plan is None:
            return report
        names = ["unit", "noise", "epsilon", "epsilon_participation", "delta", "budget", "charges"]
        names += [name for name in ("other_units", "histograms") if report.get(name)]
        edges = {}
        for edge, told in sorted(self.charges.items()):
            most = {name: max(counts.values(), default=0) for name, counts in told.counts.items()}
            edges[edge] = {"able": told.able, "charges": most}
        return {**{name: report[name] for name in names}, "edges": edges}

    def check_charges(self, edge: int, body: bytes) -> Charges:
        """Return what an edge says of its privacy ledger, or raise."""
        if self.plan is None:
            raise Malformed("charges without differential privacy")
        known = self.charges.get(edge, Charges())
        return read_charges(body, self.clusters[edge], self.plan, known)

    def edges_ms(self) -> dict[str, list[float]]:
        """Return measured response latency and waiting time of every edge."""
        return self.books.edges_ms(len(self.clusters))

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state."""
        return {
            **super().snapshot(),
            "cloud": self.cloud.snapshot(),
            "books": self.books.snapshot(),
            "record": None if self.record is None else self.record.snapshot(),
            "last_slot": self.timer.last_slot,  # alarms are set anew after a restart
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot; one from before private rounds has no charges."""
        super().restore({"charges": {}, **state})
        self.cloud.restore(state["cloud"])
        self.books.restore(state["books"])
        if self.record is not None:
            self.record.restore(state["record"])
        self.timer = SlotTimer(None)
        self.timer.last_slot = state["last_slot"]
        self._alarm_set = False
        if self.scale is not None:
            self._take_scale(self.scale)

    def _start(self, scale: Scale, now: float) -> list[CloudEffect]:
        """Begin the run: every edge that it waits for is here, and has said how long it takes."""
        self.scale, self.now = scale, now
        self._take_scale(scale)
        self.books.log(now, "start", self.opening)
        return []

    def _take_scale(self, scale: Scale) -> None:
        if isinstance(self.cloud, AsyncCloud):
            self.cloud.rescale(scale.slot_s, (scale.compute_s, scale.send_s))
        self.ledger.rescale(scale.slot_s, (scale.compute_s, scale.send_s))

    def _handle(self, given: Input, now: float) -> list[CloudEffect]:
        event, measured, next_lease, metrics = self._read(given, now)
        lease = self.cloud.leases.get(event.lease_id) if isinstance(event, Upload | Abandon) else None
        held = lease is not None and lease.edge == given.node
        effects = self.cloud.handle(event)
        if next_lease is not None:
            self.books.rounds[given.node] = next_lease.rounds
            self._declare(next_lease, now)
        if lease is not None and held:
            self.books.worked(lease.lease_id, given.node, measured, now)
        if isinstance(event, Slot):
            self.timer.passed(event)
        for effect in effects:
            self.books.effect(effect, self.cloud, now, held=held, metrics=metrics)
        return effects

    def _measured(self, edge: int, sent: Sequence[pb.Measured]) -> list[Measured]:
        """Return the rounds that an edge has measured, if its cluster can have had them."""
        rounds, cluster = self.wire.measured(sent), set(self.clusters[edge])
        if len(rounds) > self.most_rounds:
            raise Malformed(f"{len(rounds)} rounds, a lease has at most {self.most_rounds}")
        for each in rounds:
            fits = each.delivered <= each.asked <= len(cluster) and cluster.issuperset(each.counted)
            if not fits or each.steps > each.asked * self.most_steps:
                raise Malformed(f"a round that the cluster of edge {edge} cannot have had")
        return rounds

    def _declare(self, next_lease: pb.CheckIn, now: float) -> None:
        """Take the declared samples of a cluster, where clients bring their own data."""
        edge, examples = next_lease.node, next_lease.examples
        known = edge in self.cloud.examples and examples != self.cloud.examples[edge]
        if self.most_examples is not None and known and 0 < examples <= self.most_examples:
            self.cloud.handle(ClusterChange(edge, examples, now))

    def _charged(self, edge: int, body: bytes) -> None:
        self.charges = {**self.charges, edge: self.check_charges(edge, body)}
        self._look_at_budgets()

    def _look_at_budgets(self) -> None:
        spent = len(self.charges) == len(self.clusters) and not any(c.able for c in self.charges.values())
        if self.plan is not None and spent and not self.cloud.leases and not self.finished:
            self._finish(f"{self.plan.budget.text} used up")
        for name, share in self.used().items():
            if share >= 1 and not self.finished:
                self._finish(f"{self.limits[name]:,} {name.replace('_', ' ')} used up")
        if self.record is not None and not self.finished:
            due = self.ledger.communications // self.record.goals.every
            if due > self.evaluated:
                self.evaluated = due
                self._want()

    def _finish(self, reason: str) -> None:
        self.finished = reason
        last = next(reversed(self.wanted.values()), None)
        row = self.record.evaluations[-1] if self.record and self.record.evaluations else {}
        latest = last.totals | {"version": last.version} if last else row
        now = (self.version, self.ledger.communications)
        if self.record is not None and (latest.get("version"), latest.get("communications")) != now:
            self._want()
        self._stop_if_complete()

    def _want(self) -> None:
        """Ask for an evaluation of the model as it is."""
        if len(self.wanted) < MOST_WANTED or self.finished:
            self.wants += 1
            self.wanted[self.wants] = Wanted(self.version, self.totals(), self.weights)

    def _evaluated(self, body: bytes, now: float) -> list[CloudEffect]:
        told = json.loads(body)
        wanted = self.wanted.pop(told["index"], None)
        if wanted is None or self.record is None:
            return []  # it came twice: a restarted cloud asks again
        row = self.record.add(wanted.totals, wanted.version, told["values"])
        self.books.log(row["virtual_s"], "evaluate", {k: v for k, v in row.items() if k != "virtual_s"})
        if self.finished:
            self._stop_if_complete()
            return []
        self.now = now
        if self.record.success is not None:
            self._finish(self.record.success)
        return []

    def _stop_if_complete(self) -> None:
        if self.complete:
            totals = {name: value for name, value in self.totals().items() if name != "virtual_s"}
            ended = {"reason": self.finished, "digest": digest(self.weights)}
            self.books.log(self.now, "stop", {**ended, **totals})

    def _read(self, given: Input, now: float) -> _Given:
        """Return what an input holds."""
        wire, body = self.wire, given.body
        match given.kind:
            case "check_in":
                asked = wire.read(pb.CheckIn, body)
                return _Given(wire.check_in(asked, now), (), asked)
            case "upload":
                sent = wire.read(pb.Upload, body)
                lease = self.cloud.leases.get(sent.lease_id)
                own = lease if lease is not None and lease.edge == given.node else None
                upload = wire.upload(sent, self.models.receive(sent.model, own), now)
                measured = self._measured(given.node, sent.rounds)
                return _Given(upload, measured, _next(sent), wire.metrics(sent.metrics))
            case "progress":
                return _Given(wire.progress(wire.read(pb.Lease, body), now))
            case "abandon":
                given_up = wire.read(pb.Lease, body)
                measured = self._measured(given.node, given_up.rounds)
                return _Given(wire.abandon(given_up, now), measured, _next(given_up))
            case "hello":
                return _Given(Hello(given.node, now))
            case "slot":
                return _Given(Slot(int(body), now))
            case "expire":
                return _Given(Expire(int(body), now))
            case "measured":
                recall = json.loads(body)
                return _Given(ClassesMeasured(None if recall is None else tuple(recall), now))
            case _:
                raise Malformed(f"an input of unknown kind {given.kind[:20]!r}")


def _next(sent: pb.Upload | pb.Lease) -> pb.CheckIn | None:
    return sent.check_in if sent.HasField("check_in") else None
