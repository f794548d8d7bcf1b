"""A run from start to stop: a session steps an `Engine`, evaluates, checks budgets and keeps the record."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from hiflash.messages import Weights
from hiflash.sim.record import Goals, Record, Tally

__all__ = ["Engine", "Hooks", "Session"]

PROGRESS_S = 0.2


class Engine(Tally, Protocol):
    """The interface that a session steps: the simulator, or centralized training."""

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

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot."""
        ...


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


class Session(Record):
    """Runs until the target, the end of a budget or a pause. Without `evaluate` there is no target."""

    STATE = (*Record.STATE, "evaluated", "wall_s", "started")

    def __init__(
        self,
        engine: Engine,
        evaluate: Callable[[Weights], tuple[float, ...]] | None,
        goals: Goals,
        hooks: Hooks | None = None,
    ) -> None:
        super().__init__(goals)
        self.engine = engine
        self.evaluate = evaluate
        self.hooks = hooks or Hooks()
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
        totals = self.engine.totals()
        return {
            "communications": totals["communications"],
            "client_steps": totals["client_steps"],
            "virtual_s": totals["virtual_s"],
            "version": self.engine.version,
            **super().status(),
            "staleness": self.engine.figures()["staleness"]["mean"],
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

    def over(self) -> str | None:
        """Return the reason for the stop, None if the run goes on."""
        if self.success is not None:
            return self.success
        for budget, share in self.engine.used().items():
            if share >= 1:
                return f"{budget} used up"
        return None

    def warnings(self) -> list[str]:
        """Return the signs that this run does not learn, each in a few words."""
        return self.signs(self.engine.figures()["rejections"])

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
        row = self.add(self.engine.totals(), version, self._tested[1])
        self.hooks.log(row["virtual_s"], "evaluate", {k: v for k, v in row.items() if k != "virtual_s"})
