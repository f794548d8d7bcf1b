"""The numbers of a run, and the record of its evaluations: targets reached, signs that it does not learn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from hiflash.core.metrics import ACCURACY, LOSS, Metric
from hiflash.core.state import Stateful
from hiflash.messages import Weights
from hiflash.sim.targets import FIGURES, interpolated

__all__ = ["TARGETS", "Goals", "Record", "Tally"]

TARGETS = (0.7, 0.8, 0.85, 0.9, 0.95)  # of accuracy; another metric has no scale of its own
STABLE = 5  # consecutive evaluations whose mean must reach a target
MANY_REJECTED = 10  # fewer may happen by chance: one client diverges, or an attack is tried
REASONS = {
    "not finite": "not finite (client.lr may be too large)",
    "norm": "changed more than cloud.norm_bound allows",
}


class Tally(Protocol):
    """The numbers of a run: those of an `Engine`, or of a deployed cloud."""

    @property
    def weights(self) -> Weights:
        """Return the global model."""
        ...

    @property
    def version(self) -> int:
        """Return the number of updates of the global model."""
        ...

    @property
    def clusters(self) -> list[list[int]]:
        """Return the clients that belong to each edge."""
        ...

    @property
    def kept(self) -> Mapping[int, Weights]:
        """Return the values that clients do not share, by client, as far as they are known here."""
        ...

    def totals(self) -> dict[str, Any]:
        """Return the coordinates of an evaluation."""
        ...

    def figures(self) -> dict[str, Any]:
        """Return the other figures of a result."""
        ...

    def spent(self) -> dict[str, Any]:
        """Return the privacy ledger; empty without one. It takes a while to compute."""
        ...

    def edges_ms(self) -> dict[str, list[float]]:
        """Return response latency and waiting time of every edge."""
        ...


@dataclass(frozen=True)
class Goals:
    """The communications between evaluations, and the value of `metric` that ends the run.

    `chance` is the metric of a model that always gives the same answer, None if unknown. `metrics` names what
    an evaluation returns, in order.
    """

    every: int
    target: float | None
    chance: float | None = None
    metric: Metric = ACCURACY
    metrics: tuple[Metric, ...] = (ACCURACY, LOSS)


class Record(Stateful):
    """The evaluations of a run, simulated or deployed, and the targets that they reached."""

    STATE: ClassVar[tuple[str, ...]] = ("evaluations", "targets", "targets_stable")

    def __init__(self, goals: Goals) -> None:
        self.goals = goals
        self._goal = None if goals.target is None else str(goals.target)
        usual = TARGETS if goals.metric.name == "accuracy" else ()
        wanted = sorted({*usual, *([] if goals.target is None else [goals.target])})
        self.evaluations: list[dict[str, Any]] = []
        self.targets: dict[str, dict[str, Any] | None] = {str(goal): None for goal in wanted}
        self.targets_stable: dict[str, dict[str, Any] | None] = dict(self.targets)

    @property
    def reached(self) -> bool:
        """Return whether the target was reached."""
        return self._goal is not None and self.targets[self._goal] is not None

    @property
    def success(self) -> str | None:
        """Return the reason for a stop if the target was reached."""
        if not self.reached:
            return None
        metric = "" if self.goals.metric == ACCURACY else f"{self.goals.metric.name} "
        return f"target {metric}{self.goals.target} reached"

    @property
    def targets_interpolated(self) -> dict[str, dict[str, float] | None]:
        """Return where the line between two evaluations crosses each target, None for those never reached."""
        return interpolated(self.evaluations, self.goals.metric, self.targets)

    @property
    def latest(self) -> float | None:
        """Return the metric of the last evaluation, None before the first."""
        return self.evaluations[-1][self.goals.metric.name] if self.evaluations else None

    def status(self) -> dict[str, Any]:
        """Return the latest value of the metric, and what it is, for a live view."""
        metric = self.goals.metric
        return {
            metric.name: self.latest,
            "metric": metric.name,
            "metric_better": metric.better,
            "metric_unit": metric.unit,
            "target": self.goals.target,
        }

    def add(self, totals: Mapping[str, Any], version: int, values: Sequence[float]) -> dict[str, Any]:
        """Take the values of an evaluation, with its coordinates, and return its row."""
        row = {**totals, "version": version}
        for each, value in zip(self.goals.metrics, values, strict=True):
            row[each.name] = value if math.isfinite(value) else None  # JSON has no NaN
        self.evaluations.append(row)
        metric = self.goals.metric
        recent = [evaluation[metric.name] for evaluation in self.evaluations[-STABLE:]]
        mean = None if None in recent else sum(recent) / len(recent)
        where = {name: row[name] for name in FIGURES}
        for goal in self.targets:
            if self.targets[goal] is None and metric.reached(recent[-1], float(goal)):
                self.targets[goal] = where
            stable = len(recent) == STABLE and metric.reached(mean, float(goal))
            if self.targets_stable[goal] is None and stable:
                self.targets_stable[goal] = where
        return row

    def signs(self, rejections: Mapping[str, int]) -> list[str]:
        """Return the signs that this run does not learn, each in a few words."""
        found = []
        last = self.evaluations[-1] if self.evaluations else None
        if last is not None and last["loss"] is None:
            found.append("the test loss is not finite: try a smaller client.lr, or client.clip_norm")
        for reason, count in rejections.items():
            if count >= MANY_REJECTED:
                found.append(f"{count:,} updates did not count: {REASONS.get(reason, reason)}")
        chance, metric = self.goals.chance, self.goals.metric
        if last is not None and chance is not None and len(self.evaluations) >= STABLE:
            best = metric.best(row[metric.name] for row in self.evaluations[-STABLE:])
            first_loss, loss = self.evaluations[0]["loss"], last["loss"]
            falling = None not in (first_loss, loss) and loss < first_loss  # slow, but it learns
            if best is not None and metric.reached(chance, best) and not falling:
                got, same = metric.text(best), metric.text(chance)
                found.append(f"did not learn: {metric.name} {got}, always the same answer gives {same}")
        return found
