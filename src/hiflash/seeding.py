"""Named random streams: what is drawn depends on the name alone, never on the order of calls."""

from __future__ import annotations

import hashlib
import struct
import threading
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence

__all__ = ["once", "rng"]

_words = struct.Struct("<QQ")


def rng(seed: int, *names: int | str) -> np.random.Generator:
    """Return the generator of the stream `names` under `seed`; the same name gives the same numbers.

    >>> int(rng(0, "client", 3, 7).integers(1000)) == int(rng(0, "client", 3, 7).integers(1000))
    True
    """
    key = np.array(_key(seed, names), np.uint64)
    bits = np.random.Philox(_Key(key))  # type: ignore[arg-type]  # numpy forgot these
    return np.random.Generator(bits)


def once(seed: int, *names: int | str) -> np.random.Generator:
    """Return the generator of the same stream for a draw made at once: the thread's next call takes it over.

    >>> int(once(0, "slot", 3).integers(1000)) == int(rng(0, "slot", 3).integers(1000))
    True
    """
    state, generator = _lent.state, _lent.generator
    state["state"]["key"] = _key(seed, names)
    generator.bit_generator.state = state
    return generator


def _key(seed: int, names: tuple[int | str, ...]) -> tuple[int, int]:
    """Return the name as the key of a counter-based generator."""
    # int() because np.int64(3) prints differently.
    words = [seed, *[name if isinstance(name, str) else int(name) for name in names]]
    first, second = _words.unpack(hashlib.blake2b(repr(words).encode(), digest_size=16).digest())
    return first, second


class _Key(ISeedSequence):
    """Gives a generator its key; `Philox(key=...)` also asks the system for entropy that it does not use."""

    def __init__(self, key: np.ndarray) -> None:
        self.key = key

    def generate_state(self, n_words: int, dtype: object = None) -> np.ndarray:
        """Return the key: Philox takes its two words from here."""
        return self.key


class _Lent(threading.local):
    """One generator for each thread, put back to the beginning of a stream: to build one takes far longer."""

    def __init__(self) -> None:
        self.generator = np.random.Generator(np.random.Philox(0))
        # As Philox begins: counter at zero, nothing drawn ahead.
        self.state: dict[str, Any] = {
            "bit_generator": "Philox",
            "state": {"counter": (0, 0, 0, 0), "key": (0, 0)},
            "buffer": (0, 0, 0, 0),
            "buffer_pos": 4,
            "has_uint32": 0,
            "uinteger": 0,
        }


_lent = _Lent()
