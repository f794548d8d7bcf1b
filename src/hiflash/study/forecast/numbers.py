"""The stand-in for a model: one number per class, the rounds of training that the class has seen."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hiflash.messages import Weights

__all__ = ["ClassNumbers"]

ROUNDING = 1e-6
"""Relative: numbers are float32, as models are."""


class ClassNumbers:
    """Moves the numbers of classes, and says how far they are from FedAvg's after `rounds` rounds.

    `labels` counts the samples of every client by class; without labels there is one number.
    """

    def __init__(self, labels: npt.NDArray[np.int64] | None, rounds: float) -> None:
        counts = np.ones((1, 1)) if labels is None else labels.sum(axis=0, keepdims=True)
        self.labels = labels
        self.rounds = rounds
        self.overall = counts[0] / counts.sum()  # LD
        self.initial: Weights = np.zeros(len(self.overall), np.float32)

    def trained(self, received: Weights, clients: Sequence[int], rounds: int) -> Weights:
        """Return a model after `rounds` edge rounds at the edge of these clients."""
        return received + np.float32(rounds) * self.step(clients)

    def step(self, clients: Sequence[int]) -> Weights:
        """Return what one edge round adds to every class, `LD^m(c) / LD(c)`; without samples 1."""
        held = None if self.labels is None else self.labels[list(clients)].sum(axis=0)
        if held is None or not held.sum():
            return np.ones_like(self.initial)
        shares = held / held.sum()
        seen = self.overall > 0
        steps: Weights = np.ones_like(self.initial)
        steps[seen] = shares[seen] / self.overall[seen]
        return steps

    def progress(self, weights: Weights) -> float:
        """Return the share of the way to the target: the harmonic mean of the numbers, over S."""
        counted = self.overall > 0
        numbers = weights[counted].astype(np.float64)
        if not (numbers > 0).all():
            return 0.0
        share = 1 / float((self.overall[counted] / numbers).sum()) / self.rounds
        return 1.0 if math.isclose(share, 1, rel_tol=ROUNDING) else share

    def recall(self, weights: Weights) -> tuple[float, ...]:
        """Return for every class a share that rises with its number: its error falls as one over it."""
        numbers = np.maximum(weights, 0).astype(np.float64)
        return tuple((numbers / (1 + numbers)).tolist())
