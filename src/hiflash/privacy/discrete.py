"""Exact samples of the discrete Gaussian (Canonne, Kamath, Steinke 2020), many at a time.

The usual Gaussian samples of floating-point numbers have gaps that can give a secret away (Mironov 2012).
Whole numbers have none. Every decision here compares uniform bits with a rational number. Double precision
settles nearly all of them; where it is too close to call, integers of any size and further bits do. So the
samples follow the distribution exactly, and an array of them takes microseconds per entry.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from hiflash.errors import ConfigError
from hiflash.privacy.randomness import Stream

__all__ = ["LARGEST_VARIANCE", "discrete_gaussian", "sum_divergence"]

LARGEST_VARIANCE = 2**52
"""Products with samples of this variance still fit in 64 bits."""
CHUNK = 1 << 16
MARGIN = 2.0**-48  # relative error of the few operations in double precision, generously
FARTHEST = 2**60

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Fraction = Callable[[int], tuple[int, int]]
"""Maps the position of an entry to a numerator and a denominator."""


def discrete_gaussian(variance: int, count: int, stream: Stream) -> Ints:
    """Return `count` whole numbers; y has a probability proportional to exp(-y^2 / (2 variance)).

    The variance of the samples is at most `variance`, and equal to it for all practical purposes above 1.
    """
    if not 1 <= variance <= LARGEST_VARIANCE:
        raise ConfigError(f"a discrete Gaussian has a variance from 1 to 2^52 here, got {variance}")
    found = np.empty(count, np.int64)
    for start in range(0, count, CHUNK):
        span = found[start : start + CHUNK]
        missing = np.arange(len(span))
        while missing.size:
            samples, kept = _attempt(variance, missing.size, stream)
            span[missing[kept]] = samples[kept]
            missing = missing[~kept]
    return found


def sum_divergence(variance: int, terms: int) -> float:
    """Return tau of Kairouz, Liu and Steinke 2021: how far a sum of discrete Gaussians is from one.

    It bounds the divergence (in either direction, the largest log ratio) between the sum of `terms` samples
    of this variance each, and one sample of variance `terms * variance`:
    10 sum_{k=1}^{terms-1} exp(-2 pi^2 variance k / (k + 1)).

    >>> sum_divergence(1, 2) == 10 * math.exp(-math.pi**2), sum_divergence(100, 50)
    (True, 0.0)
    """
    return 10 * math.fsum(math.exp(-2 * math.pi**2 * variance * k / (k + 1)) for k in range(1, terms))


def _attempt(variance: int, count: int, stream: Stream) -> tuple[Ints, Bools]:
    """Return proposals from a discrete Laplace distribution, and which of them are samples."""
    # Any scale of the proposals is exact; a power of two near the deviation makes few of them fail.
    log_scale = max(0, round(math.log2(variance) / 2))
    scale = 1 << log_scale
    size, possible = _laplace(log_scale, count, stream)
    negative = (stream.words(count) & np.uint64(1)).astype(bool)
    possible &= ~(negative & (size == 0))  # zero has one sign only
    kept = np.zeros(count, bool)
    alive = np.flatnonzero(possible)
    # exp(-(|y| - variance / scale)^2 / (2 variance)), with everything times scale^2
    distance = size[alive] * scale - variance
    gamma = distance.astype(np.float64) ** 2 / (2.0 * variance * scale * scale)
    denominator = 2 * variance * scale * scale
    kept[alive] = _exp_minus(gamma, lambda i: (int(distance[i]) ** 2, denominator), stream)
    return np.where(negative, -size, size), kept


def _laplace(log_scale: int, count: int, stream: Stream) -> tuple[Ints, Bools]:
    """Return absolute values of discrete Laplace proposals, and which of them count."""
    scale = 1 << log_scale
    low = (stream.words(count) & np.uint64(scale - 1)).astype(np.int64)
    kept = _exp_minus(low / scale, lambda i: (int(low[i]), scale), stream)
    high = np.zeros(count, np.int64)
    alive = np.flatnonzero(kept)
    while alive.size:
        alive = alive[_exp_minus_one(alive.size, stream)]
        high[alive] += 1
    size = high * scale + low
    # So far out, at 256 deviations or more, a proposal would become a sample with probability exp(-30,000).
    return size, kept & (size < FARTHEST // scale)


def _exp_minus(gamma: Floats, exact: Fraction, stream: Stream) -> Bools:
    """Return whether events of probability exp(-gamma) happen; `exact` gives each gamma as a fraction."""
    whole = np.floor(gamma).astype(np.int64)
    error = MARGIN * (1 + gamma)
    near = np.flatnonzero(np.abs(gamma - np.rint(gamma)) <= error)
    for i in near.tolist():  # rounding could have put it on the wrong side of a whole number
        numerator, denominator = exact(i)
        whole[i] = numerator // denominator
    rest = np.clip(gamma - whole, 0.0, 1.0)
    happens = np.ones(len(gamma), bool)
    left = whole.copy()
    alive = np.flatnonzero(left > 0)
    while alive.size:  # exp(-1) once for every whole part
        happens[alive] = _exp_minus_one(alive.size, stream)
        left[alive] -= 1
        alive = alive[happens[alive] & (left[alive] > 0)]
    alive = np.flatnonzero(happens)

    def fraction(i: int) -> tuple[int, int]:
        numerator, denominator = exact(int(alive[i]))
        return numerator - int(whole[alive[i]]) * denominator, denominator

    happens[alive] = _exp_minus_share(rest[alive], error[alive], fraction, stream)
    return happens


def _exp_minus_one(count: int, stream: Stream) -> Bools:
    return _exp_minus_share(np.ones(count), np.zeros(count), lambda i: (1, 1), stream)


def _exp_minus_share(gamma: Floats, error: Floats, exact: Fraction, stream: Stream) -> Bools:
    """Return whether events of probability exp(-gamma) happen, gamma from 0 to 1.

    Events of probability gamma / k are drawn for k = 1, 2, ... until one fails. The first failure is at an
    odd k with probability exp(-gamma).
    """
    happens = np.zeros(len(gamma), bool)
    alive = np.arange(len(gamma))
    k = 1
    while alive.size:
        places = alive

        def fraction(i: int, places: Ints = places, k: int = k) -> tuple[int, int]:
            numerator, denominator = exact(int(places[i]))
            return numerator, denominator * k

        succeeded = _below(gamma[alive] / k, error[alive], fraction, stream)
        happens[alive[~succeeded]] = k % 2 == 1
        alive = alive[succeeded]
        k += 1
    return happens


def _below(probability: Floats, error: Floats, exact: Fraction, stream: Stream) -> Bools:
    """Return whether uniform numbers lie below probabilities that are known up to an `error`."""
    bits = stream.words(len(probability)) >> np.uint64(11)
    uniform = bits * 2.0**-53
    below = uniform < probability
    unsure = np.abs(uniform - probability) <= error + MARGIN * probability + 2.0**-53
    for i in np.flatnonzero(unsure).tolist():
        below[i] = _exactly_below(int(bits[i]), *exact(i), stream)
    return below


def _exactly_below(bits: int, numerator: int, denominator: int, stream: Stream) -> bool:
    """Return whether the uniform number that begins with these 53 bits is below a fraction."""
    digits = 53
    while True:
        if (bits + 1) * denominator <= numerator << digits:
            return True
        if bits * denominator >= numerator << digits:
            return False
        bits = bits << 1 | int(stream.words(1)[0]) >> 63
        digits += 1
