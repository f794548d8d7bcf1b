"""Single numbers out of the middle of many streams, without the numbers before them.

A million clients need one number each out of streams that are a million numbers long. The generator of
`seeding.rng` is counter-based (Philox 4x64-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
SC 2011), so each number can be computed by itself.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["CHUNK", "uniform_at"]

CHUNK = 1 << 14  # numbers at a time: their words stay in the cache, and a signal is answered in between

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

MULTIPLIERS = (np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157))
WEYL = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B))  # what the key grows by every round
ROUNDS = 10
LOW, HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


def uniform_at(keys: Words, streams: Ints, places: Ints) -> Floats:
    """Return the number at each place of each stream, in [0, 1): what `Generator.random` gives there.

    `keys` is `[streams, 2]`, `streams` says which of them each number is from.

    >>> whole = np.random.Generator(np.random.Philox(key=[7, 8])).random(6)
    >>> bool(uniform_at(np.array([[7, 8]], np.uint64), np.array([0]), np.array([5]))[0] == whole[5])
    True
    """
    numbers = np.empty(len(places))
    for start in range(0, len(places), CHUNK):
        part = slice(start, start + CHUNK)
        blocks, word = np.divmod(places[part].astype(np.uint64), np.uint64(4))
        words = _philox(blocks + np.uint64(1), keys[streams[part]])  # the first block has counter 1
        chosen = np.choose(word.astype(np.intp), words)
        numbers[part] = (chosen >> np.uint64(11)) * 2.0**-53
    return numbers


def _philox(counter: Words, keys: Words) -> tuple[Words, Words, Words, Words]:
    """Return the four words of each block; of its counter only the first word is ever used here."""
    c0, c1, c2, c3 = counter, np.zeros_like(counter), np.zeros_like(counter), np.zeros_like(counter)
    k0, k1 = keys[:, 0].copy(), keys[:, 1].copy()
    for _ in range(ROUNDS):
        high0, low0 = _product(MULTIPLIERS[0], c0)
        high1, low1 = _product(MULTIPLIERS[1], c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0 += WEYL[0]
        k1 += WEYL[1]
    return c0, c1, c2, c3


def _product(a: np.uint64, b: Words) -> tuple[Words, Words]:
    """Return the high and the low word of a 128-bit product, by halves."""
    a_low, a_high, b_low, b_high = a & LOW, a >> HALF, b & LOW, b >> HALF
    middle = a_high * b_low + (a_low * b_low >> HALF)
    other = a_low * b_high + (middle & LOW)
    return a_high * b_high + (middle >> HALF) + (other >> HALF), a * b
