"""Laplace and Gaussian noise for label histograms, alone and in parts that add up.

The bits come from a `Stream` (`randomness.py`): the operating system's for a deployed client, a seed's in
simulations and tests. Draws are floating-point numbers, so whoever sends them rounds them first.
"""

from __future__ import annotations

import importlib
import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from hiflash.errors import ConfigError
from hiflash.privacy.randomness import Stream

__all__ = ["Noise", "draw", "gaussian_sigma", "laplace_scale"]

Floats = npt.NDArray[np.float64]
Noise = Literal["laplace", "gaussian"]


def draw(noise: Noise, scale: float, count: int, stream: Stream, shares: int = 1) -> Floats:
    """Return noise of this scale; with `shares`, one of so many parts whose sum has this scale.

    The sum of n normal draws of variance s^2 / n has variance s^2. A Laplace draw is the difference of two
    exponential ones, and those are sums of n gamma draws of shape 1 / n. More parts than planned make more
    noise, never less.
    """
    if noise == "gaussian":
        return scale / math.sqrt(shares) * _normal(count, stream)
    return scale * (_gamma(1 / shares, count, stream) - _gamma(1 / shares, count, stream))


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


def _uniform(count: int, stream: Stream) -> Floats:
    """Return numbers above 0 and up to 1."""
    bits = (stream.words(count) >> np.uint64(11)).astype(np.float64)
    return (bits + 1) * 2.0**-53


def _normal(count: int, stream: Stream) -> Floats:
    """Return standard normal draws (Box and Muller 1958)."""
    radius = np.sqrt(-2 * np.log(_uniform(count, stream)))
    normal: Floats = radius * np.cos(2 * math.pi * _uniform(count, stream))
    return normal


def _gamma(shape: float, count: int, stream: Stream) -> Floats:
    """Return gamma draws of a shape up to 1 and of scale 1 (Marsaglia and Tsang 2000)."""
    if shape == 1:
        return -np.log(_uniform(count, stream))
    # A draw of shape a + 1, times a uniform number to the power of 1 / a, has the shape a.
    d = shape + 2 / 3
    found, missing = np.empty(count), np.arange(count)
    while missing.size:
        normal, uniform = _normal(missing.size, stream), _uniform(missing.size, stream)
        cube = np.maximum(1 + normal / math.sqrt(9 * d), 0.0) ** 3
        log_cube = np.log(np.maximum(cube, 1e-300))  # a cube of 0 is never kept
        kept = np.log(uniform) < normal**2 / 2 + d - d * cube + d * log_cube
        found[missing[kept]] = d * cube[kept]
        missing = missing[~kept]
    return found * _uniform(count, stream) ** (1 / shape)
