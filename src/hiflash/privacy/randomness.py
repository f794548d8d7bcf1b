"""Where keys and noise come from: the operating system, or streams that a seed decides.

Simulations and tests draw from named streams of a seed, so their results repeat. A deployed node must not:
whoever knows the seed has its keys, and can subtract its noise.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from hiflash.errors import ConfigError
from hiflash.seeding import rng

__all__ = ["Randomness", "SeededRandomness", "Stream", "SystemRandomness", "require_system"]

Words = npt.NDArray[np.uint64]


class Stream(Protocol):
    """A source of random bits."""

    def words(self, count: int) -> Words:
        """Return this many numbers of 64 random bits."""
        ...


class Randomness(Protocol):
    """A source of bytes for keys, and of streams for noise. If it `repeats`, a name gives the same."""

    repeats: ClassVar[bool]

    def take(self, size: int) -> bytes:
        """Return so many new bytes."""
        ...

    def stream(self, *names: int | str) -> Stream:
        """Return the stream of a name."""
        ...


class SeededRandomness:
    """The same bytes for the same seed and names. Nothing that is drawn from it is secret.

    >>> SeededRandomness(0, "client", 3).take(4) == SeededRandomness(0, "client", 3).take(4)
    True
    >>> SeededRandomness(0).stream("noise", 3).words(1) == SeededRandomness(0).stream("noise", 3).words(1)
    array([ True])
    """

    repeats: ClassVar[bool] = True

    def __init__(self, seed: int, *names: int | str) -> None:
        self.seed, self.names = seed, names
        words = [seed, *(name if isinstance(name, str) else int(name) for name in names)]
        self._key = hashlib.blake2b(repr(words).encode()).digest()
        self._taken = 0

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        self._taken += 1
        return hashlib.shake_256(self._key + self._taken.to_bytes(8, "little")).digest(size)

    def stream(self, *names: int | str) -> Stream:
        """Return the stream of a name."""
        return _SeededStream(rng(self.seed, *self.names, *names))


class SystemRandomness:
    """The operating system's source: the only one for a deployed node. No name gives its bits again."""

    repeats: ClassVar[bool] = False

    def take(self, size: int) -> bytes:
        """Return so many new bytes."""
        return secrets.token_bytes(size)

    def stream(self, *names: int | str) -> Stream:
        """Return the operating system's bits."""
        return _SystemStream()


def require_system(randomness: Randomness) -> Randomness:
    """Return the source if it is the operating system's; a deployed node must not use a seeded one."""
    if randomness.repeats:
        raise ConfigError(
            "a deployed node draws keys and noise from the operating system, and got a seeded stream, which "
            "anybody with the seed can repeat; use SystemRandomness"
        )
    return randomness


class _SeededStream:
    def __init__(self, generator: np.random.Generator) -> None:
        self.generator = generator

    def words(self, count: int) -> Words:
        return np.frombuffer(self.generator.bytes(8 * count), "<u8")


class _SystemStream:
    def words(self, count: int) -> Words:
        return np.frombuffer(secrets.token_bytes(8 * count), "<u8")
