"""Sets a test part aside, and sorts samples into the categories by which they are dealt to clients."""

from __future__ import annotations

import numpy as np

from ..errors import DataError
from ..seeding import rng

__all__ = ["BINS", "quantile_bins", "strata", "stratified_split", "wanted_of"]

BINS = 10  # categories of a numeric target: its deciles


def quantile_bins(values: np.ndarray) -> np.ndarray:
    """Return the decile (0..9) of every number; equal numbers share one.

    >>> quantile_bins(np.array([5.0, 1.0, 1.0, 9.0, 7.0])).tolist()
    [4, 0, 0, 8, 6]
    """
    ordered = np.sort(values)
    return np.searchsorted(ordered, values, side="left") * BINS // len(values)


def strata(answers: np.ndarray) -> np.ndarray:
    """Return the classes that a held-out part takes its share of: labels, or tenths of numeric answers."""
    if answers.dtype.kind == "f":
        first = answers.reshape(len(answers), -1)[:, 0]
        if len(first) >= 5 * BINS and np.isfinite(first).all():  # with fewer, a tenth could not be shared
            return quantile_bins(first)
    elif answers.ndim == 1:
        return answers
    return np.zeros(len(answers), np.int64)


def wanted_of(share: float, members: int) -> int:
    """Return how many members of a class a share of it is. A class of one stays whole, others are parted.

    >>> [wanted_of(0.2, members) for members in (1, 2, 10, 13)]
    [0, 1, 2, 3]
    """
    return min(max(1, round(share * members)), members - 1)


def stratified_split(y: np.ndarray, test_fraction: float, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Return sorted train and test indices with `test_fraction` of every class in test, always the same."""
    if not isinstance(test_fraction, int | float) or not 0 < test_fraction < 1:
        raise DataError(f"{where}: test_fraction must lie between 0 and 1, got {test_fraction!r}.")
    stream = rng(0, "split")
    test: list[np.ndarray] = []
    for label in np.unique(y):
        members = np.flatnonzero(y == label)
        test.append(stream.permutation(members)[: wanted_of(test_fraction, len(members))])
    chosen = np.sort(np.concatenate(test)) if test else np.empty(0, np.int64)
    if len(chosen) == 0:
        raise DataError(
            f"{where}: no class has two samples, so no test part can be set aside from {len(y)} samples. "
            "Give x_test and y_test."
        )
    return np.setdiff1d(np.arange(len(y)), chosen), chosen
