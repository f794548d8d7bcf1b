"""How much a stale model counts: the functions of the paper and of FedAsync (Xie et al. 2019)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Constant", "Exponential", "Hinge", "Polynomial", "Weighting"]

Weighting: TypeAlias = Callable[[int], float]


@dataclass(frozen=True)
class Exponential:
    """The paper's: `penalty ** staleness`.

    >>> 0.8 * Exponential(0.5)(2)
    0.2
    """

    penalty: float

    def __call__(self, staleness: int) -> float:
        """Return the weight."""
        return float(self.penalty**staleness)


@dataclass(frozen=True)
class Constant:
    """Always 1: staleness does not matter."""

    def __call__(self, staleness: int) -> float:
        """Return the weight."""
        return 1.0


@dataclass(frozen=True)
class Polynomial:
    """`(staleness + 1) ** -exponent`.

    >>> Polynomial(0.5)(3)
    0.5
    """

    exponent: float

    def __call__(self, staleness: int) -> float:
        """Return the weight."""
        return float((staleness + 1) ** -self.exponent)


@dataclass(frozen=True)
class Hinge:
    """1 up to staleness `start`, then `1 / (slope * (staleness - start) + 1)`.

    >>> Hinge(slope=10, start=4)(4), Hinge(slope=10, start=4)(5) == 1 / 11
    (1.0, True)
    """

    slope: float
    start: float

    def __call__(self, staleness: int) -> float:
        """Return the weight."""
        return 1.0 if staleness <= self.start else 1 / (self.slope * (staleness - self.start) + 1)
