"""Malicious clients: what they send instead of what they have trained."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hiflash.messages import Assignment, ClientTask, Weights
from hiflash.seeding import rng

__all__ = ["HONEST", "Attack", "draw_malicious"]


@dataclass(frozen=True, slots=True)
class Attack:
    """Who is malicious and in what way. Flipped labels are no matter of models: they are in the data."""

    kind: str = "none"
    scale: float = 1.0
    malicious: frozenset[int] = frozenset()

    def tamper(self, task: Assignment | ClientTask, trained: Weights, base: Weights) -> Weights:
        """Return what the client of a task sends: `trained`, unless it is malicious."""
        if task.client not in self.malicious:
            return trained
        with np.errstate(over="ignore", invalid="ignore"):  # a model that overflows is dropped like NaN
            if self.kind == "sign_flip":
                return base - np.float32(self.scale) * (trained - base)
            if self.kind == "scale":
                return base + np.float32(self.scale) * (trained - base)
            if self.kind == "noise":  # a stream for every task: it cannot matter who computes it, or when
                stream = rng(task.seed, "attack", task.client, task.first_step)
                noise = stream.standard_normal(len(trained), dtype=np.float32)
                return trained + np.float32(self.scale) * noise
            if self.kind == "nan":
                return np.full_like(trained, np.nan)
        return trained


HONEST = Attack()


def draw_malicious(clients: int, share: float, seed: int) -> frozenset[int]:
    """Return which clients are malicious: the nearest whole number to `share` of them.

    >>> len(draw_malicious(10, 0.25, seed=0))
    3
    """
    count = math.floor(share * clients + 0.5)
    return frozenset(rng(seed, "malicious").permutation(clients)[:count].tolist())
