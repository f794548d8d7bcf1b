"""Heterogeneity-aware association, written as the paper has it (section 5.3, Algorithm 3).

`associate_reference` is the algorithm to read. `core.association.fast` gives the same clusters sooner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hiflash.core.association.strategies import Clusters, js_divergences
from hiflash.errors import ConfigError

__all__ = ["Problem", "associate_reference", "choose_edges", "place_rest"]

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Problem:
    """The inputs of an association: latencies and labels, and the limits of edges.

    `latency_ms` and the mask `reachable` are `[edges, clients]`, `counts` is `[clients, classes]`, `target`
    is LD_IID, `weight` is lambda. Without a mask every edge reaches every client. `unit` is what is placed,
    in words: a client, or a group of them.
    """

    latency_ms: Floats
    counts: Counts
    weight: float
    target: Floats
    reachable: Mask | None = None
    capacity: int | None = None
    unit: str = "client"

    def __post_init__(self) -> None:
        edges, clients = self.latency_ms.shape
        if self.reachable is not None:
            alone = np.flatnonzero(~self.reachable.any(axis=0))
            if len(alone):
                raise ConfigError(
                    f"{self.unit} {alone[0]} is reached by none of {edges} edges; "
                    "let an edge reach it or leave it out"
                )
        if self.capacity is not None and self.capacity * edges < clients:
            raise ConfigError(
                f"{edges} edges with a capacity of {self.capacity} have no room for {clients} {self.unit}s; "
                f"the capacity must be at least {-(-clients // edges)}"
            )

    @cached_property
    def sizes(self) -> Counts:
        """Return the number of samples of every client."""
        sizes: Counts = self.counts.sum(axis=1)
        return sizes

    def costs(self, latency_ms: Floats, held: Counts, clients: Counts) -> Floats:
        """Return COST of adding each client to a cluster with `held` samples of every class.

        `held` may also have a row per client. If neither cluster nor client has samples, the divergence is 0.
        """
        total = held.sum(axis=-1) + self.sizes[clients]
        mixed = (held + self.counts[clients]) / np.maximum(total, 1)[:, None]
        return latency_ms + self.weight * np.where(total > 0, js_divergences(mixed, self.target), 0.0)

    def reach(self, edge: int) -> Mask:
        """Return which clients an edge reaches."""
        return np.ones(len(self.counts), np.bool_) if self.reachable is None else self.reachable[edge]


def associate_reference(problem: Problem, stream: np.random.Generator) -> Clusters:
    """Return the clusters of Algorithm 3."""
    edges, clients = problem.latency_ms.shape
    pool = np.ones(clients, np.bool_)
    clusters: Clusters = [[] for _ in range(edges)]
    while pool.any():
        before = pool.sum()
        empty = [edge for edge in range(edges) if not clusters[edge]]
        for edge in empty:
            within = np.flatnonzero(pool & problem.reach(edge))
            if len(within):
                client = int(within[problem.latency_ms[edge, within].argmin()])  # the first: lowest id
                clusters[edge].append(client)
                pool[client] = False
        wishes: dict[int, list[int]] = {}
        for edge in range(edges):
            within = np.flatnonzero(pool & problem.reach(edge))
            if edge in empty or len(clusters[edge]) == problem.capacity or not len(within):
                continue
            held = problem.counts[clusters[edge]].sum(axis=0)
            costs = problem.costs(problem.latency_ms[edge, within], held, within)
            wishes.setdefault(int(within[costs.argmin()]), []).append(edge)
        for client, edge in choose_edges(wishes, stream):
            clusters[edge].append(client)
            pool[client] = False
        if pool.sum() == before:  # all edges that reach a remaining client are full
            place_rest(problem, clusters, np.flatnonzero(pool).tolist())
            break
    return [sorted(cluster) for cluster in clusters]


def choose_edges(wishes: Mapping[int, list[int]], stream: np.random.Generator) -> list[tuple[int, int]]:
    """Return (client, edge): a client that several edges want chooses one of them at random."""
    chosen = []
    for client in sorted(wishes):
        edges = wishes[client]
        chosen.append((client, edges[int(stream.integers(len(edges))) if len(edges) > 1 else 0]))
    return chosen


def place_rest(problem: Problem, clusters: Clusters, rest: list[int]) -> None:
    """Place the clients whose edges are all full, by moving others to edges with room.

    The greedy sweeps may fill an edge with clients that other edges reach too. As few clients as possible
    move.
    """
    home = {client: edge for edge, cluster in enumerate(clusters) for client in cluster}
    for client in rest:
        path = _way_to_room(problem, clusters, client)
        if path is None:
            raise ConfigError(
                f"{problem.unit} {client} finds no place: the edges that reach it are full with "
                f"{problem.capacity} {problem.unit}s each, and no move makes room; raise the capacity or let "
                f"more edges reach the {problem.unit}s"
            )
        for moved, edge in path:
            if moved in home:
                clusters[home[moved]].remove(moved)
            clusters[edge].append(moved)
            home[moved] = edge


def _way_to_room(problem: Problem, clusters: Clusters, client: int) -> list[tuple[int, int]] | None:
    """Return the shortest chain of moves (client, edge) that gives the client a place, lowest ids first."""
    came: dict[int, tuple[int, int | None]] = {}  # edge -> client that would move in, and its edge so far
    waiting: list[tuple[int, int | None]] = [(client, None)]
    for mover, source in waiting:
        for edge in range(len(clusters)):
            if edge in came or not problem.reach(edge)[mover]:
                continue
            came[edge] = (mover, source)
            if len(clusters[edge]) != problem.capacity:
                path, at = [], edge
                while at is not None:
                    mover, previous = came[at]
                    path.append((mover, at))
                    at = previous  # type: ignore[assignment]  # the first has none and ends the loop
                return path
            waiting += [(other, edge) for other in sorted(clusters[edge])]
    return None
