"""Staleness thresholds: the interface of threshold policies, and admission (paper, section 5.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from hiflash.messages import EdgeCosts

__all__ = ["REFUSE", "CloudView", "LeaseView", "ThresholdPolicy", "admits"]

REFUSE = -1


class LeaseView(NamedTuple):
    """An open lease as a policy sees it; `eta` is the expected arrival of its upload, never before now."""

    edge: int
    base_version: int
    threshold: float
    granted_at: float
    eta: float


class CloudView(NamedTuple):
    """The cloud as a policy sees it: the version, the open leases, and the declared costs of edges.

    `costs` has the edges that have checked in. `examples` has all edges, with 0 for an edge without clients.
    `cost_unit_s` has the cost units of computing and of sending, in seconds.
    """

    now: float
    version: int
    leases: tuple[LeaseView, ...]
    costs: dict[int, EdgeCosts]
    examples: dict[int, int]
    slot_s: float = 1.0
    cost_unit_s: tuple[float, float] = (1.0, 1.0)


class ThresholdPolicy(Protocol):
    """Chooses a threshold for an edge that checks in, or refuses it. Learning is not its task."""

    def decide(self, view: CloudView, edge: int) -> float:
        """Return the staleness that the edge's next upload may have, or `REFUSE`."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """Return the state that a resumed run needs for the same decisions."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back a snapshot."""
        ...


def admits(view: CloudView, candidate: LeaseView) -> bool:
    """Return whether every open lease and the candidate are expected to stay within their thresholds.

    An upload ages by one for each other upload that arrives before it, so lease j is expected to
    arrive with staleness `(version - base_j) + #{i != j: eta_i < eta_j}`. Of two leases with the same eta,
    the one that was granted first counts as earlier.
    """
    leases = sorted((*view.leases, candidate), key=lambda lease: lease.eta)  # stable: ties keep the order
    for earlier, lease in enumerate(leases):
        if view.version - lease.base_version + earlier > lease.threshold:
            return False
    return True
