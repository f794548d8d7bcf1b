"""Repairing an association while a run goes on: who is better off at another edge (paper, section 5.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hiflash.core.membership import ABSENT

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
    """Who belongs to which edge, and what a client adds to the cost of an edge, in milliseconds.

    The cost of an association is the sum of its latencies and of lambda times its total divergence. At
    edge m client k adds `L^{m,k} + lambda * (JS(with k) - JS(without k))`: the COST of the paper less what
    the edge has anyway. COST itself would let every client go where the divergence is lowest, which is
    where most clients are, until all are at one edge (docs/mobility.md).

    `labels` is `[clients, classes]`; divergence is from the labels of all clients, absent ones too, so
    that the reference stays the same. An infinite latency is that of an edge which cannot be reached.
    """

    def __init__(self, home: Ints, edges: int, labels: Counts, *, heterogeneity_weight: float) -> None:
        self.home = home.copy()
        self.labels = labels
        self.heterogeneity_weight = heterogeneity_weight
        self.reference = _shares(labels.sum(axis=0))
        present = np.flatnonzero(home != ABSENT)
        self.sizes = np.bincount(home[present], minlength=edges)
        self.held = np.zeros((edges, labels.shape[1]), dtype=np.int64)
        np.add.at(self.held, home[present], labels[present])

    def assign(self, client: int, edge: int) -> None:
        """Let a client belong to an edge, or to none (`ABSENT`)."""
        for place, sign in ((int(self.home[client]), -1), (edge, 1)):
            if place != ABSENT:
                self.held[place] += sign * self.labels[client]
                self.sizes[place] += sign
        self.home[client] = edge

    def divergence(self) -> Floats:
        """Return the Jensen-Shannon divergence of each edge from all labels; an empty edge has none."""
        return _js(_shares(self.held), self.reference)

    def costs(self, client: int, latency_ms: Floats) -> Floats:
        """Return what a client with these latencies adds to the cost of each edge."""
        without = self.held.copy()
        if self.home[client] != ABSENT:  # it counts where it would be, not where it is
            without[self.home[client]] -= self.labels[client]
        both = np.stack([without + self.labels[client], without])
        divergence = _js(_shares(both), self.reference)
        costs: Floats = latency_ms + self.heterogeneity_weight * (divergence[0] - divergence[1])
        return costs

    def cheapest(self, client: int, latency_ms: Floats) -> int:
        """Return the edge for a client that joins: the nearest without a client, else the cheapest."""
        empty = np.where(self.sizes == 0, latency_ms, np.inf)
        if np.isfinite(empty).any():
            return int(np.argmin(empty))
        return int(np.argmin(self.costs(client, latency_ms)))

    def repair(self, latency_ms: Floats, switching_cost: float) -> list[Switch]:
        """Change the edge of clients where that lowers the cost by more than the switching cost.

        First each empty edge takes the client nearest to it, as in the association. Then every client in
        turn, by id, goes where it adds least if that saves more than `switching_cost`; each sees what
        those before it did. The last client of an edge stays. `latency_ms` is `[edges, clients]`.
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
                target = int(np.argmin(costs))
                if float(costs[source]) - float(costs[target]) > switching_cost:
                    switch(client, target)
        return switches


def _shares(counts: Counts) -> Floats:
    """Return counts as shares along the last axis; of nothing there are none."""
    shares: Floats = counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1)
    return shares


def _js(p: Floats, q: Floats) -> Floats:
    """Return the Jensen-Shannon divergence of each row of `p` from `q`; that of an empty row is 0."""
    middle = (p + q) / 2
    with np.errstate(divide="ignore", invalid="ignore"):  # 0 log 0 = 0
        from_p = np.where(p > 0, p * np.log2(p / middle), 0.0).sum(axis=-1)
        from_q = np.where(q > 0, q * np.log2(q / middle), 0.0).sum(axis=-1)
    divergence: Floats = np.clip((from_p + from_q) / 2, 0.0, 1.0)
    return np.where(p.any(axis=-1), divergence, 0.0)
