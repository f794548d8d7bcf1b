"""How stale a model may be when it arrives, and who decides that (paper, section 5.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from hiflash.core.state import Stateful
from hiflash.messages import EdgeCosts
from hiflash.seeding import once, rng

__all__ = [
    "REFUSE",
    "CloudView",
    "FixedThreshold",
    "LeaseView",
    "RandomThreshold",
    "ThresholdPolicy",
    "UnevenThreshold",
    "admits",
]

REFUSE = -1
REFUSALS = (0.0, 0.0, 0.9, 1.0)  # how often an uneven policy refuses an edge: half of them never


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


class FixedThreshold(Stateful):
    """The same threshold for everyone; infinity never binds."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold

    def decide(self, view: CloudView, edge: int) -> float:
        """Return the threshold."""
        return self.threshold


class RandomThreshold(Stateful):
    """Uniform on 0..maximum, drawn anew at every ask: the paper's bar for learned thresholds."""

    STATE = ("asked",)

    def __init__(self, maximum: int, seed: int) -> None:
        self.maximum = maximum
        self.seed = seed
        self.asked = 0

    def decide(self, view: CloudView, edge: int) -> float:
        """Return the next draw."""
        self.asked += 1
        return int(once(self.seed, "threshold", self.asked).integers(self.maximum + 1))


class UnevenThreshold(RandomThreshold):
    """Random thresholds, but some edges are refused often or always: for runs that a surrogate is fitted to.

    Under random thresholds every edge takes part, and nothing can be learned about what it costs if one
    does not. How often each is refused is drawn once in a run.
    """

    def decide(self, view: CloudView, edge: int) -> float:
        """Return the next draw, or `REFUSE`."""
        self.asked += 1
        stream = rng(self.seed, "threshold", self.asked)
        if stream.random() < self._refusal(view, edge):
            return REFUSE
        return int(stream.integers(self.maximum + 1))

    def _refusal(self, view: CloudView, edge: int) -> float:
        """Return how often an edge is refused; if it would be all of them always, the first one never is."""
        peopled = sorted(m for m, examples in view.examples.items() if examples)
        first = peopled[:1] == [edge]
        return 0.0 if first and all(self._drawn(m) == 1 for m in peopled) else self._drawn(edge)

    def _drawn(self, edge: int) -> float:
        return float(rng(self.seed, "refusal", edge).choice(REFUSALS))


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
