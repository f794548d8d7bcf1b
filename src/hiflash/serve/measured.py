"""Edge rounds as their edges measured them, and the checks of numbers that come over a network."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from hiflash.privacy.sums.messages import PHASES
from hiflash.serve import wire_pb2 as pb

__all__ = ["MOST_ROUNDS", "Malformed", "Measured", "measured_messages", "read_measured", "seconds", "whole"]

MOST = 2**53  # whole numbers up to here are exact in every language
MOST_ROUNDS = 1_000


class Malformed(Exception):  # noqa: N818  # the sender's error, not ours
    """A call that breaks the format: it changes nothing and is counted."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One edge round as its edge measured it.

    Under secure sums `lost` has how many clients each phase has lost, `clipped` the values that were clipped,
    and `unopened` says that the sum was not opened.
    """

    asked: int
    delivered: int
    steps: int
    compute_s: float
    send_s: float
    round_s: float = 0.0
    waiting_s: float = 0.0
    counted: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    clipped: int = 0
    unopened: bool = False


def measured_messages(rounds: Iterable[Measured]) -> list[pb.Measured]:
    """Return measured rounds as they travel."""
    return [pb.Measured(**asdict(each)) for each in rounds]


def read_measured(rounds: Sequence[pb.Measured]) -> list[Measured]:
    """Return the measured rounds of a lease; seconds that cannot be are 0."""
    if len(rounds) > MOST_ROUNDS:
        raise Malformed(f"{len(rounds)} rounds, at most {MOST_ROUNDS} are allowed")
    return [
        Measured(
            each.asked,
            each.delivered,
            whole(each.steps),
            seconds(each.compute_s),
            seconds(each.send_s),
            seconds(each.round_s),
            seconds(each.waiting_s),
            tuple(each.counted),
            _lost(each),
            whole(each.clipped),
            each.unopened,
        )
        for each in rounds
    ]


def whole(number: int) -> int:
    """Return a whole number that is exact everywhere."""
    if number > MOST:
        raise Malformed(f"{number} is larger than {MOST}")
    return number


def seconds(told: float) -> float:
    """Return seconds; 0 for those that cannot be."""
    return told if 0 <= told < math.inf else 0.0


def _lost(each: pb.Measured) -> tuple[int, ...]:
    """Return the clients that each phase of a secure sum has lost; nothing if that cannot be."""
    possible = len(each.lost) == len(PHASES) and sum(each.lost) <= each.asked
    return tuple(each.lost) if possible else ()
