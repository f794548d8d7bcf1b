"""The private sum of a round: clipped changes of clients in whole numbers, and discrete Gaussian noise.

Every client has weight 1. Its change of the model is clipped to a norm and rounded towards zero on a grid, so
that its norm never grows. The sum gets noise, and is divided by a number that was fixed beforehand: neither
the samples of a client nor who happened to answer decides anything.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from hiflash.messages import Weights
from hiflash.privacy.discrete import LARGEST_VARIANCE, discrete_gaussian, sum_divergence
from hiflash.privacy.randomness import Randomness, Stream

__all__ = [
    "Grid",
    "PrivateSum",
    "client_noise",
    "distributed_noise",
    "encode",
    "grid_of",
    "multiplier",
    "threshold",
]

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

    `noise` is the deviation of the noise in the sum, in clips; 0 only clips. `where` says who adds it: the
    edge, or every client its share of it.
    """

    clip: float
    noise: float
    randomness: Randomness
    where: Literal["edge", "clients"] = "edge"

    @property
    def grid(self) -> Grid:
        """Return the grid of all sums."""
        return grid_of(self.clip, self.noise)

    @property
    def variance(self) -> int:
        """Return the variance of the noise in a whole sum."""
        return self.grid.variance(self.noise)

    def combine(
        self, models: Mapping[int, Weights], base: Weights, divisor: float, asked: int, *names: int | str
    ) -> Weights:
        """Return the model `base` after a round with these clients' models.

        `asked` is the number of clients in the round, with those that did not answer. `names` name the round:
        no two rounds may share their noise.
        """
        total = np.zeros(len(base), np.int64)
        for client, model in sorted(models.items()):
            total += encode(model, base, self.grid)
            if self.noise and self.where == "clients":
                stream = self.randomness.stream("client noise", *names, client)
                total += client_noise(self.variance, asked, len(base), stream)
        if self.noise and self.where == "edge":
            stream = self.randomness.stream("edge noise", *names)
            total += discrete_gaussian(self.variance, len(base), stream)
        return self.open(total, base, divisor)

    def open(self, total: Ints, base: Weights, divisor: float) -> Weights:
        """Return the model `base` moved by a sum of changes on the grid."""
        moved: Weights = (base + total * (self.grid.step / divisor)).astype(np.float32)
        return moved


def threshold(clients: int) -> int:
    """Return how many clients of a secure sum must stay for it to be opened: floor(2 n / 3) + 1.

    >>> [threshold(n) for n in (3, 10, 100)]
    [3, 7, 67]
    """
    return 2 * clients // 3 + 1


def client_noise(variance: int, clients: int, size: int, stream: Stream) -> Ints:
    """Return a client's share of the noise in a sum over `clients`, in whole numbers.

    It is sized for the fewest clients of which a sum may be opened. If more of them stay, there is more noise
    than promised, never less.
    """
    return discrete_gaussian(_share(variance, clients), size, stream)


def distributed_noise(noise: float, clients: int, size: int) -> float:
    """Return the noise multiplier to charge for noise that clients spread over a sum of `size` values.

    A sum of discrete Gaussians is not one. Kairouz, Liu and Steinke 2021 (theorem 1): with noise of variance
    v from each of n clients, tau = `sum_divergence(v, n)` and a sensitivity of D, a sum satisfies
    epsilon^2 / 2 concentrated DP with epsilon the smaller of sqrt(D^2 / (n v) + tau size / 2) and
    D / sqrt(n v) + tau sqrt(size). A Gaussian of multiplier 1 / epsilon has the same curve. On the grid of
    `noise`, tau is below the smallest floating-point number.
    """
    grid = grid_of(1.0, noise)
    found = multiplier(_share(grid.variance(noise), clients), threshold(clients), size, grid.most)
    return min(noise, found)


def multiplier(variance: int, terms: int, size: int, sensitivity: float) -> float:
    """Return the noise multiplier that a sum of discrete Gaussians amounts to (`distributed_noise`)."""
    tau, alone = sum_divergence(variance, terms), sensitivity / math.sqrt(terms * variance)
    return 1 / min(math.sqrt(alone**2 + tau * size / 2), alone + tau * math.sqrt(size))


def _share(variance: int, clients: int) -> int:
    return -(-variance // threshold(clients))
