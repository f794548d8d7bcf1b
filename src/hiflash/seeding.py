"""Named random streams: the numbers depend on seed and name alone, never on the order of calls."""

from __future__ import annotations

import hashlib
import struct
import threading
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence

__all__ = ["Streams", "once", "rng"]

_words = struct.Struct("<QQ")


def rng(seed: int, *names: int | str) -> np.random.Generator:
    """Return the generator of the stream `names` under `seed`; the same name gives the same numbers.

    >>> int(rng(0, "client", 3, 7).integers(1000)) == int(rng(0, "client", 3, 7).integers(1000))
    True
    """
    key = np.array(_key(seed, names), np.uint64)
    bits = np.random.Philox(_Key(key))  # type: ignore[arg-type]  # numpy's annotation leaves them out
    return np.random.Generator(bits)


def once(seed: int, *names: int | str) -> np.random.Generator:
    """Return the stream of `rng` for immediate use: the thread's next call resets the same generator.

    >>> int(once(0, "slot", 3).integers(1000)) == int(rng(0, "slot", 3).integers(1000))
    True
    """
    return _lent.begin(_key(seed, names))


class Streams:
    """Streams for immediate use whose names share a beginning and end in numbers.

    The shared beginning is hashed only once, so a stream is ready in two thirds of the time.

    >>> int(Streams(0, "slot").once(3).integers(1000)) == int(rng(0, "slot", 3).integers(1000))
    True
    """

    def __init__(self, seed: int, *names: str) -> None:
        self._begun = _hash(f"{repr([seed, *names])[:-1]}, ")

    def once(self, *numbers: int) -> np.random.Generator:
        """Return the stream whose name ends in these numbers, for immediate use as in `seeding.once`."""
        named = self._begun.copy()
        named.update(f"{', '.join(map(str, numbers))}]".encode())
        return _lent.begin(_words.unpack(named.digest()))


def _key(seed: int, names: tuple[int | str, ...]) -> tuple[int, int]:
    """Return the name as the key of a counter-based generator."""
    # int() because np.int64(3) prints differently.
    words = [seed, *[name if isinstance(name, str) else int(name) for name in names]]
    first, second = _words.unpack(_hash(repr(words)).digest())
    return first, second


def _hash(text: str) -> hashlib.blake2b:
    return hashlib.blake2b(text.encode(), digest_size=16)


class _Key(ISeedSequence):
    """Gives a generator its key; `Philox(key=...)` also asks the system for entropy that it does not use."""

    def __init__(self, key: np.ndarray) -> None:
        self.key = key

    def generate_state(self, n_words: int, dtype: object = None) -> np.ndarray:
        """Return the key: Philox takes its two words from here."""
        return self.key


class _Lent(threading.local):
    """One generator per thread, reset to the beginning of a stream: building a new one takes far longer."""

    def __init__(self) -> None:
        self.generator = np.random.Generator(np.random.Philox(0))
        # The initial state of Philox: counter at zero, buffer empty.
        self.state: dict[str, Any] = {
            "bit_generator": "Philox",
            "state": {"counter": (0, 0, 0, 0), "key": (0, 0)},
            "buffer": (0, 0, 0, 0),
            "buffer_pos": 4,
            "has_uint32": 0,
            "uinteger": 0,
        }

    def begin(self, key: tuple[int, ...]) -> np.random.Generator:
        """Return the generator at the beginning of the stream with this key."""
        self.state["state"]["key"] = key
        self.generator.bit_generator.state = self.state
        return self.generator


_lent = _Lent()
