"""Noise for differential privacy, and where it comes from: the operating system, or a seeded stream.

The simulator and the tests draw from a seeded stream, so their results repeat. A deployed client must not:
whoever knows the seed subtracts the noise.
"""

from __future__ import annotations

import importlib
import math
import random
import secrets
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from hiflash.errors import ConfigError

__all__ = ["Noise", "NoiseSource", "SeededSource", "SystemSource", "draw", "gaussian_sigma", "laplace_scale"]

Floats = npt.NDArray[np.float64]
Noise = Literal["laplace", "gaussian"]


class NoiseSource(Protocol):
    """Draws of the two distributions that all noise here is made of, and random bytes."""

    def normal(self, sigma: float, count: int) -> Floats:
        """Return draws of a normal distribution around 0."""
        ...

    def gamma(self, shape: float, scale: float, count: int) -> Floats:
        """Return draws of a gamma distribution."""
        ...

    def token(self, length: int) -> bytes:
        """Return random bytes for a key."""
        ...


class SeededSource:
    """Repeatable draws for simulations and tests."""

    def __init__(self, stream: np.random.Generator) -> None:
        self.stream = stream

    def normal(self, sigma: float, count: int) -> Floats:
        """Return draws of a normal distribution around 0."""
        return self.stream.normal(0.0, sigma, count)

    def gamma(self, shape: float, scale: float, count: int) -> Floats:
        """Return draws of a gamma distribution."""
        return self.stream.gamma(shape, scale, count)

    def token(self, length: int) -> bytes:
        """Return repeatable bytes."""
        return self.stream.bytes(length)


class SystemSource:
    """Draws from the randomness of the operating system, for deployed clients."""

    def __init__(self) -> None:
        self.random = random.SystemRandom()

    def normal(self, sigma: float, count: int) -> Floats:
        """Return draws of a normal distribution around 0."""
        return np.array([self.random.normalvariate(0.0, sigma) for _ in range(count)], np.float64)

    def gamma(self, shape: float, scale: float, count: int) -> Floats:
        """Return draws of a gamma distribution."""
        return np.array([self.random.gammavariate(shape, scale) for _ in range(count)], np.float64)

    def token(self, length: int) -> bytes:
        """Return bytes that nobody can guess."""
        return secrets.token_bytes(length)


def draw(noise: Noise, scale: float, count: int, source: NoiseSource, shares: int = 1) -> Floats:
    """Return noise of this scale; with `shares`, one of so many parts whose sum has this scale.

    The sum of n normal draws of variance s^2 / n has variance s^2. A Laplace draw is the difference of two
    exponential ones, and those are sums of n gamma draws of shape 1 / n. More parts than planned make more
    noise, never less.
    """
    if noise == "gaussian":
        return source.normal(scale / math.sqrt(shares), count)
    return source.gamma(1 / shares, scale, count) - source.gamma(1 / shares, scale, count)


def laplace_scale(epsilon: float, sensitivity: float) -> float:
    """Return the scale b of Laplace noise that makes a release epsilon-private; `sensitivity` is in L1.

    >>> laplace_scale(0.5, 2.0)
    4.0
    """
    return sensitivity / epsilon


def gaussian_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """Return the smallest deviation of Gaussian noise for (epsilon, delta); `sensitivity` is in L2.

    It is the exact curve of the Gaussian mechanism (Balle and Wang 2018), from dp-accounting. The classic
    formula sqrt(2 ln(1.25 / delta)) / epsilon holds for epsilon below 1 only, and wastes noise there.
    """
    try:
        mechanisms = importlib.import_module("dp_accounting.pld.privacy_loss_mechanism")
        common = importlib.import_module("dp_accounting.pld.common")
    except ImportError:
        raise ConfigError(
            'privacy.noise = "gaussian" needs the package dp-accounting: pip install "hiflash[dp]"; or use '
            '"laplace"'
        ) from None
    wanted = common.DifferentialPrivacyParameters(epsilon, delta)
    found = mechanisms.GaussianPrivacyLoss.from_privacy_guarantee(wanted, sensitivity)
    return float(found.standard_deviation)
