"""State of a run while it is watched, and the time left for several of them."""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Literal

from hiflash.core.metrics import Metric
from hiflash.report.outcome import metric_of

__all__ = ["RunState", "TimeLeft", "time_left"]


@dataclass
class RunState:
    """State and latest numbers of one run. `elapsed_s` is its wall time so far, or all of it once done."""

    name: str
    state: Literal["waiting", "running", "done"] = "waiting"
    latest: Mapping[str, Any] = field(default_factory=dict)
    elapsed_s: float = 0.0

    @property
    def target(self) -> float | None:
        """The value of the metric that ends the run, None without one."""
        target: float | None = self.latest.get("target")
        return target

    @property
    def reached(self) -> bool:
        """Whether the metric is at the target: such a run is over, even if it still writes its files."""
        return self.target is not None and self.metric.reached(self.watched, self.target)

    @property
    def metric(self) -> Metric:
        """The metric of the run."""
        return metric_of(self.latest)

    @property
    def score(self) -> float | None:
        """The latest value of the metric, None before the first evaluation."""
        scores = self.latest.get("scores") or self.latest  # of a result, or of a report on its way
        value: float | None = scores.get(self.metric.name)
        return value

    @property
    def watched(self) -> float | None:
        """The latest value of the metric on the set that ends the run."""
        told = self.latest.get("validation")
        return told["scores"].get(self.metric.name) if told else self.score

    @property
    def fraction(self) -> float | None:
        """The finished part of the run, None if unknown."""
        fraction: float | None = self.latest.get("fraction")
        return 1.0 if self.state == "done" or self.reached else fraction

    @property
    def eta_s(self) -> float | None:
        """Seconds left if the rest of the budget takes as long as the used part did, None if unknown."""
        fraction, wall_s = self.fraction, self.latest.get("wall_s")
        return wall_s * (1 - fraction) / fraction if fraction and wall_s else None

    @property
    def may_end_early(self) -> bool:
        """Whether the target may end the run before its budget does, which makes the ETA an upper bound."""
        return self.target is not None and not self.reached


@dataclass(frozen=True)
class TimeLeft:
    """Estimated seconds left for several runs; `at_most` marks an upper bound."""

    seconds: float
    at_most: bool


def time_left(runs: Sequence[RunState], processes: int) -> TimeLeft | None:
    """Return the time left for all runs, None as long as nothing tells how long a run takes.

    The length of a run is estimated as the mean of the finished runs, or else of the running ones as
    projected from their budgets. A running run is expected to end at that length, or at its own projection
    if that is earlier, if it has no target, or if it has run for longer already.
    """
    running = [run for run in runs if run.state == "running"]
    waiting = sum(run.state == "waiting" for run in runs)
    finished = [run.elapsed_s for run in runs if run.state == "done" and run.elapsed_s > 0]
    projected = [run.elapsed_s + run.eta_s for run in running if run.eta_s is not None]
    if not running and not waiting:
        return TimeLeft(0.0, at_most=False)
    if not finished and not projected:
        return None
    length = fmean(finished or projected)
    lefts = [_left_of(run, length, measured=bool(finished)) for run in running]
    # Waiting runs start one by one, each in the process that is free first.
    free_s = heapq.nlargest(processes, [*(left.seconds for left in lefts), *[0.0] * processes])
    heapq.heapify(free_s)
    for _ in range(waiting):
        heapq.heapreplace(free_s, free_s[0] + length)
    return TimeLeft(max(free_s), any(left.at_most for left in lefts))


def _left_of(run: RunState, length: float, *, measured: bool) -> TimeLeft:
    expected = length - run.elapsed_s
    if run.eta_s is None:
        return TimeLeft(max(expected, 0.0), at_most=False)
    if measured and run.may_end_early and 0 < expected < run.eta_s:
        return TimeLeft(expected, at_most=False)
    return TimeLeft(run.eta_s, run.may_end_early)
