"""Holds a share of the training samples back from all clients: the validation set, on which runs stop."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..errors import DataError
from .dataset import Dataset
from .partition import Partition
from .split import strata, wanted_of

__all__ = ["hold_back", "training_part", "without_held"]


def hold_back(data: Dataset, share: float, stream: np.random.Generator) -> np.ndarray:
    """Return the sorted indices of the training samples that no client gets.

    They are a share of every class (of every tenth of a numeric target), drawn so that every group gives
    about the same share of its samples and keeps at least one. Windows of one text overlap, so token
    sequences are held back as one block of each group, in the order of the data.

    >>> data = Dataset.from_arrays([[0.0]] * 20, [0, 1] * 10, [[0.0]], [0])
    >>> held = hold_back(data, 0.2, np.random.default_rng(0))
    >>> np.bincount(data.y[held]).tolist()
    [2, 2]
    """
    size = len(data.y)
    groups = np.zeros(size, np.int64) if data.groups is None else data.groups
    if data.x.dtype.kind == "i":
        parts = [_block(np.flatnonzero(groups == group), share, stream) for group in np.unique(groups)]
    else:
        order, gives = _order(groups, stream)
        label = strata(data.y)[order]
        parts = [_first(order[label == each], gives, share) for each in np.unique(label)]
    held = np.sort(np.concatenate(parts))
    if len(held) == 0:
        raise DataError(
            f"evaluate.validation = {share:g} holds back none of {size} training samples: every class or "
            "group has a single one. Leave it out, or give more samples."
        )
    return held


def without_held(split: Partition, held: np.ndarray, size: int) -> Partition:
    """Return a partition of `size` samples without those that are held back."""
    taken = np.zeros(size, bool)
    taken[held] = True
    rest = [part[~taken[part]] for part in split.indices]
    for client, part in enumerate(rest):
        if len(part) == 0:
            raise DataError(
                f"evaluate.validation holds back all {len(split.indices[client])} samples of client "
                f"{client}. Use a smaller share, or give the client more samples."
            )
    return replace(split, indices=rest)


def training_part(data: Dataset, held: np.ndarray) -> Dataset:
    """Return a dataset without the training samples that are held back."""
    if len(held) == 0:
        return data
    kept = np.delete(np.arange(len(data.y)), held)
    groups = None if data.groups is None else data.groups[kept]
    return replace(data, x=data.x[kept], y=data.y[kept], groups=groups)


def _block(members: np.ndarray, share: float, stream: np.random.Generator) -> np.ndarray:
    """Return consecutive members of a group, from a drawn place on."""
    wanted = wanted_of(share, len(members))
    start = int(stream.integers(len(members) - wanted + 1))
    return members[start : start + wanted]


def _order(groups: np.ndarray, stream: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return an order of all samples in which groups take turns by their size, and who may be held back.

    The k-th of a group's n samples stands at (k + 1/2) / n of the order, and ties are in drawn order. So the
    first fifth of the order has about a fifth of every group. The last of a group may not be held back.
    """
    drawn = stream.permutation(len(groups))
    grouped = drawn[np.argsort(groups[drawn], kind="stable")]
    _, starts, counts = np.unique(groups[grouped], return_index=True, return_counts=True)
    sizes = np.repeat(counts, counts)
    rank = np.arange(len(groups)) - np.repeat(starts, counts)
    place, gives, turn = np.empty(len(groups)), np.empty(len(groups), bool), np.empty(len(groups), np.int64)
    place[grouped], gives[grouped] = (rank + 0.5) / sizes, rank < sizes - 1
    turn[drawn] = np.arange(len(groups))
    return np.lexsort((turn, place)), gives


def _first(members: np.ndarray, gives: np.ndarray, share: float) -> np.ndarray:
    """Return a share of a class, from the front of the order."""
    may: np.ndarray = members[gives[members]]
    return may[: wanted_of(share, len(members))]
