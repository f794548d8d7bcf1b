"""How much a stale model counts: the functions of the paper and of FedAsync (Xie et al. 2019)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from hiflash.core.registry import Key, Part, by_name

__all__ = ["WEIGHTINGS", "Constant", "Exponential", "Hinge", "Polynomial", "Weighting", "weighting"]

Weighting: TypeAlias = Callable[[int], float]


def weighting(config: Any) -> Weighting:
    """Return the staleness weighting of a configuration, also for mixing rules of your own."""
    made: Weighting = WEIGHTINGS[config.cloud.weighting].build(config)
    return made


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


PENALTY = Key(
    "penalty",
    float,
    default=0.99,
    above=0,
    high=1,
    about="weighting exponential: upsilon, the factor upsilon^d",
)
EXPONENT = Key(
    "exponent",
    float,
    default=0.5,
    low=0,
    high=100,
    about="weighting polynomial: the factor (d + 1)^-exponent",
)
HINGE = Key(
    "hinge",
    float,
    default=(10.0, 4.0),
    length=2,
    low=0,
    high=1e6,
    about="weighting hinge: [a, b] in the factor 1 up to d = b, then 1 / (a (d - b) + 1)",
)

WEIGHTINGS = by_name(
    Part(
        "exponential",
        "`penalty` to the power of the staleness",
        lambda config: Exponential(config.cloud.penalty),
        keys=(PENALTY,),
    ),
    Part("constant", "1: staleness does not matter", lambda config: Constant()),
    Part(
        "polynomial",
        "(staleness + 1) to the power of -`exponent`",
        lambda config: Polynomial(config.cloud.exponent),
        keys=(EXPONENT,),
    ),
    Part(
        "hinge",
        "1 up to a staleness of b, then 1 / (a (staleness - b) + 1), with [a, b] = `hinge`",
        lambda config: Hinge(*config.cloud.hinge),
        keys=(HINGE,),
    ),
)
