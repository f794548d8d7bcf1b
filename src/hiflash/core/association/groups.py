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
    """Return groups of `size` clients that are near the same edge and similarly fast there.

    Every client goes to its nearest edge, and each edge cuts its clients, by latency, into groups. Those who
    are left go on to their next nearest edges, away from the edge with the fewest of them, until so many have
    met at one that they are a group. The last ones, too few for a group, join groups near them. An edge where
    a group was formed reaches all of it.
    """
    edges, clients = latency_ms.shape
    if clients < size:
        raise ConfigError(f"{clients} clients are no group of {size}; lower privacy.group")
    far = latency_ms if reachable is None else np.where(reachable, latency_ms, np.inf)
    groups: Groups = []
    at: list[int] = []  # the edge where each group was formed
    left, still = np.arange(clients), np.ones(edges, np.bool_)
    while still.any() and len(left):
        there = np.where(still[:, None], far[:, left], np.inf)
        near: Ints = np.where(np.isfinite(there).any(axis=0), there.argmin(axis=0), -1)
        full = [edge for edge in np.flatnonzero(still).tolist() if (near == edge).sum() >= size]
        for edge in full:
            own = left[near == edge]
            own = own[np.argsort(far[edge, own], kind="stable")]
            whole = len(own) // size
            groups += [sorted(part.tolist()) for part in np.array_split(own[: whole * size], whole)]
            at += [edge] * whole
        left = np.setdiff1d(left, [client for group in groups for client in group])
        if not full:
            sizes = np.bincount(near[near >= 0], minlength=edges)
            still[int(np.where(still, sizes, clients + 1).argmin())] = False
    _join(groups, at, left.tolist(), far, size)
    return [sorted(group) for group in groups]


def group_latency_ms(latency_ms: Floats, groups: Sequence[Sequence[int]]) -> Floats:
    """Return the latency of every group at every edge: that of its slowest client, as the edge's is."""
    return np.stack([latency_ms[:, list(group)].max(axis=1) for group in groups], axis=1)


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


def _join(groups: Groups, at: Sequence[int], left: Sequence[int], far: Floats, size: int) -> None:
    """Let the last clients join groups: at the nearest edge that has one, the smallest there."""
    for client in left:
        choices = [(float(far[edge, client]), len(groups[index]), index) for index, edge in enumerate(at)]
        nearest = min(choices, default=(np.inf, 0, 0))
        if not np.isfinite(nearest[0]):
            raise ConfigError(
                f"client {client} finds no group of {size}: no edge that reaches it is near so many; lower "
                "privacy.group, or let more edges reach it"
            )
        groups[nearest[2]].append(client)
