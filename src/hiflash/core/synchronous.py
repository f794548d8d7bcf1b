"""The synchronous cloud: rounds of participants that are granted together and averaged together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hiflash.core.cloud import Cloud, Lease
from hiflash.messages import CheckIn, Proceed, Progress, RoundApplied, Slot, Upload, Verdict, Weights
from hiflash.seeding import rng
from hiflash.weights import weighted_mean

__all__ = ["OpenRound", "SyncCloud"]


@dataclass(frozen=True, slots=True, eq=False)
class OpenRound:
    """A round under way: how many were granted, which leases still owe an upload, what has come."""

    size: int
    missing: frozenset[int]
    deadline: float
    models: Mapping[int, tuple[int, Weights, int]] = field(default_factory=dict)

    def without(self, lease_id: int) -> OpenRound:
        """Return the round when nothing is expected of a lease any more."""
        return replace(self, missing=self.missing - {lease_id})


class SyncCloud(Cloud):
    """Grants `participants` drawn edges at once and averages them, weighted by samples, when all are in.

    With a deadline a round closes with whoever is in by then if that is at least `quorum` of it, and
    leaves the model unchanged otherwise.
    """

    STATE = (*Cloud.STATE, "rounds", "round")

    def __init__(
        self,
        weights: Weights,
        examples: Mapping[int, int],
        *,
        participants: int,
        seed: int,
        deadline_s: float = math.inf,
        quorum: float = 1.0,
        **limits: float,
    ) -> None:
        super().__init__(weights, examples, **limits)
        self.participants = participants
        self.seed = seed
        self.deadline_s = deadline_s
        self.quorum = quorum
        self.rounds = 0
        self.round: OpenRound | None = None

    @property
    def answerable(self) -> bool:
        """Return whether a round can start."""
        return bool(self.waiting) and self.round is None

    @property
    def deadline(self) -> float:
        """Return when the open round closes whoever is missing."""
        return math.inf if self.round is None else self.round.deadline

    def _answer_check_in(self, check_in: CheckIn) -> list[Any]:
        return []  # answered when the next round starts

    def _slot(self, slot: Slot) -> list[Any]:
        effects: list[Any] = []
        if self.round is not None and slot.now >= self.round.deadline:
            effects += self._close_round(slot.now)
        if self.round is None and self.waiting:
            effects += self._open_round(slot.now)
        return effects

    def _open_round(self, now: float) -> list[Any]:
        idle = self._idle
        self.rounds += 1
        stream = rng(self.seed, "participants", self.rounds)
        chosen = sorted(stream.choice(idle, size=min(self.participants, len(idle)), replace=False).tolist())
        grants = [self._grant(edge, math.inf, now) for edge in chosen]
        self.round = OpenRound(
            size=len(grants),
            missing=frozenset(grant.lease_id for grant in grants),
            deadline=now + self.deadline_s,
        )
        return list(grants)

    def _progress(self, call: Progress) -> list[Any]:
        return [Proceed(call.edge, call.lease_id, call.now)]

    def _take(self, lease: Lease, upload: Upload) -> tuple[Verdict, list[Any]]:
        if self.round is None or lease.lease_id not in self.round.missing:
            return self._rejection(upload, 0, "late"), []
        models = {**self.round.models, lease.lease_id: (lease.edge, upload.weights, upload.examples)}
        self.round = replace(self.round.without(lease.lease_id), models=models)
        verdict = Verdict(lease.edge, lease.lease_id, "buffered", 0, self.version, "", upload.now)
        return verdict, self._close_round(upload.now) if not self.round.missing else []

    def _dropped(self, lease: Lease, now: float) -> list[Any]:
        if self.round is None or lease.lease_id not in self.round.missing:
            return []
        self.round = self.round.without(lease.lease_id)
        return self._close_round(now) if not self.round.missing else []

    def _close_round(self, now: float) -> list[Any]:
        closing, self.round = self.round, None
        if closing is None:
            return []
        effects: list[Any] = []
        for lease_id in sorted(closing.missing):
            effects += self._end(self.leases[lease_id], "late", now)
        # By edge, not by arrival: float addition is not associative.
        order = tuple(sorted(closing.models, key=lambda lease_id: closing.models[lease_id][0]))
        if not order or len(order) < self.quorum * closing.size - 1e-9:
            return [*effects, RoundApplied(self.version, (), order, now)]
        models = [closing.models[lease_id] for lease_id in order]
        self.weights = weighted_mean([model for _, model, _ in models], [count for _, _, count in models])
        self.version += 1
        return [*effects, RoundApplied(self.version, order, (), now)]
