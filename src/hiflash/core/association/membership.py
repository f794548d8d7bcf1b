"""The edge of every client while clients join, leave and change edges: clusters change between leases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hiflash.core.state import Stateful
from hiflash.errors import ProtocolError

__all__ = ["ABSENT", "Membership", "Transfer", "homes"]

ABSENT = -1

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Transfer:
    """A client enters the cluster of an edge, or leaves it."""

    client: int
    edge: int
    enters: bool


class Membership(Stateful):
    """Two edges per client: `home` is its assigned edge, `place` is the edge that has it in its cluster.

    The home may change at any time, the place only while the edge holds no lease. So a client first finishes
    the current lease and leaves. It enters its new edge when that edge is between leases too. Meanwhile it is
    in no cluster, so it never has two tasks at once.
    """

    STATE = ("home", "place", "busy", "unsettled")

    def __init__(self, place: Ints, home: Ints) -> None:
        self.home = home.copy()
        self.place = place.copy()
        self.busy: set[int] = set()  # edges that hold a lease
        self.unsettled: set[int] = set(np.flatnonzero(home != place).tolist())

    def present(self) -> Ints:
        """Return the clients that belong to an edge."""
        return np.flatnonzero(self.home != ABSENT)

    def absent(self) -> Ints:
        """Return the clients that belong to no edge."""
        return np.flatnonzero(self.home == ABSENT)

    def clusters(self, edges: int) -> list[list[int]]:
        """Return the clients that belong to each edge."""
        order = np.argsort(self.home, kind="stable")
        bounds = np.searchsorted(self.home[order], np.arange(edges + 1))
        return [order[bounds[m] : bounds[m + 1]].tolist() for m in range(edges)]

    def granted(self, edge: int) -> None:
        """Freeze the cluster of an edge: it has a lease now."""
        if edge in self.busy:
            raise ProtocolError(f"edge {edge} has a lease already; its clients cannot train under two")
        self.busy.add(edge)

    def returned(self, edge: int) -> None:
        """Let the cluster of an edge change again: its lease is over."""
        self.busy.remove(edge)

    def assign(self, client: int, edge: int) -> None:
        """Change the home of a client to another edge, or to none (`ABSENT`)."""
        self.home[client] = edge
        self.unsettled.add(client)

    def settle(self) -> list[Transfer]:
        """Make the cluster changes that the open leases allow, and return them."""
        transfers = []
        for client in sorted(self.unsettled):
            home, place = int(self.home[client]), int(self.place[client])
            if place not in (home, ABSENT) and place not in self.busy:
                transfers.append(Transfer(client, place, enters=False))
                place = ABSENT
            if place == ABSENT != home and home not in self.busy:
                transfers.append(Transfer(client, home, enters=True))
                place = home
            self.place[client] = place
            if place == home:
                self.unsettled.discard(client)
        return transfers

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state; the arrays change in place, so they are copied."""
        return super().snapshot() | {"home": self.home.copy(), "place": self.place.copy()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot."""
        super().restore({**state, "home": state["home"].copy(), "place": state["place"].copy()})


def homes(clusters: Sequence[Sequence[int]], clients: int) -> Ints:
    """Return the edge of each client, `ABSENT` if it has none.

    >>> homes([[1], [0, 3]], 4).tolist()
    [1, 0, -1, 1]
    """
    home = np.full(clients, ABSENT, dtype=np.int64)
    for edge, cluster in enumerate(clusters):
        home[list(cluster)] = edge
    return home
