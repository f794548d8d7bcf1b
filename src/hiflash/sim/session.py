"""A run from start to stop: a session steps an `Engine`, evaluates, checks budgets and keeps the record."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from hiflash.core.metrics import ACCURACY, LOSS, Metric
from hiflash.core.state import Stateful
from hiflash.messages import Weights
from hiflash.sim.targets import FIGURES, interpolated

__all__ = ["TARGETS", "Engine", "Goals", "Hooks", "Session"]

TARGETS = (0.7, 0.8, 0.85, 0.9, 0.95)  # of accuracy; another metric has no scale of its own
STABLE = 5  # consecutive evaluations whose mean must reach a target
PROGRESS_S = 0.2
MANY_REJECTED = 10  # fewer may happen by chance: one client diverges, or an attack is tried
REASONS = {
    "not finite": "not finite (client.lr may be too large)",
    "norm": "changed more than cloud.norm_bound allows",
}


class Engine(Protocol):
    """The interface that a session steps: the simulator, or centralized training."""

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
        """Return the values that clients do not share, by client."""
        ...

    def start(self) -> None:
        """Schedule the first events."""
        ...

    def step(self) -> None:
        """Handle the next event."""
        ...

    def evaluations_due(self, every: int) -> int:
        """Return the number of evaluations due so far."""
        ...

    def used(self) -> dict[str, float]:
        """Return the share of each budget that is used up."""
        ...

    def totals(self) -> dict[str, Any]:
        """Return the coordinates of an evaluation."""
        ...

    def figures(self) -> dict[str, Any]:
        """Return the other figures of a result."""
        ...

    def edges_ms(self) -> dict[str, list[float]]:
        """Return response latency and waiting time of every edge."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot."""
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


def _quiet(*_: Any) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Hooks:
    """The callbacks of a run: log, progress, checkpoint and pause. By default they do nothing."""

    log: Callable[[float, str, Mapping[str, Any]], None] = _quiet
    progress: Callable[[dict[str, Any]], None] = _quiet
    checkpoint: Callable[[dict[str, Any]], None] = _quiet
    checkpoint_s: float = math.inf
    pause: Callable[[], bool] = bool  # bool() is False: never pause


class Session(Stateful):
    """Runs until the target, the end of a budget or a pause. Without `evaluate` there is no target."""

    STATE = ("evaluations", "targets", "targets_stable", "evaluated", "wall_s", "started")

    def __init__(
        self,
        engine: Engine,
        evaluate: Callable[[Weights], tuple[float, ...]] | None,
        goals: Goals,
        hooks: Hooks | None = None,
    ) -> None:
        self.engine = engine
        self.evaluate = evaluate
        self.goals = goals
        self.hooks = hooks or Hooks()
        self._goal = None if goals.target is None else str(goals.target)
        usual = TARGETS if goals.metric.name == "accuracy" else ()
        wanted = sorted({*usual, *([] if goals.target is None else [goals.target])})
        self.evaluations: list[dict[str, Any]] = []
        self.targets: dict[str, dict[str, Any] | None] = {str(goal): None for goal in wanted}
        self.targets_stable: dict[str, dict[str, Any] | None] = dict(self.targets)
        self.evaluated = 0
        self.wall_s = 0.0
        self.started = False
        self._tested: tuple[int, tuple[float, ...]] | None = None
        self._shown = self._saved = 0.0

    def run(self) -> str | None:
        """Run to the end and return the reason for the stop, None after a pause."""
        clock = time.monotonic()
        self._saved = clock
        if not self.started:
            self.engine.start()
            self.started = True
            self.hooks.checkpoint(self.snapshot())
        self.hooks.progress(self.status())
        while (reason := self.over()) is None:
            if self.hooks.pause():
                self.hooks.checkpoint(self.snapshot())
                return None
            self.advance()
            now = time.monotonic()
            self.wall_s += now - clock
            clock = now
            if now - self._shown >= PROGRESS_S:
                self._shown = now
                self.hooks.progress(self.status())
            if now - self._saved >= self.hooks.checkpoint_s:
                self._saved = now
                self.hooks.checkpoint(self.snapshot())
        if not self._evaluated_now():
            self._evaluate()
        self.wall_s += time.monotonic() - clock
        self.hooks.progress(self.status())
        return reason

    def advance(self) -> None:
        """Handle one event, and evaluate if an evaluation is due."""
        self.engine.step()
        if self.engine.evaluations_due(self.goals.every) > self.evaluated:
            self.evaluated = self.engine.evaluations_due(self.goals.every)
            self._evaluate()

    def status(self) -> dict[str, Any]:
        """Return the values for a live view."""
        totals, metric = self.engine.totals(), self.goals.metric
        return {
            "communications": totals["communications"],
            "client_steps": totals["client_steps"],
            "virtual_s": totals["virtual_s"],
            "version": self.engine.version,
            metric.name: self.evaluations[-1][metric.name] if self.evaluations else None,
            "metric": metric.name,
            "metric_better": metric.better,
            "metric_unit": metric.unit,
            "staleness": self.engine.figures()["staleness"]["mean"],
            "target": self.goals.target,
            "fraction": min(1.0, max(self.engine.used().values())),
            "wall_s": self.wall_s,
            "warnings": self.warnings(),
        }

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state of the run."""
        return super().snapshot() | {"engine": self.engine.snapshot()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a snapshot."""
        super().restore(state)
        self.engine.restore(state["engine"])

    @property
    def reached(self) -> bool:
        """Return whether the target was reached."""
        return self._goal is not None and self.targets[self._goal] is not None

    @property
    def targets_interpolated(self) -> dict[str, dict[str, float] | None]:
        """Return where the line between two evaluations crosses each target, None for those never reached."""
        return interpolated(self.evaluations, self.goals.metric, self.targets)

    def over(self) -> str | None:
        """Return the reason for the stop, None if the run goes on."""
        if self.reached:
            metric = "" if self.goals.metric == ACCURACY else f"{self.goals.metric.name} "
            return f"target {metric}{self.goals.target} reached"
        for budget, share in self.engine.used().items():
            if share >= 1:
                return f"{budget} used up"
        return None

    def warnings(self) -> list[str]:
        """Return the signs that this run does not learn, each in a few words."""
        found = []
        last = self.evaluations[-1] if self.evaluations else None
        if last is not None and last["loss"] is None:
            found.append("the test loss is not finite: try a smaller client.lr, or client.clip_norm")
        for reason, count in self.engine.figures()["rejections"].items():
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

    def _evaluated_now(self) -> bool:
        """Return whether the last evaluation is of the final model and the final count."""
        last = self.evaluations[-1] if self.evaluations else {}
        now = (self.engine.version, self.engine.totals()["communications"])
        return (last.get("version"), last.get("communications")) == now

    def _evaluate(self) -> None:
        if self.evaluate is None:  # nothing is trained: there is nothing to test
            return
        version = self.engine.version
        if self._tested is None or self._tested[0] != version:
            self._tested = (version, self.evaluate(self.engine.weights))
        row = {**self.engine.totals(), "version": version}
        for each, value in zip(self.goals.metrics, self._tested[1], strict=True):
            row[each.name] = value if math.isfinite(value) else None  # JSON has no NaN
        self.evaluations.append(row)
        self.hooks.log(row["virtual_s"], "evaluate", {k: v for k, v in row.items() if k != "virtual_s"})
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
