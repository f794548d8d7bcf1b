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

__all__ = ["TARGETS", "VALIDATION", "Goals", "Record", "Tally"]

TARGETS = (0.7, 0.8, 0.85, 0.9, 0.95)  # of accuracy; another metric has no scale of its own
VALIDATION = "validation_"  # before the name of a metric on the validation set
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
    an evaluation returns, in order. If the run is `validated`, it returns them on the test set and then on
    the validation set, and the latter alone ends the run.
    """

    every: int
    target: float | None
    chance: float | None = None
    metric: Metric = ACCURACY
    metrics: tuple[Metric, ...] = (ACCURACY, LOSS)
    validated: bool = False

    @property
    def names(self) -> list[str]:
        """Return the names of the values of an evaluation, in their order."""
        names = [metric.name for metric in self.metrics]
        return names + [f"{VALIDATION}{name}" for name in names if self.validated]

    @property
    def watched(self) -> str:
        """Return the name of the value that ends the run."""
        return f"{VALIDATION}{self.metric.name}" if self.validated else self.metric.name


class Record(Stateful):
    """The evaluations of a run, simulated or deployed, and the targets that they reached on the test set.

    `validation_targets` are those reached on the validation set, empty without one.
    """

    STATE: ClassVar[tuple[str, ...]] = ("evaluations", "targets", "targets_stable")

    def __init__(self, goals: Goals) -> None:
        self.goals = goals
        self._goal = None if goals.target is None else str(goals.target)
        usual = TARGETS if goals.metric.name == "accuracy" else ()
        wanted = sorted({*usual, *([] if goals.target is None else [goals.target])})
        self.evaluations: list[dict[str, Any]] = []
        self.targets: dict[str, dict[str, Any] | None] = {str(goal): None for goal in wanted}
        self.targets_stable: dict[str, dict[str, Any] | None] = dict(self.targets)
        self.validation_targets = dict(self.targets) if goals.validated else {}

    @property
    def reached(self) -> bool:
        """Return whether the target was reached, on the validation set if there is one."""
        targets = self.validation_targets if self.goals.validated else self.targets
        return self._goal is not None and targets[self._goal] is not None

    @property
    def success(self) -> str | None:
        """Return the reason for a stop if the target was reached."""
        if not self.reached:
            return None
        metric = "" if self.goals.metric == ACCURACY else f"{self.goals.metric.name} "
        where = " on the validation set" if self.goals.validated else ""
        return f"target {metric}{self.goals.target} reached{where}"

    @property
    def targets_interpolated(self) -> dict[str, dict[str, float] | None]:
        """Return where the line between two evaluations crosses each target, None for those never reached."""
        return interpolated(self.evaluations, self.goals.metric, self.targets)

    @property
    def latest(self) -> float | None:
        """Return the metric of the last evaluation on the test set, None before the first."""
        return self.evaluations[-1][self.goals.metric.name] if self.evaluations else None

    @property
    def watched(self) -> float | None:
        """Return the metric of the last evaluation on the set that ends the run, None before the first."""
        return self.evaluations[-1][self.goals.watched] if self.evaluations else None

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot. It has the evaluations, which say where targets were reached."""
        super().restore(state)
        self.validation_targets = dict.fromkeys(self.validation_targets)
        for row in self.evaluations:
            self._look_at_validation(row)

    def status(self) -> dict[str, Any]:
        """Return the latest value of the metric, and what it is, for a live view."""
        metric = self.goals.metric
        return {
            metric.name: self.latest,
            "metric": metric.name,
            "metric_better": metric.better,
            "metric_unit": metric.unit,
            "target": self.goals.target,
            **({"validation": {"scores": {metric.name: self.watched}}} if self.goals.validated else {}),
        }

    def add(self, totals: Mapping[str, Any], version: int, values: Sequence[float]) -> dict[str, Any]:
        """Take the values of an evaluation, with its coordinates, and return its row."""
        row = {**totals, "version": version}
        for name, value in zip(self.goals.names, values, strict=True):
            row[name] = value if math.isfinite(value) else None  # JSON has no NaN
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
        self._look_at_validation(row)
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

    def _look_at_validation(self, row: Mapping[str, Any]) -> None:
        """Take note of the targets that an evaluation is the first to reach on the validation set."""
        for goal, known in self.validation_targets.items():
            if known is None and self.goals.metric.reached(row[self.goals.watched], float(goal)):
                self.validation_targets[goal] = {name: row[name] for name in FIGURES}
