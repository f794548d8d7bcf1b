"""Where keys and noise come from: the operating system, or a seeded stream in simulations and tests."""

from __future__ import annotations

import hashlib
import secrets
from typing import Protocol

from hiflash.errors import ConfigError

__all__ = ["Randomness", "SeededRandomness", "SystemRandomness", "require_system"]


class Randomness(Protocol):
    """A source of random bytes."""

    seeded: bool
    """Whether somebody who knows a seed can compute the bytes."""

    def take(self, size: int) -> bytes:
        """Return so many new bytes."""
        ...


class SystemRandomness:
    """The operating system's source: the only one for a deployed node."""

    seeded = False

    def take(self, size: int) -> bytes:
        """Return so many new bytes."""
        return secrets.token_bytes(size)


class SeededRandomness:
    """The same bytes for the same seed and names. Nothing that is drawn from it is secret.

    >>> SeededRandomness(0, "client", 3).take(4) == SeededRandomness(0, "client", 3).take(4)
    True
    """

    seeded = True

    def __init__(self, seed: int, *names: int | str) -> None:
        words = [seed, *(name if isinstance(name, str) else int(name) for name in names)]
        self._key = hashlib.blake2b(repr(words).encode()).digest()
        self._taken = 0

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        self._taken += 1
        return hashlib.shake_256(self._key + self._taken.to_bytes(8, "little")).digest(size)


def require_system(randomness: Randomness) -> Randomness:
    """Return the source if it is the operating system's; a deployed node must not use a seeded one."""
    if randomness.seeded:
        raise ConfigError(
            "a deployed node draws its keys from the operating system, and got a seeded stream that anybody "
            "with the seed can repeat; use SystemRandomness"
        )
    return randomness
