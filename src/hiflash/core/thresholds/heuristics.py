"""Threshold policies that follow simple rules: the baselines of a learned policy."""

from __future__ import annotations

import math
import statistics
from typing import Any

from hiflash.core.registry import Key, Part
from hiflash.core.state import Stateful
from hiflash.core.thresholds.policy import REFUSE, CloudView

__all__ = ["PARTS", "KeepParallel", "LatencyAware", "SkipSlowest"]


class KeepParallel(Stateful):
    """The smallest threshold that lets `parallelism` edges run at the same time; it refuses further edges.

    An upload ages by one for each upload that arrives before it. Edge j, with leases of duration d_j, uploads
    once if its lease is due before the candidate's. It starts again at once, so it uploads once more for each
    whole d_j in between. The threshold is the number of these uploads: a smaller one would hold the other
    edges up, a larger one would let in staler models. Free places count as edges of the median duration.
    """

    def __init__(self, parallelism: int) -> None:
        self.parallelism = parallelism

    def decide(self, view: CloudView, edge: int) -> float:
        """Return the expected staleness beside `parallelism` - 1 edges, `REFUSE` if no place is free."""
        if len(view.leases) >= self.parallelism:
            return REFUSE
        eta = view.now + view.costs[edge].duration_s
        usual_s = statistics.median(costs.duration_s for costs in view.costs.values())
        others = [(lease.eta, view.costs[lease.edge].duration_s) for lease in view.leases]
        others += [(view.now + usual_s, usual_s)] * (self.parallelism - 1 - len(others))
        return sum(_arrivals(first, every, eta) for first, every in others)


class LatencyAware(Stateful):
    """Grants more staleness to slower edges: `base * duration / median duration`, rounded, at most `maximum`.

    While a slow edge trains, more uploads of other edges arrive. One threshold for all either keeps slow
    edges out or lets fast edges return stale. A threshold in proportion to the duration is equally strict
    for all.
    """

    def __init__(self, base: float, maximum: int) -> None:
        self.base = base
        self.maximum = maximum

    def decide(self, view: CloudView, edge: int) -> float:
        """Return the threshold for an edge of this duration."""
        usual_s = statistics.median(costs.duration_s for costs in view.costs.values())
        if usual_s == 0:
            return min(round(self.base), self.maximum)
        return min(round(self.base * view.costs[edge].duration_s / usual_s), self.maximum)


class SkipSlowest(Stateful):
    """A fixed threshold for all but the slowest edges, which are always refused.

    The rule is cheap, but ignores which data it leaves out. It compares the durations that edges declare when
    they check in, and skips no edge until every edge with clients has checked in. It never skips the fastest
    edge.
    """

    def __init__(self, threshold: float, skipped: int) -> None:
        self.threshold = threshold
        self.skipped = skipped

    def decide(self, view: CloudView, edge: int) -> float:
        """Return the threshold, or `REFUSE` for one of the slowest edges."""
        peopled = sum(1 for examples in view.examples.values() if examples)
        if len(view.costs) < peopled:
            return self.threshold
        slowest = sorted(view.costs, key=lambda m: (-view.costs[m].duration_s, m))
        return REFUSE if edge in slowest[: min(self.skipped, peopled - 1)] else self.threshold


def _arrivals(first: float, every: float, until: float) -> int:
    """Return the number of an edge's uploads before `until`: one at `first`, then one per `every` seconds."""
    if first >= until:
        return 0
    return math.ceil((until - first) / every) if every > 0 else 1


def _too_many_skipped(config: Any) -> str | None:
    if config.cloud.skipped < config.units:
        return None
    of = "federation.clients" if config.federation.flat else "federation.edges"
    return f"cloud.skipped ({config.cloud.skipped}) must be less than {of} ({config.units})"


PARALLELISM = Key(
    "parallelism",
    int,
    default=3,
    low=1,
    high=10_000_000,
    about="threshold parallel: how many edges should run at the same time",
)
BASE_THRESHOLD = Key(
    "base_threshold",
    int,
    default=2,
    low=0,
    high=1_000_000,
    about="thresholds latency (for a median edge) and skip_slowest (for those not skipped)",
)
SKIPPED = Key(
    "skipped",
    int,
    default=2,
    low=0,
    high=1_000_000,
    about="threshold skip_slowest: how many edges are always refused",
)

PARTS = (
    Part(
        "parallel",
        "the smallest threshold with which `parallelism` edges can run at the same time: how many of them "
        "arrive before this one, those that start again in the meantime included; any beyond is refused",
        lambda config: KeepParallel(config.cloud.parallelism),
        keys=(PARALLELISM,),
    ),
    Part(
        "latency",
        "`base_threshold` times the edge's duration over the median one, rounded, at most `threshold_max`",
        lambda config: LatencyAware(config.cloud.base_threshold, config.cloud.threshold_max),
        keys=(BASE_THRESHOLD,),
        reads=("threshold_max",),
    ),
    Part(
        "skip_slowest",
        "`base_threshold`, and a refusal for the `skipped` slowest of the edges that have clients, once all "
        "of them have checked in",
        lambda config: SkipSlowest(config.cloud.base_threshold, config.cloud.skipped),
        keys=(SKIPPED,),
        reads=("base_threshold",),
        problem=_too_many_skipped,
    ),
)
