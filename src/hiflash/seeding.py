"""Named random streams: what is drawn depends on the name alone, never on the order of calls."""

from __future__ import annotations

import zlib

import numpy as np

__all__ = ["rng"]


def rng(seed: int, *names: int | str) -> np.random.Generator:
    """Return the generator of the stream `names` under `seed`; the same name gives the same numbers.

    >>> int(rng(0, "client", 3, 7).integers(1000)) == int(rng(0, "client", 3, 7).integers(1000))
    True
    """
    # A string and an integer never meet in the same word: strings get the tag 2^32 in front.
    words: list[int] = [seed]
    for name in names:
        words.extend((1 << 32, zlib.crc32(name.encode())) if isinstance(name, str) else (int(name),))
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))
