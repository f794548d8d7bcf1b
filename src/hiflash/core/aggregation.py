"""Aggregation rules: plain functions that make one model of many.

Median and trimmed mean: Yin et al. 2018. Krum and multi-Krum: Blanchard et al. 2017. One set of rules
serves edges and the synchronous cloud. Models come sorted by id: sums are taken, and ties broken, in
that order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hiflash.core.registry import Key, Part, by_name
from hiflash.messages import ClientUpdate, Weights
from hiflash.weights import finite, weighted_mean

__all__ = [
    "AGGREGATES",
    "MEAN",
    "Krum",
    "Mean",
    "Median",
    "NormClip",
    "Rule",
    "TrimmedMean",
    "clip_towards",
    "combine_clients",
    "krum",
    "mean_steps",
    "trimmed_mean",
]

COLUMNS = 1 << 16  # coordinates sorted at once: a copy of all models in double precision may not fit


class Rule(Protocol):
    """Makes one model of many. Workers in other processes get a copy, so rules must be picklable."""

    @property
    def least(self) -> int:
        """Return the smallest number of models that the rule accepts."""
        ...

    def combine(
        self, models: Sequence[Weights], counts: Sequence[int], base: Weights, steps: Sequence[float] = ()
    ) -> Weights:
        """Return the combination of at least `least` finite models, all trained from `base`.

        `counts` and `steps` have the samples and the local steps behind each model.
        """
        ...


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean, weighted by samples."""

    least = 1

    def combine(
        self, models: Sequence[Weights], counts: Sequence[int], base: Weights, steps: Sequence[float] = ()
    ) -> Weights:
        """Return the mean."""
        if len(models) == 1:  # it is its own mean; flat methods have one client per edge
            return models[0]
        return weighted_mean(models, counts)


@dataclass(frozen=True, slots=True)
class Median:
    """The median of every coordinate."""

    least = 1

    def combine(
        self, models: Sequence[Weights], counts: Sequence[int], base: Weights, steps: Sequence[float] = ()
    ) -> Weights:
        """Return the median; of an even number, the mean of the two in the middle."""
        return trimmed_mean(models, (len(models) - 1) // 2)


@dataclass(frozen=True, slots=True)
class TrimmedMean:
    """The mean of every coordinate without a share of its smallest and largest values."""

    trim: float
    least = 1

    def combine(
        self, models: Sequence[Weights], counts: Sequence[int], base: Weights, steps: Sequence[float] = ()
    ) -> Weights:
        """Return the trimmed mean."""
        return trimmed_mean(models, math.floor(self.trim * len(models) + 1e-9))  # 0.29 * 100 is below 29


@dataclass(frozen=True, slots=True)
class Krum:
    """The mean of the `keep` models with the nearest neighbours, against `byzantine` bad ones."""

    byzantine: int = 0
    keep: int = 1

    @property
    def least(self) -> int:
        """Return the smallest number of models that the rule accepts.

        >>> Krum(byzantine=2).least
        7
        """
        return max(2 * self.byzantine + 3, self.byzantine + 2 + self.keep)

    def combine(
        self, models: Sequence[Weights], counts: Sequence[int], base: Weights, steps: Sequence[float] = ()
    ) -> Weights:
        """Return the mean of the chosen models."""
        return krum(models, self.byzantine, self.keep)


@dataclass(frozen=True, slots=True)
class NormClip:
    """The mean, weighted by samples, of models whose changes are clipped to a norm."""

    clip_norm: float
    least = 1

    def combine(
        self, models: Sequence[Weights], counts: Sequence[int], base: Weights, steps: Sequence[float] = ()
    ) -> Weights:
        """Return the mean of the clipped models."""
        return MEAN.combine([clip_towards(base, model, self.clip_norm) for model in models], counts, base)


MEAN = Mean()


def combine_clients(
    updates: Sequence[ClientUpdate], quorum: int, base: Weights, rule: Rule = MEAN
) -> tuple[Weights, tuple[int, ...]] | None:
    """Return the combination of the usable client models, and their clients; None below the quorum.

    One NaN spoils a mean for ever, so models that are not finite are left out, and the weights of the others
    are renormalised. `base` is the model that the clients started from.
    """
    usable = sorted((u for u in updates if finite(u.weights)), key=lambda u: u.client)
    if len(usable) < max(quorum, rule.least):
        return None
    model = rule.combine(
        [u.weights for u in usable], [u.examples for u in usable], base, [u.steps for u in usable]
    )
    return model, tuple(u.client for u in usable)


def mean_steps(updates: Sequence[ClientUpdate]) -> float:
    """Return the mean of the local steps behind client models, weighted by samples."""
    return sum(u.examples * u.steps for u in updates) / sum(u.examples for u in updates)


def trimmed_mean(models: Sequence[Weights], trimmed: int) -> Weights:
    """Return the mean of every coordinate without its `trimmed` smallest and largest values.

    >>> trimmed_mean([np.float32([v]) for v in (-100, 1, 2, 6, 9)], 1).tolist()
    [3.0]
    """
    size = len(models[0])
    combined = np.empty(size, np.float32)
    for start in range(0, size, COLUMNS):
        span = slice(start, start + COLUMNS)
        values = np.sort(np.stack([model[span] for model in models]).astype(np.float64), axis=0)
        combined[span] = values[trimmed : len(models) - trimmed].mean(axis=0)
    return combined


def krum(models: Sequence[Weights], byzantine: int, keep: int) -> Weights:
    """Return the mean of the `keep` models that are closest to their n - byzantine - 2 nearest neighbours."""
    nearest = len(models) - byzantine - 2
    # The first entry of a sorted row is the distance of a model to itself.
    scores = np.sort(_squared_distances(models), axis=1)[:, 1 : nearest + 1].sum(axis=1)
    chosen = sorted(np.argsort(scores, kind="stable")[:keep].tolist())
    return weighted_mean([models[index] for index in chosen], [1] * keep)


def clip_towards(base: Weights, model: Weights, clip_norm: float) -> Weights:
    """Return the model, moved back towards `base` if it is further than `clip_norm` away from it."""
    change = model.astype(np.float64) - base
    distance = math.sqrt(float(np.square(change).sum()))
    if distance <= clip_norm:
        return model
    return (base + change * (clip_norm / distance)).astype(np.float32)


def _squared_distances(models: Sequence[Weights]) -> npt.NDArray[np.float64]:
    distances = np.zeros((len(models), len(models)))
    for i, model in enumerate(models):
        wide = model.astype(np.float64)
        for j in range(i):
            distances[i, j] = distances[j, i] = float(np.square(wide - models[j]).sum())
    return distances


def _no_norm(config: Any, section: str) -> str | None:
    if getattr(config, section).clip_norm != "none":
        return None
    return f'{section}.aggregate = "norm_clip" needs {section}.clip_norm, a number > 0'


TRIM = Key(
    "trim",
    float,
    default=0.2,
    low=0,
    below=0.5,
    about="trimmed_mean: share left out at either end, rounded down to whole models",
)
BYZANTINE = Key(
    "byzantine",
    int,
    default=1,
    low=0,
    high=1_000_000,
    about="krum: f, bad models to withstand; a round needs 2 f + 3",
)
KRUM_KEEP = Key(
    "krum_keep",
    int,
    default=1,
    low=1,
    high=10_000_000,
    about="krum: best models to average, at most n - f - 2",
)
CLIP_NORM = Key(
    "clip_norm",
    float,
    default="none",
    above=0,
    high=1e12,
    words=("none",),
    about="norm_clip: clip each model's change to this norm",
)

AGGREGATES = by_name(
    Part("mean", "the mean, weighted by samples", lambda config, section: MEAN),
    Part("median", "the median of every coordinate", lambda config, section: Median()),
    Part(
        "trimmed_mean",
        "the mean of every coordinate without the share `trim` at either end",
        lambda config, section: TrimmedMean(getattr(config, section).trim),
        keys=(TRIM,),
    ),
    Part(
        "krum",
        "the mean of the `krum_keep` models closest to their neighbours, against `byzantine` bad ones",
        lambda config, section: Krum(getattr(config, section).byzantine, getattr(config, section).krum_keep),
        keys=(BYZANTINE, KRUM_KEEP),
    ),
    Part(
        "norm_clip",
        "the mean, weighted by samples, of models whose changes are clipped to `clip_norm`",
        lambda config, section: NormClip(getattr(config, section).clip_norm),
        keys=(CLIP_NORM,),
        problem=_no_norm,
    ),
)
