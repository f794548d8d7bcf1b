"""Holds a share of every client's own samples out of training, for a test on what each client has."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..errors import DataError
from .partition import Partition

__all__ = ["hold_out"]


def hold_out(
    split: Partition, share: float, stream: np.random.Generator
) -> tuple[Partition, list[np.ndarray]]:
    """Return the partition without the held-out samples, and the held-out samples of every client.

    All clients draw by one order of the samples, so that clients that share a sample tend to agree on it. A
    sample that any of them holds out is trained on by none. A client with one sample holds out nothing.

    >>> split = Partition([np.array([0, 1, 2, 3]), np.array([4])], 0.0, "own")
    >>> rest, held = hold_out(split, 0.25, np.random.default_rng(0))
    >>> [len(part) for part in rest.indices], [len(part) for part in held]
    ([3, 1], [1, 0])
    """
    size = 1 + max(int(part.max()) for part in split.indices)
    order = stream.permutation(size)
    held = []
    for part in split.indices:
        own = np.unique(part)
        wanted = min(max(1, round(share * len(own))), len(own) - 1)
        held.append(np.sort(own[np.argsort(order[own])[:wanted]]))
    taken = np.zeros(size, bool)
    taken[np.concatenate(held)] = True
    rest = [part[~taken[part]] for part in split.indices]
    for client, part in enumerate(rest):
        if len(part) == 0:
            raise DataError(
                f"evaluate.clients = {share:g} leaves client {client} no sample to train on, because others "
                "hold out all that it shares with them. Use a smaller share, or a partition without overlap."
            )
    return replace(split, indices=rest), held
