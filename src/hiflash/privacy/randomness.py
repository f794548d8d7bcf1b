"""Where noise comes from: the operating system, or a stream that repeats.

Simulations and tests draw from named streams of a seed, so their results repeat. A deployed node must not:
whoever knows the seed can subtract the noise.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from hiflash.seeding import rng

__all__ = ["Randomness", "SeededRandomness", "Stream", "SystemRandomness"]

Words = npt.NDArray[np.uint64]


class Stream(Protocol):
    """A source of random bits."""

    def words(self, count: int) -> Words:
        """Return this many numbers of 64 random bits."""
        ...


class Randomness(Protocol):
    """Opens streams by name. Where `repeats` is true, a name always gives the same bits."""

    repeats: ClassVar[bool]

    def stream(self, *names: int | str) -> Stream:
        """Return the stream of a name."""
        ...


@dataclass(frozen=True)
class SeededRandomness:
    """Streams that a seed and a name decide, for simulations and tests.

    >>> SeededRandomness(0).stream("noise", 3).words(1) == SeededRandomness(0).stream("noise", 3).words(1)
    array([ True])
    """

    seed: int
    repeats: ClassVar[bool] = True

    def stream(self, *names: int | str) -> Stream:
        """Return the stream of a name."""
        return _SeededStream(rng(self.seed, *names))


@dataclass(frozen=True)
class SystemRandomness:
    """Bits of the operating system: no name gives them again."""

    repeats: ClassVar[bool] = False

    def stream(self, *names: int | str) -> Stream:
        """Return the operating system's bits."""
        return _SystemStream()


class _SeededStream:
    def __init__(self, generator: np.random.Generator) -> None:
        self.generator = generator

    def words(self, count: int) -> Words:
        return np.frombuffer(self.generator.bytes(8 * count), "<u8")


class _SystemStream:
    def words(self, count: int) -> Words:
        return np.frombuffer(os.urandom(8 * count), "<u8")
