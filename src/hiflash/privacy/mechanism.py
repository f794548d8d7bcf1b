"""The private sum of a round: clipped changes of clients in whole numbers, and discrete Gaussian noise.

Every client has weight 1. Its change of the model is clipped to a norm and rounded towards zero on a grid, so
that its norm never grows. The sum gets noise, and is divided by a number that was fixed beforehand: neither
the samples of a client nor who happened to answer decides anything.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hiflash.messages import Weights
from hiflash.privacy.discrete import LARGEST_VARIANCE, discrete_gaussian
from hiflash.privacy.randomness import Randomness

__all__ = ["Grid", "PrivateSum", "encode", "grid_of"]

Ints = npt.NDArray[np.int64]

FINEST_BITS = 20


class Grid(NamedTuple):
    """Whole numbers that stand for changes of a model: a norm of `clip` is 2^bits of them."""

    clip: float
    bits: int

    @property
    def most(self) -> int:
        """Return the largest norm of a client's change on this grid."""
        return 1 << self.bits

    @property
    def step(self) -> float:
        """Return what 1 stands for."""
        return self.clip / self.most

    def variance(self, noise: float) -> int:
        """Return the variance of noise with this multiplier, rounded up to a whole number."""
        return math.ceil((noise * self.most) ** 2)


def grid_of(clip: float, noise: float) -> Grid:
    """Return the finest grid on which noise of this multiplier fits into 64-bit arithmetic.

    >>> grid_of(1.0, 1.0).bits, grid_of(1.0, 1000.0).bits
    (20, 16)
    """
    room = math.floor(math.log2(math.isqrt(LARGEST_VARIANCE)) - math.log2(max(noise, 1.0)))
    return Grid(clip, min(FINEST_BITS, room))


def encode(model: Weights, base: Weights, grid: Grid) -> Ints:
    """Return a client's change of the model `base` on the grid, clipped; nothing if it is not finite.

    >>> encode(np.float32([3, 4]), np.float32([0, 0]), Grid(1.0, 4)).tolist()  # 16 * 0.6, 16 * 0.8
    [9, 12]
    """
    change = np.subtract(model, base, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        # Not `@`: its threads add in another order on another machine.
        length = math.sqrt(float(np.square(change).sum()))
    if not math.isfinite(length):
        # A client cannot refuse an edge round by its data: that would tell something about them.
        return np.zeros(len(change), np.int64)
    scale = grid.most / max(length, grid.clip)
    while True:
        steps = change * scale
        np.trunc(steps, out=steps)
        if float(np.square(steps).sum()) <= grid.most**2:  # exact: whole numbers below 2^53
            return steps.astype(np.int64)
        scale *= 1 - 2.0**-40  # the last bit of a floating-point number


@dataclass(frozen=True)
class PrivateSum:
    """How the changes of a round's clients become one change of the model.

    `noise` is the deviation of the noise in the sum, in clips; 0 only clips. Whoever adds up adds the noise;
    in secure sums every client adds its share instead (`privacy/sums/noised.py`).
    """

    clip: float
    noise: float
    randomness: Randomness

    @property
    def grid(self) -> Grid:
        """Return the grid of all sums."""
        return grid_of(self.clip, self.noise)

    @property
    def variance(self) -> int:
        """Return the variance of the noise in a whole sum."""
        return self.grid.variance(self.noise)

    def combine(
        self, models: Mapping[int, Weights], base: Weights, divisor: float, *names: int | str
    ) -> Weights:
        """Return the model `base` after a round with these clients' models.

        `names` name the round: no two rounds may share their noise.
        """
        total = np.zeros(len(base), np.int64)
        for _, model in sorted(models.items()):
            total += encode(model, base, self.grid)
        if self.noise:
            stream = self.randomness.stream("edge noise", *names)
            total += discrete_gaussian(self.variance, len(base), stream)
        moved: Weights = (base + total * (self.grid.step / divisor)).astype(np.float32)
        return moved
