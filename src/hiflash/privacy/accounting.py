"""What mechanisms cost, by the accountant of dp-accounting: none of this arithmetic is our own.

Rényi DP is the accountant. Its costs add up whatever their order, an exact discrete Gaussian costs no more
in it than a Gaussian, and it takes a millisecond. A privacy loss distribution would need 6 % less noise and a
second (docs/decisions/0069-the-privacy-ledger.md).
"""

from __future__ import annotations

import importlib
import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from hiflash.errors import ConfigError

__all__ = ["LARGEST_NOISE", "Mechanism", "epsilon", "noise_for"]

LARGEST_NOISE = 1000.0
TOLERANCE = 1e-4
"""How exactly noise is calibrated; it is rounded up."""


@dataclass(frozen=True)
class Mechanism:
    """Something that is released with noise, as often as it is charged.

    `noise` is the deviation of Gaussian noise, or the scale of Laplace noise, over the sensitivity. With
    `sampling` below 1 each client takes part with this probability, independently and in secret.
    """

    noise: float
    kind: Literal["gaussian", "laplace"] = "gaussian"
    sampling: float = 1.0


def epsilon(spent: Iterable[tuple[Mechanism, int]], delta: float) -> float:
    """Return the epsilon at `delta` of mechanisms that were used so many times each.

    >>> round(epsilon([(Mechanism(2.0), 10)], 1e-5), 3)
    8.079
    """
    used = tuple((mechanism, count) for mechanism, count in spent if count)
    return _epsilon(used, delta) if used else 0.0


def noise_for(
    limit: float,
    delta: float,
    count: int,
    sampling: float = 1.0,
    beside: Sequence[tuple[Mechanism, int]] = (),
) -> float:
    """Return the least Gaussian noise multiplier with which `count` uses cost at most epsilon `limit`.

    What was used `beside` them costs its part.

    >>> noise_for(8.0, 1e-5, 100)
    6.3768
    """
    low, high = 0.0, 0.5

    def fits(noise: float) -> bool:
        return epsilon([(Mechanism(noise, sampling=sampling), count), *beside], delta) <= limit

    while not fits(high):
        low, high = high, 2 * high
        if high > LARGEST_NOISE:
            raise ConfigError(
                f"epsilon {limit:g} at delta {delta:g} needs a noise multiplier over {LARGEST_NOISE:g} for "
                f"{count:,} rounds; plan fewer rounds (dp.rounds), or raise dp.epsilon"
            )
    while high - low > TOLERANCE / 2:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return round(math.ceil(high / TOLERANCE) * TOLERANCE, 4)


@lru_cache(maxsize=4096)  # with sampling, the accountant takes a tenth of a second
def _epsilon(used: tuple[tuple[Mechanism, int], ...], delta: float) -> float:
    library = _library()
    accountant = importlib.import_module("dp_accounting.rdp").RdpAccountant()
    with _quiet():
        for mechanism, count in used:
            accountant.compose(_event(library, mechanism), count)
        return float(accountant.get_epsilon(delta))


def _event(library: Any, mechanism: Mechanism) -> Any:
    """Return a mechanism as dp-accounting has it."""
    kind = library.GaussianDpEvent if mechanism.kind == "gaussian" else library.LaplaceDpEvent
    event = kind(mechanism.noise)
    return event if mechanism.sampling == 1 else library.PoissonSampledDpEvent(mechanism.sampling, event)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the accountant from telling which of its Rényi orders it leaves out: that is not for users."""
    logger = logging.getLogger("absl")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _library() -> Any:
    try:
        return importlib.import_module("dp_accounting")
    except ImportError:
        raise ConfigError('dp.unit needs the package dp-accounting: pip install "hiflash[dp]"') from None
