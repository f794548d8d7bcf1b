"""Label histograms that leave a client with noise, and what is made of them afterwards.

A client adds noise to its counts before anybody else sees them. What follows is post-processing, which costs
no privacy: the nearest counts that are not negative and have the total that was sent, as whole numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from hiflash.privacy.noise import Noise, draw, gaussian_sigma, laplace_scale
from hiflash.privacy.randomness import Stream

__all__ = ["DEPLOYED_EPSILON", "HistogramRules", "Histograms", "Release", "histogram_charge", "release_of"]

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

DEPLOYED_EPSILON = 1.0
"""The epsilon of a deployed client that is told nothing else (`privacy.epsilon = "auto"`)."""
SHOWN = 1000  # samples that every client appears to have where its total is hidden
SENSITIVITY = {"sample": (1.0, 1.0), "client": (2.0, math.sqrt(2.0))}
"""How far a histogram can move, in L1 and in L2: by one sample more or less, or from any client to any other.

A sample more changes one count by one. The shares of two clients with no label in common differ by 2 in L1
and by sqrt(2) in L2.
"""


class HistogramRules(Protocol):
    """The keys that decide about histograms: the section `privacy` of a configuration."""

    @property
    def epsilon(self) -> float | Literal["auto", "off"]:
        """Return the privacy loss of a histogram, or a word."""
        ...

    @property
    def noise(self) -> Noise:
        """Return the distribution of the noise."""
        ...

    @property
    def delta(self) -> float:
        """Return the chance that the promise of Gaussian noise fails."""
        ...

    @property
    def unit(self) -> Literal["sample", "client"]:
        """Return what is protected: one sample, or all samples of a client."""
        ...


@dataclass(frozen=True)
class Release:
    """How a histogram is released: the mechanism, its epsilon and delta, and what it protects."""

    noise: Noise
    epsilon: float
    delta: float
    unit: Literal["sample", "client"]

    @cached_property
    def scale(self) -> float:
        """Return the scale of the noise: b of Laplace, sigma of Gauss."""
        in_l1, in_l2 = SENSITIVITY[self.unit]
        if self.noise == "laplace":
            return laplace_scale(self.epsilon, in_l1)
        return gaussian_sigma(self.epsilon, self.delta, in_l2)

    @property
    def multiplier(self) -> float:
        """Return the scale of the noise over the sensitivity, as accountants have it."""
        in_l1, in_l2 = SENSITIVITY[self.unit]
        return self.scale / (in_l1 if self.noise == "laplace" else in_l2)


def release_of(rules: HistogramRules, *, deployed: bool) -> Release | None:
    """Return how histograms are released, None if they stay exact.

    `auto` is exact in a simulation, whose clients are nobody, and `DEPLOYED_EPSILON` when deployed.
    """
    epsilon = rules.epsilon
    if epsilon == "auto":
        epsilon = DEPLOYED_EPSILON if deployed else "off"
    if epsilon == "off":
        return None
    return Release(rules.noise, epsilon, rules.delta if rules.noise == "gaussian" else 0.0, rules.unit)


def histogram_charge(rules: HistogramRules, *, deployed: bool) -> tuple[str, float, float] | None:
    """Return mechanism, epsilon and delta that one histogram costs its client; None if it is exact.

    A client sends its histogram once. Sent again with fresh noise, it costs the same once more.
    """
    release = release_of(rules, deployed=deployed)
    return None if release is None else (release.noise, release.epsilon, release.delta)


class Histograms:
    """What clients send of their histograms, and how it is read."""

    def __init__(self, release: Release | None) -> None:
        self.release = release

    def sent(self, counts: Counts, stream: Stream, shares: int = 1) -> Floats:
        """Return what clients send, a row for each: counts, or shares of labels, with noise.

        With `shares`, each client adds one of so many parts of the noise: their sum has all of it.
        """
        rows = np.asarray(counts, np.float64)
        if self.release is None:
            return rows
        if self.release.unit == "client":
            rows = rows / np.maximum(rows.sum(axis=1, keepdims=True), 1)
        noise = draw(self.release.noise, self.release.scale, rows.size, stream, shares)
        return rows + noise.reshape(rows.shape)

    def read(self, sent: Floats, clients: Floats | float = 1.0) -> Counts:
        """Return whole, non-negative counts; `clients` have their sum in a row.

        Under the unit `client` the total of a row is no secret and no news: it is the number of clients.
        """
        rows = np.asarray(sent, np.float64)
        if self.release is not None and self.release.unit == "client":
            rows = rows * SHOWN
            totals = np.broadcast_to(np.asarray(clients, np.float64) * SHOWN, len(rows))
        else:
            totals = rows.sum(axis=1)
        return whole_counts(rows, np.rint(np.maximum(totals, 0.0)))


def whole_counts(rows: Floats, totals: Floats) -> Counts:
    """Return the non-negative whole numbers nearest to every row with a given total.

    First the Euclidean projection: all values fall by the same amount, those below it become 0. Cutting off
    negative values alone would give every absent class some samples. Then the largest remainders round up.

    >>> whole_counts(np.array([[26.0, 25.0, -3.0, 2.0]]), np.array([50.0])).tolist()
    [[25, 24, 0, 1]]
    """
    falling = -np.sort(-rows, axis=1)
    ranks = np.arange(1, rows.shape[1] + 1)
    steps = (np.cumsum(falling, axis=1) - totals[:, None]) / ranks
    kept = np.maximum((falling > steps).sum(axis=1), 1)
    level = np.take_along_axis(steps, kept[:, None] - 1, axis=1)
    near = np.maximum(rows - level, 0.0)
    down = np.floor(near)
    missing = (totals - down.sum(axis=1)).round()
    order = np.argsort(down - near, axis=1, kind="stable")  # largest remainder first, then lowest class
    up = np.empty_like(near)
    np.put_along_axis(up, order, (ranks - 1 < missing[:, None]).astype(np.float64), axis=1)
    counts: Counts = (down + up).astype(np.int64)
    return counts
