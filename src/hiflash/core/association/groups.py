"""Groups of clients that are associated as one: they are formed by latency, without a look at labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hiflash.core.association.strategies import Clusters
from hiflash.errors import ConfigError

__all__ = ["Groups", "expand", "form_groups", "group_latency_ms", "group_reach"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Groups = list[list[int]]


def form_groups(latency_ms: Floats, size: int, reachable: Mask | None = None) -> Groups:
    """Return groups of at least `size` clients that are near the same edge and similarly fast there.

    Every client goes to its nearest edge. While an edge has some clients but fewer than `size`, the one with
    the fewest gives them to their next nearest. Then each edge cuts its clients, by latency, into groups of
    sizes that differ by at most one. Every edge that a group is formed at reaches all of it.
    """
    edges, clients = latency_ms.shape
    if clients < size:
        raise ConfigError(f"{clients} clients are no group of {size}; lower privacy.group")
    far = latency_ms if reachable is None else np.where(reachable, latency_ms, np.inf)
    still = np.ones(edges, np.bool_)
    near: Ints = far.argmin(axis=0)
    while True:
        sizes = np.bincount(near, minlength=edges)
        small = np.flatnonzero((sizes > 0) & (sizes < size))
        if not len(small):
            break
        edge = int(small[sizes[small].argmin()])
        still[edge] = False
        moving = np.flatnonzero(near == edge)
        there = np.where(still[:, None], far[:, moving], np.inf)
        if not np.isfinite(there).any(axis=0).all():
            client = int(moving[~np.isfinite(there).any(axis=0)][0])
            raise ConfigError(
                f"client {client} finds no group of {size}: no edge that reaches it is near so many; "
                "lower privacy.group, or let more edges reach it"
            )
        near[moving] = there.argmin(axis=0)
    groups: Groups = []
    for edge in range(edges):
        own = np.flatnonzero(near == edge)
        if len(own):
            order = own[np.argsort(far[edge, own], kind="stable")]
            groups += [sorted(part.tolist()) for part in np.array_split(order, len(own) // size)]
    return groups


def group_latency_ms(latency_ms: Floats, groups: Sequence[Sequence[int]]) -> Floats:
    """Return the latency of every group at every edge: the mean of its clients.

    COST is that of one client. If a group joins as one, the mean cost of its clients has their mean latency.
    """
    return np.stack([latency_ms[:, list(group)].mean(axis=1) for group in groups], axis=1)


def group_reach(reachable: Mask | None, groups: Sequence[Sequence[int]]) -> Mask | None:
    """Return which edge reaches all clients of a group."""
    if reachable is None:
        return None
    return np.stack([reachable[:, list(group)].all(axis=1) for group in groups], axis=1)


def expand(clusters: Clusters, groups: Sequence[Sequence[int]] | None) -> Clusters:
    """Return clusters of clients from clusters of groups.

    >>> expand([[1], [0, 2]], [[0, 4], [1, 3], [2, 5]])
    [[1, 3], [0, 2, 4, 5]]
    """
    if groups is None:
        return clusters
    return [sorted(client for group in cluster for client in groups[group]) for cluster in clusters]
