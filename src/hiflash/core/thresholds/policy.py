"""How stale a model may be when it arrives, and who decides that (paper, section 5.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from hiflash.messages import EdgeCosts

__all__ = ["REFUSE", "CloudView", "LeaseView", "ThresholdPolicy", "admits"]

REFUSE = -1


class LeaseView(NamedTuple):
    """An open lease as a policy sees it; `eta` is when its upload is expected, never before now."""

    edge: int
    base_version: int
    threshold: float
    granted_at: float
    eta: float


class CloudView(NamedTuple):
    """What a policy may look at: the version, the open leases, and what edges have declared.

    `costs` are those of edges that have checked in; `examples` has all edges, with 0 for one without clients.
    `cost_unit_s` are the seconds of computing and of sending that cost one.
    """

    now: float
    version: int
    leases: tuple[LeaseView, ...]
    costs: dict[int, EdgeCosts]
    examples: dict[int, int]
    slot_s: float = 1.0
    cost_unit_s: tuple[float, float] = (1.0, 1.0)


class ThresholdPolicy(Protocol):
    """Acting only; learning is elsewhere."""

    def decide(self, view: CloudView, edge: int) -> float:
        """Return the staleness that the edge's next upload may have, or `REFUSE`."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """Return what a resumed run needs to go on deciding alike."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back a snapshot."""
        ...


def admits(view: CloudView, candidate: LeaseView) -> bool:
    """Return whether every open lease and the candidate are expected to arrive fresh enough.

    An upload ages by one for each other upload that arrives before it, so lease j is expected to
    arrive with staleness `(version - base_j) + #{i != j: eta_i < eta_j}`. Of two that are expected at the
    same time one will be first all the same; it is taken to be the one that was granted first.
    """
    leases = sorted((*view.leases, candidate), key=lambda lease: lease.eta)  # stable: ties keep the order
    for earlier, lease in enumerate(leases):
        if view.version - lease.base_version + earlier > lease.threshold:
            return False
    return True
