"""The asynchronous cloud: it mixes in every edge model on arrival and limits its staleness."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from hiflash.core.cloud import Cloud, Lease
from hiflash.core.mixing import Mixing
from hiflash.core.state import Attempt
from hiflash.core.thresholds.policy import REFUSE, CloudView, LeaseView, ThresholdPolicy, admits
from hiflash.errors import ProtocolError
from hiflash.messages import (
    Cancel,
    CheckIn,
    CloudEffect,
    Proceed,
    Progress,
    RoundApplied,
    Slot,
    Upload,
    Verdict,
    Weights,
)
from hiflash.seeding import Streams, rng
from hiflash.weights import finite

__all__ = ["ENFORCEMENTS", "AsyncCloud"]

ENFORCEMENTS = ("admit", "discard", "cancel")


class AsyncCloud(Cloud):
    """Scheduler and updater of the paper in one strictly sequential state machine.

    If `slotted`, each `Slot` answers one waiting edge, drawn uniformly. Otherwise every check-in is answered
    at once, or, under a limit of `concurrency` open leases, at a `Slot`: it draws and answers waiting edges
    until the limit is reached. A refused edge may ask again after `slot_s`.

    `enforce` says what a threshold does. `admit` grants only if every lease is expected to stay within its
    threshold. `discard` grants always and rejects late uploads. `cancel` is like `discard`, and also stops an
    edge between rounds when its lease is already too stale.
    """

    STATE = (*Cloud.STATE, "buffered")

    def __init__(
        self,
        weights: Weights,
        examples: Mapping[int, int],
        *,
        mixing: Mixing,
        policy: ThresholdPolicy,
        seed: int,
        enforce: str = "admit",
        slot_s: float,
        slotted: bool = True,
        concurrency: float = math.inf,
        cost_unit_s: tuple[float, float] = (1.0, 1.0),
        **limits: Any,
    ) -> None:
        super().__init__(weights, examples, **limits)
        self.mixing = mixing
        self.policy = policy
        self.seed = seed
        self._slots = Streams(seed, "slot")
        self.enforce = enforce
        self.slot_s = slot_s
        self.slotted = slotted
        self.concurrency = concurrency
        self.cost_unit_s = cost_unit_s
        self._first_draw = (-1, 0, 0)  # slot, number of waiting edges, position drawn among them
        self._viewed: tuple[tuple[float, int, int, int], CloudView] | None = None
        self.buffered: tuple[int, ...] = ()  # leases whose updates wait in the mixing rule's buffer

    def view(self, now: float) -> CloudView:
        """Return the cloud as a policy sees it; the view is cached until something changes."""
        state = (now, self.version, self.next_lease, len(self.leases))  # the last two change with the leases
        if self._viewed is None or self._viewed[0] != state:
            leases = [
                LeaseView(held.edge, held.base_version, held.threshold, held.granted_at, max(now, held.eta))
                for held in self.leases.values()
            ]
            view = CloudView(
                now, self.version, tuple(leases), self.costs, self.examples, self.slot_s, self.cost_unit_s
            )
            self._viewed = state, view
        return self._viewed[1]

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state, the policy's and the mixing rule's included."""
        return super().snapshot() | {"policy": self.policy.snapshot(), "mixing": self.mixing.snapshot()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot."""
        super().restore(state)
        self._viewed = None
        self.policy.restore(state["policy"])
        self.mixing.restore(state["mixing"])

    def rescale(self, slot_s: float, cost_unit_s: tuple[float, float]) -> None:
        """Set what a policy's view is measured in; a deployed cloud learns it when its edges are there."""
        self.slot_s, self.cost_unit_s, self._viewed = slot_s, cost_unit_s, None

    @property
    def answerable(self) -> bool:
        """Return whether an edge waits and another lease is allowed."""
        return bool(self.waiting) and len(self.leases) < self.concurrency

    def asked(self, slot: Slot) -> int | None:
        """Return the edge that this slot will answer first, None if it will answer none."""
        return self._idle[self._first(slot.index)] if self.answerable else None

    def _answer_check_in(self, check_in: CheckIn) -> list[CloudEffect]:
        at_once = not self.slotted and self.concurrency == math.inf
        return self._answer(check_in.edge, check_in.now) if at_once else []

    def _slot(self, slot: Slot) -> list[CloudEffect]:
        if self.slotted:
            return self._answer(self._idle[self._first(slot.index)], slot.now) if self.answerable else []
        effects: list[CloudEffect] = []
        stream = rng(self.seed, "slot", slot.index)
        while self.answerable:
            effects += self._answer(self._idle[stream.integers(len(self._idle))], slot.now)
        return effects

    def _first(self, index: int) -> int:
        """Return the position in `_idle` that a slot answers first; it is drawn only once."""
        waiting = len(self._idle)
        if self._first_draw[:2] != (index, waiting):
            place = int(self._slots.once(index).integers(waiting))
            self._first_draw = (index, waiting, place)
        return self._first_draw[2]

    def _answer(self, edge: int, now: float) -> list[CloudEffect]:
        check_in = self.waiting[edge]
        view = self.view(now)
        threshold = self._decide(view, edge)
        reason: Literal["refused", "waited"] | None = None
        if threshold < 0:
            reason = "refused"
        elif self.enforce == "admit":
            eta = now + check_in.costs.duration_s
            if not admits(view, LeaseView(edge, self.version, threshold, now, eta)):
                reason = "waited"
        if reason is not None:
            return [self._refuse(edge, reason, self.slot_s, now)]
        return [self._grant(edge, threshold, now)]

    def _decide(self, view: CloudView, edge: int) -> float:
        """Return the policy's threshold; a policy that fails keeps the state that it had before."""
        before = self.policy.snapshot()
        try:
            return _threshold(self.policy.decide(view, edge), self.policy)
        except BaseException:
            self.policy.restore(before)
            raise

    def _progress(self, call: Progress) -> list[CloudEffect]:
        lease = self.leases.get(call.lease_id)
        if lease is not None and lease.edge != call.edge:
            lease = None  # an edge can neither inspect nor end another edge's lease
        if self.enforce == "cancel" and (lease is None or self.stale(call.lease_id)):
            if lease is not None:
                self._end(lease, "cancelled", call.now)  # `Cancel` tells it: no `Expired` beside it
            return [Cancel(call.edge, call.lease_id, call.now)]
        return [Proceed(call.edge, call.lease_id, call.now)]

    def _take(self, lease: Lease, upload: Upload, update: Weights) -> tuple[Verdict, list[CloudEffect]]:
        staleness = self.version - lease.base_version
        with Attempt(self.mixing) as attempt:
            mixed = self._mix(lease, update, staleness)
        if mixed is None:
            self.buffered = (*self.buffered, lease.lease_id)
            return self._verdict(lease, "buffered", staleness, upload.now), []
        if not finite(mixed):
            attempt.undo()  # a rejected update must not change the rule's state either
            return self._rejection(upload, staleness, "not finite"), []
        self.weights = mixed
        self.version += 1
        follow: list[CloudEffect] = []
        if self.buffered:
            follow = [RoundApplied(self.version, self.buffered, (), upload.now)]
            self.buffered = ()
        return self._verdict(lease, "applied", staleness, upload.now), follow

    def _mix(self, lease: Lease, update: Weights, staleness: int) -> Weights | None:
        """Return the result of the mixing rule; raise if it is neither a model nor None."""
        with np.errstate(over="ignore", invalid="ignore"):
            update = self.side.correct(update)
            mixed = self.mixing.mix(self.weights, update, lease.base, lease.edge, staleness)
        if mixed is None:
            return None
        got = type(mixed).__name__
        if isinstance(mixed, np.ndarray):
            if mixed.shape == self.weights.shape and mixed.dtype.kind == "f":
                return mixed.astype(np.float32, copy=False)
            got = f"{mixed.dtype} of shape {mixed.shape}"
        raise ProtocolError(
            f"{type(self.mixing).__name__}.mix must return the next model, {self.weights.dtype} of shape "
            f"{self.weights.shape}, or None to buffer the update, got {got}"
        )

    def _verdict(
        self, lease: Lease, status: Literal["applied", "buffered"], staleness: int, now: float
    ) -> Verdict:
        return Verdict(lease.edge, lease.lease_id, status, staleness, self.version, "", now)


def _threshold(answer: object, policy: ThresholdPolicy) -> float:
    """Return a policy's answer as a plain number, which checkpoints can hold, if it is a threshold."""
    if isinstance(answer, np.generic):
        answer = answer.item()
    if isinstance(answer, (int, float)) and (answer >= 0 or answer == REFUSE):
        return answer
    raise ProtocolError(
        f"{type(policy).__name__}.decide must return a number >= 0, or {REFUSE} to refuse, "
        f"got {str(answer)[:60]}"
    )
