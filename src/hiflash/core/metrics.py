"""Metrics: what a test of the global model gives, which direction is better, and how it is written."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from hiflash.errors import ConfigError

__all__ = ["ACCURACY", "LOSS", "Metric", "find_metric"]


@dataclass(frozen=True)
class Metric:
    """A number that a task measures on the test set.

    A `share` lies in 0..1 and is written in percent.

    >>> Metric("rmse", "lower").reached(0.39, 0.4)
    True
    """

    name: str
    better: Literal["higher", "lower"]
    unit: Literal["share", "number"] = "number"

    def reached(self, value: float | None, target: float) -> bool:
        """Return whether a value is at the target or better; an unknown one is not."""
        if value is None or math.isnan(value):
            return False
        return value >= target if self.better == "higher" else value <= target

    def best(self, values: Iterable[float | None]) -> float | None:
        """Return the best of the known values, None if there is none."""
        known = [value for value in values if value is not None and math.isfinite(value)]
        return (max if self.better == "higher" else min)(known, default=None)

    def text(self, value: float) -> str:
        """Return a value as words write it: 91.3%, 0.4127."""
        return f"{value:.1%}" if self.unit == "share" else f"{value:.4g}"

    def check_target(self, target: float) -> None:
        """Raise unless a run could reach this target."""
        if self.unit == "share" and not 0 < target <= 1:
            raise ConfigError(
                f'stop.target must be in (0, 1] or "none" for {self.name}, which is a share, got {target:g}'
            )


ACCURACY = Metric("accuracy", "higher", "share")
LOSS = Metric("loss", "lower")


def find_metric(name: str, metrics: Sequence[Metric], task: str) -> Metric:
    """Return the metric `name` of a task; `auto` is the task's first."""
    if name == "auto":
        return metrics[0]
    for metric in metrics:
        if metric.name == name:
            return metric
    names = [metric.name for metric in metrics]
    close = difflib.get_close_matches(name, names, 1)
    hint = f" did you mean {close[0]}?" if close else ""
    raise ConfigError(f"stop.metric {name}: the task {task} has {', '.join(names)};{hint or ' choose one'}")
