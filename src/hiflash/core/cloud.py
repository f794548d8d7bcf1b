"""The cloud as a state machine: the global model, its version, and the open leases.

A lease is the right to upload once for one grant. With leases an upload counts exactly once, and the cloud
can forget a dead edge. A lease also holds the staleness threshold. `Cloud` keeps the leases; `AsyncCloud` and
`SyncCloud` decide when to grant them and what to do with uploads.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, assert_never

import numpy as np

from hiflash.core.algorithms.algorithm import CloudSide
from hiflash.core.compression import Downlink
from hiflash.core.state import Attempt, Stateful, record
from hiflash.errors import ProtocolError
from hiflash.messages import (
    Abandon,
    CheckIn,
    CloudEffect,
    CloudEvent,
    ClusterChange,
    EdgeCosts,
    Expire,
    Expired,
    Extra,
    Grant,
    Hello,
    Measured,
    Progress,
    Refuse,
    Slot,
    Upload,
    Verdict,
    Weights,
    Welcome,
)
from hiflash.weights import finite, norm

__all__ = ["Cloud", "Lease"]

COSTS_RETRY_S = 1.0
VERDICTS_KEPT = 10_000  # an edge repeats its last upload, not one from ten thousand leases ago


@record
@dataclass(slots=True, eq=False)  # frozen ones take four times as long to make; nothing changes a lease
class Lease:
    """An open grant: its edge, base model and threshold.

    `received` is the base as it reached the edge: the same array unless downloads are compressed. `extra`
    went with it.
    """

    edge: int
    request_id: int
    lease_id: int
    base_version: int
    base: Weights
    received: Weights
    threshold: float
    granted_at: float
    eta: float
    extra: Extra = field(default_factory=dict)


class Cloud(Stateful):
    """The leases, and the checks of every upload under any schedule. Events enter through `handle` only."""

    STATE: ClassVar[tuple[str, ...]] = (
        "weights",
        "version",
        "examples",
        "leases",
        "waiting",
        "requests",
        "refusals",
        "costs",
        "verdicts",
        "next_lease",
    )

    def __init__(
        self,
        weights: Weights,
        examples: Mapping[int, int],
        *,
        norm_bound: float = math.inf,
        download: Downlink | None = None,
        side: CloudSide | None = None,
    ) -> None:
        self.weights = weights
        self.version = 0
        self.examples = dict(examples)  # declared at association: the most an upload may claim
        self.norm_bound = norm_bound
        self.download = download or Downlink()
        self.side = side or CloudSide()  # the cloud's half of the clients' algorithm
        self.leases: dict[int, Lease] = {}
        self.waiting: dict[int, CheckIn] = {}
        self._idle: list[int] = []  # sorted keys of `waiting`; sorting a thousand per slot is slow
        self.requests: dict[int, int] = {}
        self.refusals: dict[int, Refuse] = {}  # the last one of each edge, to repeat it if it got lost
        self.costs: dict[int, EdgeCosts] = {}
        self.verdicts: dict[int, Verdict] = {}
        self.next_lease = 1

    def handle(self, event: CloudEvent) -> list[CloudEffect]:
        """Take one event and return its effects in order; an invalid event changes nothing."""
        self._check(event)
        effects: list[CloudEffect] = []
        match event:  # the most frequent first
            case Slot():
                effects += self._slot(event)
            case Upload():
                effects += self._upload(event)
            case CheckIn():
                effects += self._check_in(event)
            case Abandon():
                effects += self._abandon(event)
            case Progress():
                effects += self._progress(event)
            case ClusterChange():
                self._recluster(event)
            case Measured():
                effects += self._measured(event)
            case Expire():
                effects += self._expire(event)
            case Hello():
                self.download.forget(event.edge)  # it may have lost the model that changes refer to
                effects.append(Welcome(event.edge, self.requests.get(event.edge, 0), event.now))
            case _:
                assert_never(event)
        return effects

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state, including the edges' copies of the model."""
        return super().snapshot() | {"download": self.download.snapshot(), "side": self.side.snapshot()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot."""
        super().restore(state)
        self.download.restore(state["download"])
        self.side.restore(state["side"])
        self._idle = sorted(self.waiting)

    @property
    def answerable(self) -> bool:
        """Return whether a `Slot` now would answer an edge."""
        return bool(self.waiting)

    @property
    def deadline(self) -> float:
        """Return the latest time at which the cloud needs a `Slot`."""
        return math.inf

    def stale(self, lease_id: int) -> bool:
        """Return whether the cloud would certainly reject an upload under this lease."""
        lease = self.leases.get(lease_id)
        return lease is None or self.version - lease.base_version > lease.threshold

    # Decisions of a schedule: subclasses override these.

    def _answer_check_in(self, check_in: CheckIn) -> list[CloudEffect]:
        raise NotImplementedError

    def _slot(self, slot: Slot) -> list[CloudEffect]:
        raise NotImplementedError

    def _progress(self, call: Progress) -> list[CloudEffect]:
        raise NotImplementedError

    def _take(self, lease: Lease, upload: Upload, update: Weights) -> tuple[Verdict, list[CloudEffect]]:
        raise NotImplementedError

    def _measured(self, event: Measured) -> list[CloudEffect]:
        """Return the effects of a measurement; there are none unless the schedule asked for it."""
        return []

    def _dropped(self, lease: Lease, now: float) -> list[CloudEffect]:
        """Return the effects of a lease that ends without a usable upload."""
        return []

    # The same for all schedules.

    def _check(self, event: CloudEvent) -> None:
        """Raise if an event comes from an unknown edge, before anything changes."""
        match event:
            case Slot() | Progress() | Measured() | Expire():
                return
            case Upload() | Abandon():
                known = event.check_in is None or event.edge in self.examples
            case CheckIn() | ClusterChange() | Hello():
                known = event.edge in self.examples
            case _:
                assert_never(event)
        if not known:
            raise ProtocolError(f"edge {event.edge} is not part of this federation")

    def _check_in(self, check_in: CheckIn) -> list[CloudEffect]:
        edge = check_in.edge
        held = next((lease for lease in self.leases.values() if lease.edge == edge), None)
        if held is not None and held.request_id == check_in.request_id:
            return [self._grant_of(held)]  # the grant got lost: repeat it
        if check_in.request_id <= self.requests.get(edge, 0):
            refusal = self.refusals.get(edge)
            if refusal is not None and refusal.request_id == check_in.request_id:
                return [refusal._replace(now=check_in.now)]  # the refusal got lost: repeat it
            if check_in.request_id == self.requests.get(edge) and edge not in self.waiting:
                # Its lease has ended before the edge heard of it: without an answer it would ask for ever.
                return [Refuse(edge, check_in.request_id, "expired", 0.0, check_in.now)]
            return []  # a replayed or reordered request changes nothing
        if not check_in.costs.valid:
            # NaN cannot be sorted. Whoever declares it may ask again, but not at once.
            return [Refuse(edge, check_in.request_id, "costs", COSTS_RETRY_S, check_in.now)]
        effects: list[CloudEffect] = []
        if held is not None:  # the edge restarted and does not know its lease any more
            effects += self._end(held, "superseded", check_in.now)
            self.download.forget(edge)
        self.requests[edge] = check_in.request_id
        self.costs[edge] = check_in.costs
        if edge not in self.waiting:
            insort(self._idle, edge)
        self.waiting[edge] = check_in
        return effects + self._answer_check_in(check_in)

    def _grant(self, edge: int, threshold: float, now: float) -> Grant:
        check_in = self._stop_waiting(edge)
        lease = Lease(
            edge=edge,
            request_id=check_in.request_id,
            lease_id=self.next_lease,
            base_version=self.version,
            base=self.weights,
            received=self.download.send(edge, self.weights),
            threshold=threshold,
            granted_at=now,
            eta=now + check_in.costs.duration_s,
            extra=self.side.grant(),
        )
        self.next_lease += 1
        self.leases[lease.lease_id] = lease
        return self._grant_of(lease)

    def _refuse(
        self, edge: int, reason: Literal["refused", "waited"], retry_after: float, now: float
    ) -> Refuse:
        check_in = self._stop_waiting(edge)
        self.refusals[edge] = Refuse(edge, check_in.request_id, reason, retry_after, now)
        return self.refusals[edge]

    def _stop_waiting(self, edge: int) -> CheckIn:
        del self._idle[bisect_left(self._idle, edge)]
        return self.waiting.pop(edge)

    @staticmethod
    def _grant_of(lease: Lease) -> Grant:
        return Grant(
            edge=lease.edge,
            request_id=lease.request_id,
            lease_id=lease.lease_id,
            base_version=lease.base_version,
            threshold=lease.threshold,
            weights=lease.received,
            now=lease.granted_at,
            extra=lease.extra,
        )

    def _upload(self, upload: Upload) -> list[CloudEffect]:
        effects = self._judge(upload)
        check_in = upload.check_in
        if check_in is not None and check_in.edge == upload.edge:
            effects += self._check_in(check_in.at(upload.now))
        return effects

    def _judge(self, upload: Upload) -> list[CloudEffect]:
        lease = self.leases.get(upload.lease_id)
        if lease is None or lease.edge != upload.edge:
            known = self.verdicts.get(upload.lease_id)
            if known is not None and known.edge == upload.edge:
                return [known]  # a repeat gets the first verdict and changes nothing
            return [self._rejection(upload, 0, "no such lease")]  # another edge's lease stays usable
        staleness = self.version - lease.base_version
        # Stale first: a simulator need not compute a model that is refused anyway.
        model = "stale" if staleness > lease.threshold else self._usable(lease, upload)
        if isinstance(model, str):
            verdict, follow = self._rejection(upload, staleness, model), self._dropped(lease, upload.now)
        else:
            verdict, follow = self._accept(lease, upload, model)
        self._close(lease, verdict)
        return [verdict, *follow]

    def _accept(self, lease: Lease, upload: Upload, model: Weights) -> tuple[Verdict, list[CloudEffect]]:
        """Let the schedule take a usable upload; its arrays count only if it is not rejected after all."""
        if not upload.extra:
            return self._take(lease, upload, model)
        with Attempt(self.side) as attempt:
            self.side.accept(upload.edge, upload.extra, upload.examples)
            verdict, follow = self._take(lease, upload, model)
        if verdict.status == "rejected":
            attempt.undo()
        return verdict, follow

    def _usable(self, lease: Lease, upload: Upload) -> Weights | str:
        """Return the model of an upload, or the reason to reject it."""
        update, examples = upload.weights, upload.examples
        if not (type(examples) is int and 0 < examples <= self.examples[lease.edge]):
            return "examples"
        if not (
            isinstance(update, np.ndarray)
            and update.dtype == np.float32
            and update.shape == self.weights.shape
        ):
            return "shape"
        if not finite(update):
            return "not finite"
        if not 1 <= upload.steps < math.inf:
            return "steps"
        if upload.extra and not self.side.usable(upload.extra):
            return "extra"
        if not math.isinf(self.norm_bound):
            with np.errstate(over="ignore"):
                distance = norm(update - lease.base)
            if not distance <= self.norm_bound:
                return "norm"
        return update

    def _rejection(self, upload: Upload, staleness: int, reason: str) -> Verdict:
        return Verdict(upload.edge, upload.lease_id, "rejected", staleness, self.version, reason, upload.now)

    def _abandon(self, event: Abandon) -> list[CloudEffect]:
        lease = self.leases.get(event.lease_id)
        effects: list[CloudEffect] = []
        if lease is not None and lease.edge == event.edge:
            effects += self._end(lease, "abandoned", event.now)
        if event.check_in is not None and event.check_in.edge == event.edge:
            effects += self._check_in(event.check_in.at(event.now))
        return effects

    def _recluster(self, change: ClusterChange) -> None:
        self.examples[change.edge] = change.examples
        if not change.examples:  # no client is left to train: drop the check-in
            if change.edge in self.waiting:
                self._stop_waiting(change.edge)
            self.costs.pop(change.edge, None)

    def _expire(self, event: Expire) -> list[CloudEffect]:
        lease = self.leases.get(event.lease_id)
        return [] if lease is None else self._end(lease, "expired", event.now)

    def _end(self, lease: Lease, reason: str, now: float) -> list[CloudEffect]:
        """End a lease without an upload; a late upload under it gets the same reason."""
        staleness = self.version - lease.base_version
        self._close(
            lease,
            Verdict(lease.edge, lease.lease_id, "rejected", staleness, self.version, reason, now),
        )
        return [Expired(lease.edge, lease.lease_id, reason, now), *self._dropped(lease, now)]

    def _close(self, lease: Lease, verdict: Verdict) -> None:
        self.leases.pop(lease.lease_id, None)
        self.verdicts[lease.lease_id] = verdict
        if len(self.verdicts) > VERDICTS_KEPT:
            del self.verdicts[next(iter(self.verdicts))]
