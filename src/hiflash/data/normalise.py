"""Brings samples to mean zero and deviation one: by feature, by channel or all by one number."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..errors import DataError

__all__ = ["CHUNK", "NORMALISATIONS", "chunks", "normalised", "resolve"]

NORMALISATIONS = ("auto", "feature", "global", "channel", "none")
CHUNK = 128  # samples held in float64 at a time: no copy of a whole dataset, and in cache it is faster


def resolve(how: str, x: np.ndarray, where: str) -> str:
    """Return the normalisation of samples of this kind: `auto` chooses one, and one that cannot be raises."""
    if how not in NORMALISATIONS:
        known = ", ".join(NORMALISATIONS)
        raise DataError(f"{where}: unknown normalisation {how!r}. Known: {known}.")
    if x.dtype.kind == "i":
        if how not in ("auto", "none"):
            raise DataError(
                f"{where}: token ids are names, not sizes, so they cannot be scaled by {how}. "
                'Use data.normalise = "none".'
            )
        return "none"
    if how == "auto":
        if x.ndim == 2:
            return "feature"  # the columns of a table have units of their own
        return "channel" if x.ndim >= 3 and x.shape[1] > 1 else "global"
    if how == "channel" and x.ndim < 3:
        raise DataError(
            f"{where}: samples of shape {x.shape[1:]} have no channels. "
            'Use data.normalise = "feature" or "global".'
        )
    return how


def normalised(
    x: np.ndarray, x_test: np.ndarray, how: str, measured: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return both parts as new arrays, scaled by mean and deviation of `measured`, or else of `x`.

    `how` is a resolved one. Token ids stay whole numbers. `none` leaves every value as it is.
    """
    if how == "none":
        kind = x.dtype if x.dtype.kind == "i" else np.float32
        return x.astype(kind), x_test.astype(kind)
    mean, deviation = _statistics(x if measured is None else measured, how)
    scaled = []
    for part in (x, x_test):
        out = np.empty(part.shape, np.float32)
        for rows in chunks(len(part)):
            out[rows] = (_unit(part[rows]) - mean) / deviation
        scaled.append(out)
    return scaled[0], scaled[1]


def chunks(n: int) -> Iterator[slice]:
    """Yield the rows of `n` samples in pieces that fit into the cache."""
    return (slice(start, start + CHUNK) for start in range(0, n, CHUNK))


def _statistics(x: np.ndarray, how: str) -> tuple[np.ndarray, np.ndarray]:
    kept = {"feature": range(1, x.ndim), "channel": (1,), "global": ()}[how]
    axes = tuple(axis for axis in range(x.ndim) if axis not in kept)
    count = x.size // int(np.prod([x.shape[axis] for axis in kept], dtype=np.int64))
    total = sum(_unit(x[rows]).sum(axes, keepdims=True) for rows in chunks(len(x)))
    mean = np.asarray(total / count)
    # A second pass around the mean: the one-pass formula loses everything when the mean is large.
    squares = sum(np.square(_unit(x[rows]) - mean).sum(axes, keepdims=True) for rows in chunks(len(x)))
    deviation = np.sqrt(np.asarray(squares / count))
    constant = deviation <= 1e-12 * np.maximum(1.0, np.abs(mean))
    return mean, np.where(constant, 1.0, deviation)


def _unit(x: np.ndarray) -> np.ndarray:
    return x / 255.0 if x.dtype == np.uint8 else x.astype(np.float64)
