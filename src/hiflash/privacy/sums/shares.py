"""Shamir shares of 32-byte secrets: dealt by pycryptodome, put together here for many secrets at once.

pycryptodome shares blocks of 16 bytes over GF(2^128). A secret is two blocks whose shares have the same
index. Its `combine` takes 80 ms for 67 shares of one block, and an edge opens a secret of each client.
Putting together is linear, though: where all secrets have the same indices, one table of 128 rows for each
share does it for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from Crypto.Protocol.SecretSharing import Shamir

__all__ = ["BLOCK_BYTES", "SECRET_BYTES", "combine", "deal"]

BLOCK_BYTES, SECRET_BYTES = 16, 32
POLYNOMIAL = (1 << 128) | 0b10000111  # x^128 + x^7 + x^2 + x + 1, as in pycryptodome


def deal(secret: bytes, needed: int, count: int) -> list[bytes]:
    """Return `count` shares of a secret, with the indices 1, 2, ...; `needed` of them give it back.

    >>> shares = deal(b"thirty-two bytes of one secret..", 2, 3)
    >>> combine((3, 1), [[shares[2], shares[0]]])
    [b'thirty-two bytes of one secret..']
    """
    first, second = (
        Shamir.split(needed, count, block, False) for block in (secret[:BLOCK_BYTES], secret[BLOCK_BYTES:])
    )
    return [one + two for (_, one), (_, two) in zip(first, second, strict=True)]


def combine(indices: tuple[int, ...], secrets: Sequence[Sequence[bytes]]) -> list[bytes]:
    """Return the secrets behind shares: each has one share for every index, in the same order.

    There must be exactly as many shares as are needed. Wrong shares give wrong secrets, so check them.
    """
    if not secrets:
        return []
    # [secret, share, block, bit], then one row for each block of each secret.
    bits = np.unpackbits(np.frombuffer(b"".join(map(b"".join, secrets)), np.uint8))
    by_share = bits.reshape(len(secrets), len(indices), 2, 8 * BLOCK_BYTES)
    rows = by_share.transpose(0, 2, 1, 3).reshape(2 * len(secrets), -1).astype(bool)
    table = _table(indices)
    data = b"".join([np.bitwise_xor.reduce(table[row], axis=0).tobytes() for row in rows])
    return [data[start : start + SECRET_BYTES] for start in range(0, len(data), SECRET_BYTES)]


@lru_cache(maxsize=32)
def _table(indices: tuple[int, ...]) -> npt.NDArray[np.uint64]:
    """Return what each bit of each share adds to the secret, as two words of a block."""
    rows = []
    for weight in _weights(indices):
        products = [weight]
        for _ in range(127):
            products.append(_times_x(products[-1]))
        rows += [product.to_bytes(BLOCK_BYTES, "big") for product in reversed(products)]
    return np.frombuffer(b"".join(rows), np.uint64).reshape(-1, 2)


def _weights(indices: tuple[int, ...]) -> list[int]:
    """Return each share's weight in the secret: the product of x / (x + own) over the other indices."""
    if len(set(indices)) != len(indices) or min(indices) < 1:
        raise ValueError(f"shares need different indices of at least 1, got {indices}")
    weights = []
    for own in indices:
        above, below = 1, 1
        for x in indices:
            if x != own:
                above, below = _multiply(above, x), _multiply(below, x ^ own)
        weights.append(_multiply(above, _inverse(below)))
    return weights


def _times_x(a: int) -> int:
    a <<= 1
    return a ^ POLYNOMIAL if a >> 128 else a


def _multiply(a: int, b: int) -> int:
    product = 0
    while b:
        if b & 1:
            product ^= a
        a, b = _times_x(a), b >> 1
    return product


def _inverse(a: int) -> int:
    """Return 1 / a by Euclid's algorithm on polynomials."""
    one, two, first, second = a, POLYNOMIAL, 1, 0
    while one != 1:
        shift = one.bit_length() - two.bit_length()
        if shift < 0:
            one, two, first, second, shift = two, one, second, first, -shift
        one ^= two << shift
        first ^= second << shift
    while first >> 128:
        first ^= POLYNOMIAL << (first.bit_length() - 129)
    return first
