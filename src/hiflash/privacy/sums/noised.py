"""Private secure sums: every client clips its change and adds its share of the noise before it is masked.

A change is a vector of whole numbers on a grid, at most 2^b long, with weight 1. Each of n clients adds
discrete Gaussian noise of variance v. `threshold(n)` clients are in every sum that is opened; one of them may
be the reader, who knows its own noise. So v is sized for the others, `threshold(n) - 1`.
The sum is opened modulo 2^32 and read as signed numbers. b is the largest for which

    n 2^b + 12 sqrt(n v) < 2^31

so that the sum leaves this range with a probability of at most 2 exp(-72) for each value: discrete Gaussians
are subgaussian (Canonne, Kamath and Steinke 2020), and 2^30 values stay below 1e-21. A sum that did wrap
would be a wrong model, not a leak: reduction modulo 2^32 comes after the noise.

What the sum of discrete Gaussians differs from one is part of the charge (`spread_noise`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hiflash.messages import Weights
from hiflash.privacy.discrete import discrete_gaussian, sum_divergence
from hiflash.privacy.mechanism import Grid, encode, grid_of
from hiflash.privacy.randomness import Stream
from hiflash.privacy.sums.fixed_point import FixedPoint, Summed
from hiflash.privacy.sums.messages import ADDED, Refused, Terms, Words, threshold

__all__ = ["Noised", "NoisedSum", "decode", "spread_noise"]

DEVIATIONS = 12.0
"""How many deviations of the noise fit beside the changes of all clients."""
UNLIKELY = DEVIATIONS**2 / 2  # exp(-72) = 5e-32


class NoisedSum(NamedTuple):
    """An opened sum of clipped changes with noise, in whole numbers of which one stands for `step`."""

    total: npt.NDArray[np.int32]
    step: float

    def applied(self, base: Weights, divisor: float) -> Weights:
        """Return the model that the sum, over a fixed divisor, leads to from `base`."""
        return (base + self.total * (self.step / divisor)).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Noised:
    """The form of the vectors of one private sum: its clients, their clip, and the noise in it in clips."""

    clients: int
    clip: float
    noise: float

    @classmethod
    def of(cls, terms: Terms) -> Noised:
        """Return the form that the terms of a sum ask for."""
        return cls(len(terms.clients), terms.bound, terms.noise)

    @property
    def grid(self) -> Grid:
        """Return the finest grid on which the sum of all clients fits into 32 bits.

        >>> [Noised(clients, 1.0, noise).grid.bits for clients, noise in ((10, 1.0), (1000, 1000.0))]
        [20, 16]
        """
        return Grid(self.clip, _bits(self.clients, self.noise))

    @property
    def share(self) -> int:
        """Return the variance of one client's noise on the grid."""
        return _share(self.grid.variance(self.noise), self.clients)

    def encode(self, model: Weights, base: Weights, stream: Stream) -> Words:
        """Return a client's vector: its clipped change with its share of the noise.

        A model that is not finite counts as no change. In place of samples every client sends 1, and 0 in
        place of clipped values: both would tell something without noise.
        """
        steps = encode(model, base, self.grid)
        steps += discrete_gaussian(self.share, steps.size, stream)
        words = np.empty(steps.size + ADDED, np.uint32)
        words[:-ADDED] = steps.astype(np.uint32)
        words[-ADDED:] = 1, 0
        return words

    def decode(self, total: Words, clients: int) -> NoisedSum:
        """Return the sum of so many clients, or raise `Refused` if no such clients can have made it.

        The changes are at most as long as their clips together, and the noise is longer than
        sqrt(n v (d + 2 sqrt(d x) + 2 x)) with probability exp(-x) (Hsu, Kakade and Zhang 2012; d values).
        """
        if (int(total[-2]), int(total[-1])) != (clients, 0):
            raise Refused(
                f"the sum counts {int(total[-2])} clients, and {clients} are in it; one of them lies"
            )
        signed = total[:-ADDED].view(np.int32)
        length = math.sqrt(float(np.square(signed, dtype=np.float64).sum()))
        size = signed.size + 2 * math.sqrt(signed.size * UNLIKELY) + 2 * UNLIKELY
        most = clients * self.grid.most + math.sqrt(clients * self.share * size)
        if length > most:
            raise Refused(
                f"the sum is {length / self.grid.most:.4g} clips long, and changes with noise are at most "
                f"{most / self.grid.most:.4g}; one of them lies"
            )
        return NoisedSum(signed, self.grid.step)


def decode(terms: Terms, total: Words, clients: int) -> Summed | NoisedSum:
    """Return an opened sum in the form that its terms ask for."""
    form = Noised.of(terms) if terms.noise else FixedPoint.of(terms)
    return form.decode(total, clients)


def spread_noise(noise: float, clients: int, size: int) -> float:
    """Return the noise multiplier to charge for sums of `size` values over at most so many clients.

    A sum of discrete Gaussians is not one. Kairouz, Liu and Steinke 2021 (theorem 1): with noise of variance
    v from each of n clients, tau = `sum_divergence(v, n)` and a sensitivity of D, a sum satisfies
    epsilon^2 / 2 concentrated DP with epsilon the smaller of sqrt(D^2 / (n v) + tau size / 2) and
    D / sqrt(n v) + tau sqrt(size). A Gaussian of multiplier 1 / epsilon has the same curve. D^2 / (n v) is at
    most 1 / noise^2, and tau is largest for the largest round, whose clients have the smallest shares.
    Clients beyond those counted add noise of their own, which costs nothing.
    """
    largest = Noised(clients, 1.0, noise)
    return _charged(1 / noise, sum_divergence(largest.share, _others(clients)), size)


def _charged(alone: float, tau: float, size: int) -> float:
    return 1 / min(math.sqrt(alone**2 + tau * size / 2), alone + tau * math.sqrt(size))


def _share(variance: int, clients: int) -> int:
    return -(-variance // _others(clients))


def _others(clients: int) -> int:
    """Return how many clients a sum has at least, without one that reads it."""
    return threshold(clients) - 1


@lru_cache(maxsize=1024)
def _bits(clients: int, noise: float) -> int:
    bits = grid_of(1.0, noise).bits
    while bits > 1:
        grid = Grid(1.0, bits)
        share = _share(grid.variance(noise), clients)
        if clients * grid.most + DEVIATIONS * math.sqrt(clients * share) < 2**31:
            break
        bits -= 1
    return bits
