"""Named random streams: what is drawn depends on the name alone, never on the order of calls."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.random.bit_generator import ISeedSequence

__all__ = ["rng"]


def rng(seed: int, *names: int | str) -> np.random.Generator:
    """Return the generator of the stream `names` under `seed`; the same name gives the same numbers.

    >>> int(rng(0, "client", 3, 7).integers(1000)) == int(rng(0, "client", 3, 7).integers(1000))
    True
    """
    # The name becomes the key of a counter-based generator. int() because np.int64(3) prints differently.
    words = [seed, *(name if isinstance(name, str) else int(name) for name in names)]
    key = hashlib.blake2b(repr(words).encode(), digest_size=16).digest()
    bits = np.random.Philox(_Key(np.frombuffer(key, "<u8")))  # type: ignore[arg-type]  # numpy forgot these
    return np.random.Generator(bits)


class _Key(ISeedSequence):
    """Gives a generator its key; `Philox(key=...)` also asks the system for entropy that it does not use."""

    def __init__(self, key: np.ndarray) -> None:
        self.key = key

    def generate_state(self, n_words: int, dtype: object = None) -> np.ndarray:
        """Return the key: Philox takes its two words from here."""
        return self.key
