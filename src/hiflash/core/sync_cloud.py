"""The synchronous cloud: rounds of participants that are granted together and averaged together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hiflash.core.aggregation import MEAN, Rule
from hiflash.core.cloud import Cloud, Lease
from hiflash.core.optimizers import CloudOptimizer
from hiflash.core.selection import Selection
from hiflash.core.state import Attempt, record
from hiflash.messages import (
    CheckIn,
    CloudEffect,
    Measure,
    Measured,
    Proceed,
    Progress,
    RoundApplied,
    Slot,
    Upload,
    Verdict,
    Weights,
)
from hiflash.weights import finite

__all__ = ["Combine", "OpenRound", "SyncCloud"]

Combine = Callable[[Mapping[int, Weights], Weights, int], Weights]
"""Takes the models of a round by edge, their base, and the number of the round. Returns the next model."""


@record
@dataclass(frozen=True, slots=True, eq=False)
class OpenRound:
    """A round under way: the number of grants, the leases without an upload so far, and the uploads."""

    size: int
    missing: frozenset[int]
    deadline: float
    models: Mapping[int, tuple[int, Weights, int, float]] = field(default_factory=dict)

    def without(self, lease_id: int) -> OpenRound:
        """Return the round with one lease removed from `missing`."""
        return replace(self, missing=self.missing - {lease_id})


class SyncCloud(Cloud):
    """Grants all edges of a round together, and combines their models by a rule when all have arrived.

    `selection` chooses the edges. At its deadline a round closes with the models that have arrived. If they
    are fewer than the `quorum` or than the rule accepts, or if the result is not finite, the global model
    stays unchanged. `combine` replaces the rule if the sum of a round is private.
    """

    STATE = (*Cloud.STATE, "rounds", "round", "measuring")

    def __init__(
        self,
        weights: Weights,
        examples: Mapping[int, int],
        *,
        selection: Selection,
        deadline_s: float = math.inf,
        quorum: float = 1.0,
        rule: Rule = MEAN,
        optimizer: CloudOptimizer | None = None,
        combine: Combine | None = None,
        **limits: Any,
    ) -> None:
        super().__init__(weights, examples, **limits)
        self.selection = selection
        self.deadline_s = deadline_s
        self.quorum = quorum
        self.rule = rule
        self.optimizer = optimizer or CloudOptimizer()
        self.combine = combine
        self.rounds = 0
        self.round: OpenRound | None = None
        self.measuring = False

    @property
    def answerable(self) -> bool:
        """Return whether a round can start."""
        return bool(self.waiting) and self.round is None and not self.measuring

    @property
    def deadline(self) -> float:
        """Return when the open round closes even if uploads are missing."""
        return math.inf if self.round is None else self.round.deadline

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state, the selection's and the optimiser's included."""
        return super().snapshot() | {
            "selection": self.selection.snapshot(),
            "optimizer": self.optimizer.snapshot(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot."""
        super().restore(state)
        self.selection.restore(state["selection"])
        self.optimizer.restore(state["optimizer"])

    def _answer_check_in(self, check_in: CheckIn) -> list[CloudEffect]:
        return []  # answered when the next round starts

    def _slot(self, slot: Slot) -> list[CloudEffect]:
        effects: list[CloudEffect] = []
        if self.round is not None and slot.now >= self.round.deadline:
            effects += self._close_round(slot.now)
        if self.answerable:
            effects += self._next_round(slot.now)
        return effects

    def _next_round(self, now: float) -> list[CloudEffect]:
        """Open a round, or ask for the measurement that its selection depends on."""
        if self.selection.wants_recall(self.rounds + 1):
            self.measuring = True
            return [Measure(self.version, now)]
        return self._open_round(now)

    def _measured(self, event: Measured) -> list[CloudEffect]:
        if not self.measuring:
            return []  # not asked for, or already answered
        self.measuring = False
        self.selection.observe(event.recall)
        return self._open_round(event.now) if self.answerable else []

    def _open_round(self, now: float) -> list[CloudEffect]:
        chosen = self._choose(self.rounds + 1)
        self.rounds += 1
        grants = [self._grant(edge, math.inf, now) for edge in chosen]
        self.round = OpenRound(
            size=len(grants),
            missing=frozenset(grant.lease_id for grant in grants),
            deadline=now + self.deadline_s,
        )
        return list(grants) if grants else self._close_round(now)  # a private round may have noise only

    def _choose(self, number: int) -> list[int]:
        """Return the participants of a round; if the selection fails, its state stays as before."""
        with Attempt(self.selection):
            return self.selection.choose(self._idle, number)

    def _progress(self, call: Progress) -> list[CloudEffect]:
        return [Proceed(call.edge, call.lease_id, call.now)]

    def _take(self, lease: Lease, upload: Upload, update: Weights) -> tuple[Verdict, list[CloudEffect]]:
        if self.round is None or lease.lease_id not in self.round.missing:
            return self._rejection(upload, 0, "late"), []
        arrived = (lease.edge, update, upload.examples, upload.steps)
        models = {**self.round.models, lease.lease_id: arrived}
        self.round = replace(self.round.without(lease.lease_id), models=models)
        verdict = Verdict(lease.edge, lease.lease_id, "buffered", 0, self.version, "", upload.now)
        return verdict, self._close_round(upload.now) if not self.round.missing else []

    def _dropped(self, lease: Lease, now: float) -> list[CloudEffect]:
        if self.round is None or lease.lease_id not in self.round.missing:
            return []
        self.round = self.round.without(lease.lease_id)
        return self._close_round(now) if not self.round.missing else []

    def _close_round(self, now: float) -> list[CloudEffect]:
        closing, self.round = self.round, None
        if closing is None:
            return []
        effects: list[CloudEffect] = []
        for lease_id in sorted(closing.missing):
            effects += self._end(self.leases[lease_id], "late", now)
        # By edge, not by arrival: float addition is not associative.
        order = tuple(sorted(closing.models, key=lambda lease_id: closing.models[lease_id][0]))
        least = self.rule.least if self.combine is None else 0
        if len(order) < max(least, self.quorum * closing.size - 1e-9):
            return [*effects, RoundApplied(self.version, (), order, now)]
        with Attempt(self.optimizer) as attempt:
            stepped = self._step([closing.models[lease_id] for lease_id in order])
        if not finite(stepped):
            attempt.undo()
            return [*effects, RoundApplied(self.version, (), order, now)]
        self.weights = stepped
        self.version += 1
        return [*effects, RoundApplied(self.version, order, (), now)]

    def _step(self, models: Sequence[tuple[int, Weights, int, float]]) -> Weights:
        """Return the next global model after a round with these models, samples and steps."""
        with np.errstate(over="ignore", invalid="ignore"):  # the caller checks the result
            # Only rounds change the global model, so it is still the base of all these models.
            if self.combine is not None:
                combined = self.combine({edge: w for edge, w, _, _ in models}, self.weights, self.rounds)
            else:
                _, weights, counts, steps = zip(*models, strict=True)
                combined = self.rule.combine(weights, counts, self.weights, steps)
            return self.optimizer.step(self.weights, self.side.correct(combined))
