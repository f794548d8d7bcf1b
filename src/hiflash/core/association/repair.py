"""Repairing an association during a run: clients move to cheaper edges (paper, section 5.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hiflash.core.association.membership import ABSENT
from hiflash.core.association.strategies import js_divergences

__all__ = ["Placement", "Switch"]

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Switch:
    """A client changes from one edge to another."""

    client: int
    source: int
    target: int


class Placement:
    """The edge of every client, and the cost that a client adds to an edge, in milliseconds.

    The cost of an association is the sum of its latencies and of lambda times its total divergence. At
    edge m client k adds `L^{m,k} + lambda * (JS(with k) - JS(without k))`: the paper's COST minus the part
    that the edge has without k. COST alone would draw every client to the edge of lowest divergence. That is
    the edge with most clients, so in the end it would have all of them (docs/mobility.md).

    `labels` is `[clients, classes]`, and `target` is the ideal label distribution of an edge. The latency of
    an unreachable edge is infinite. No client moves to an edge with `capacity` clients.
    """

    def __init__(
        self,
        home: Ints,
        edges: int,
        labels: Counts,
        target: Floats,
        *,
        heterogeneity_weight: float,
        capacity: int | None = None,
    ) -> None:
        self.home = home.copy()
        self.labels = labels
        self.target = target
        self.heterogeneity_weight = heterogeneity_weight
        self.capacity = capacity
        present = np.flatnonzero(home != ABSENT)
        self.sizes = np.bincount(home[present], minlength=edges)
        self.held = np.zeros((edges, labels.shape[1]), dtype=np.int64)
        np.add.at(self.held, home[present], labels[present])

    @property
    def full(self) -> npt.NDArray[np.bool_]:
        """Return a mask of the edges that have reached their capacity."""
        return np.zeros(len(self.sizes), np.bool_) if self.capacity is None else self.sizes >= self.capacity

    def assign(self, client: int, edge: int) -> None:
        """Move a client to an edge, or to none (`ABSENT`)."""
        for place, sign in ((int(self.home[client]), -1), (edge, 1)):
            if place != ABSENT:
                self.held[place] += sign * self.labels[client]
                self.sizes[place] += sign
        self.home[client] = edge

    def divergence(self, reference: Floats) -> Floats:
        """Return the Jensen-Shannon divergence of each edge from a reference; without samples it is 0."""
        return _divergences(self.held, reference)

    def costs(self, client: int, latency_ms: Floats) -> Floats:
        """Return the cost that a client with these latencies adds to each edge."""
        without = self.held.copy()
        if self.home[client] != ABSENT:  # as if it had left: all edges are compared alike
            without[self.home[client]] -= self.labels[client]
        added = _divergences(without + self.labels[client], self.target) - _divergences(without, self.target)
        costs: Floats = latency_ms + self.heterogeneity_weight * added
        return costs

    def cheapest(self, client: int, latency_ms: Floats) -> int:
        """Return the edge for a client that joins: the nearest empty edge, else the cheapest with room.

        If all edges in reach are full, it is the cheapest of them.
        """
        costs = self.costs(client, latency_ms)
        for choice in (np.where(self.sizes == 0, latency_ms, np.inf), np.where(self.full, np.inf, costs)):
            if np.isfinite(choice).any():
                return int(np.argmin(choice))
        return int(np.argmin(costs))

    def repair(self, latency_ms: Floats, switching_cost: float) -> list[Switch]:
        """Move clients where that lowers the cost by more than the switching cost, and return the moves.

        First each empty edge takes the client nearest to it, as in the association. Then every client, in
        the order of ids, moves to the edge where it adds least if that saves more than `switching_cost`.
        Each decision sees the moves before it. The last client of an edge stays. `latency_ms` is
        `[edges, clients]`.
        """
        switches = []

        def switch(client: int, target: int) -> None:
            switches.append(Switch(client, int(self.home[client]), target))
            self.assign(client, target)

        for edge in np.flatnonzero(self.sizes == 0).tolist():
            spare = np.flatnonzero((self.home != ABSENT) & (self.sizes[self.home] > 1))
            spare = spare[np.isfinite(latency_ms[edge, spare])]
            if len(spare):
                switch(int(spare[np.argmin(latency_ms[edge, spare])]), edge)
        for client in np.flatnonzero(self.home != ABSENT).tolist():
            source = int(self.home[client])
            if self.sizes[source] > 1:
                costs = self.costs(client, latency_ms[:, client])
                open_costs = np.where(self.full, np.inf, costs)
                target = int(np.argmin(open_costs))
                if float(costs[source]) - float(open_costs[target]) > switching_cost:
                    switch(client, target)
        return switches


def _divergences(held: Counts, target: Floats) -> Floats:
    total = held.sum(axis=1, keepdims=True)
    return np.where(total[:, 0] > 0, js_divergences(held / np.maximum(total, 1), target), 0.0)
