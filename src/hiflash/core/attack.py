"""Malicious clients: they send other models than they have trained."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hiflash.messages import Assignment, ClientTask, Weights
from hiflash.seeding import rng

__all__ = ["HONEST", "Attack", "draw_malicious"]


@dataclass(frozen=True, slots=True)
class Attack:
    """The malicious clients, and how they change their models. Flipped labels are in the data instead."""

    kind: str = "none"
    scale: float = 1.0
    malicious: frozenset[int] = frozenset()

    def tamper(self, task: Assignment | ClientTask, trained: Weights, base: Weights) -> Weights:
        """Return the model that the client of a task sends: `trained`, unless the client is malicious."""
        if task.client not in self.malicious:
            return trained
        with np.errstate(over="ignore", invalid="ignore"):  # a model that overflows is dropped like NaN
            if self.kind == "sign_flip":
                return base - np.float32(self.scale) * (trained - base)
            if self.kind == "scale":
                return base + np.float32(self.scale) * (trained - base)
            if self.kind == "noise":  # one stream per task: the same noise wherever it is computed
                stream = rng(task.seed, "attack", task.client, task.first_step)
                noise = stream.standard_normal(len(trained), dtype=np.float32)
                return trained + np.float32(self.scale) * noise
            if self.kind == "nan":
                return np.full_like(trained, np.nan)
        return trained


HONEST = Attack()


def draw_malicious(clients: int, share: float, seed: int) -> frozenset[int]:
    """Return the malicious clients: a `share` of all, rounded to a whole number.

    >>> len(draw_malicious(10, 0.25, seed=0))
    3
    """
    count = math.floor(share * clients + 0.5)
    return frozenset(rng(seed, "malicious").permutation(clients)[:count].tolist())
