"""Balanced, disjoint shards: every class is cut into shards, and every client gets k of different classes."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import DataError

if TYPE_CHECKING:
    from .partition import Samples

__all__ = ["deal_shards", "shards_per_class"]

Indices = npt.NDArray[np.int64]


def deal_shards(
    config: Any, samples: Samples, clients: int, number: float, stream: np.random.Generator
) -> list[Indices]:
    """Return k shards of different classes for every client; no sample is used twice."""
    y, k = samples.y, int(number)
    present = _classes(y, clients, k, stream)
    sizes = [int((y == label).sum()) for label in present]
    _check(sizes, samples.classes, clients, k)
    cuts = shards_per_class(sizes, clients, k)
    shards = [
        np.array_split(stream.permutation(np.flatnonzero(y == label)), cut)
        for label, cut in zip(present, cuts, strict=True)
    ]
    return [
        np.concatenate([shards[place].pop() for place in places])
        for places in _different_classes(cuts, clients, k, stream)
    ]


def shards_per_class(sizes: list[int], clients: int, k: int) -> list[int]:
    """Return how many shards every class is cut into: `clients * k` in all, at most `clients` of a class.

    The class with the largest shards gets the next cut, so that the largest shard is as small as possible.

    >>> shards_per_class([60, 30, 30], clients=4, k=1)
    [2, 1, 1]
    >>> shards_per_class([100, 10], clients=4, k=2)
    [4, 4]
    """
    cuts = [1] * len(sizes)
    largest = [(-float(size), place) for place, size in enumerate(sizes)]
    heapq.heapify(largest)
    missing = clients * k - len(sizes)
    while missing > 0:
        _, place = heapq.heappop(largest)
        if cuts[place] < min(clients, sizes[place]):  # another shard needs another client and another sample
            cuts[place] += 1
            missing -= 1
            heapq.heappush(largest, (-sizes[place] / cuts[place], place))
    return cuts


def _classes(y: Indices, clients: int, k: int, stream: np.random.Generator) -> list[int]:
    """Return the classes that are dealt: all, or a draw if there are fewer shards than classes."""
    present = np.unique(y)
    if clients * k < len(present):
        present = np.sort(stream.choice(present, clients * k, replace=False))
    return [int(label) for label in present]


def _check(sizes: list[int], classes: int, clients: int, k: int) -> None:
    """Raise if the samples do not make k shards of different classes for every client."""
    name = f"noniid{k}-balanced"
    if k > len(sizes):
        raise DataError(
            f"partition '{name}': {k} classes per client, but the training data holds {len(sizes)} of "
            f"{classes} classes. Use noniid{len(sizes)}-balanced or less."
        )
    most = sum(min(clients, size) for size in sizes)
    if most < clients * k:
        raise DataError(
            f"partition '{name}': {clients} clients need {clients * k} shards, and the {len(sizes)} classes "
            f"have samples for {most}. Use fewer clients or fewer classes per client."
        )


def _different_classes(cuts: list[int], clients: int, k: int, stream: np.random.Generator) -> list[list[int]]:
    """Return the k different classes of every client, drawn in proportion to the shards that are left."""
    left = np.array(cuts, dtype=np.int64)
    dealt = []
    for waiting in range(clients, 0, -1):
        # Each waiting client takes at most one shard of a class. A class with as many shards as there are
        # clients must give one to each. So no client is ever left with two shards of one class.
        due = left == waiting
        chosen = np.flatnonzero(due)
        if len(chosen) < k:
            odds = np.where(due, 0, left)
            drawn = stream.choice(len(left), k - len(chosen), replace=False, p=odds / odds.sum())
            chosen = np.concatenate([chosen, drawn])
        left[chosen] -= 1
        dealt.append(sorted(chosen.tolist()))
    return dealt
