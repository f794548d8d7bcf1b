"""Malicious clients: they send other models than they have trained, or learn from other data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from hiflash.core.registry import Key, Part, by_name
from hiflash.messages import Assignment, ClientTask, Weights
from hiflash.seeding import rng

__all__ = ["ATTACKS", "HONEST", "Attack", "Noise", "NotANumber", "Poisoned", "Scale", "draw_malicious"]

Array: TypeAlias = npt.NDArray[Any]
Poisoned: TypeAlias = tuple[Array, Array, list[Array]]


@dataclass(frozen=True)
class Attack:
    """Malicious clients, and what they do: nothing here, and something else in each subclass.

    Workers in other processes get a copy, so attacks must be picklable.
    """

    malicious: frozenset[int] = frozenset()

    def tamper(self, task: Assignment | ClientTask, trained: Weights, base: Weights) -> Weights:
        """Return the model that the client of a task sends: `trained`, unless the client is malicious."""
        if task.client not in self.malicious:
            return trained
        with np.errstate(over="ignore", invalid="ignore"):  # a model that overflows is dropped like NaN
            return self.forge(task, trained, base)

    def forge(self, task: Assignment | ClientTask, trained: Weights, base: Weights) -> Weights:
        """Return the model that a malicious client sends; it has trained `trained` from `base`."""
        return trained

    def poison(self, x: Array, y: Array, indices: Sequence[Array], classes: int) -> Poisoned:
        """Return samples, labels and the sample indices of all clients, as malicious clients change them."""
        return x, y, list(indices)


@dataclass(frozen=True)
class Scale(Attack):
    """Multiplies the change by `factor`; a negative factor turns it round."""

    factor: float = 1.0

    def forge(self, task: Assignment | ClientTask, trained: Weights, base: Weights) -> Weights:
        """Return the base plus the scaled change."""
        return base + np.float32(self.factor) * (trained - base)


@dataclass(frozen=True)
class Noise(Attack):
    """Adds Gaussian noise of a standard `deviation`."""

    deviation: float = 1.0

    def forge(self, task: Assignment | ClientTask, trained: Weights, base: Weights) -> Weights:
        """Return the model with noise: one stream per task, so the same noise wherever it is computed."""
        stream = rng(task.seed, "attack", task.client, task.first_step)
        noise = stream.standard_normal(len(trained), dtype=np.float32)
        return trained + np.float32(self.deviation) * noise


@dataclass(frozen=True)
class NotANumber(Attack):
    """Sends a model of NaN."""

    def forge(self, task: Assignment | ClientTask, trained: Weights, base: Weights) -> Weights:
        """Return NaN in every place."""
        return np.full_like(trained, np.nan)


HONEST = Attack()


def draw_malicious(clients: int, share: float, seed: int) -> frozenset[int]:
    """Return the malicious clients: a `share` of all, rounded to a whole number.

    >>> len(draw_malicious(10, 0.25, seed=0))
    3
    """
    count = math.floor(share * clients + 0.5)
    return frozenset(rng(seed, "malicious").permutation(clients)[:count].tolist())


SHARE = Key(
    "share", float, default=0.2, above=0, high=1, about="share of clients that are malicious, drawn once"
)
SCALE = Key(
    "scale",
    float,
    default=10.0,
    above=0,
    high=1e12,
    about="factor on the change (sign_flip, scale), deviation of the noise",
)

ATTACKS = by_name(
    Part("none", "no client is malicious", lambda config, malicious: HONEST),
    Part(
        "sign_flip",
        "sends the base minus `scale` times the change",
        lambda config, malicious: Scale(malicious, -config.attack.scale),
        keys=(SHARE, SCALE),
    ),
    Part(
        "noise",
        "adds Gaussian noise of the standard deviation `scale`",
        lambda config, malicious: Noise(malicious, config.attack.scale),
        reads=("share", "scale"),
    ),
    Part(
        "scale",
        "sends the base plus `scale` times the change",
        lambda config, malicious: Scale(malicious, config.attack.scale),
        reads=("share", "scale"),
    ),
    Part(
        "nan",
        "sends a model of NaN",
        lambda config, malicious: NotANumber(malicious),
        reads=("share",),
    ),
)
