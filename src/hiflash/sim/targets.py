"""Where a run reached its targets, between two evaluations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hiflash.core.metrics import Metric

__all__ = ["FIGURES", "crossing", "interpolated"]

FIGURES = ("communications", "client_steps", "virtual_s", "wan_bytes", "total_cost")

Row = Mapping[str, Any]


def interpolated(
    evaluations: Sequence[Row], metric: Metric, goals: Iterable[str]
) -> dict[str, dict[str, float] | None]:
    """Return the figures at which a line between two evaluations crosses each goal, None if it never does.

    The second evaluation is the first one at the goal or better. Where none precedes it, or the metric of
    that one is unknown, the figures are its own.

    >>> rows = [dict.fromkeys(FIGURES, at) | {"rmse": rmse} for at, rmse in ((10, 8.0), (20, 4.0))]
    >>> interpolated(rows, Metric("rmse", "lower"), ["7"])["7"]["communications"]
    12.5
    """
    return {goal: crossing(evaluations, metric, float(goal)) for goal in goals}


def crossing(
    evaluations: Sequence[Row], metric: Metric, goal: float, names: Sequence[str] = FIGURES
) -> dict[str, float] | None:
    """Return the figures with these names where a line between two evaluations crosses a goal."""
    values = [row[metric.name] for row in evaluations]
    after = next((place for place, value in enumerate(values) if metric.reached(value, goal)), None)
    if after is None:
        return None
    before = after - 1
    if before < 0 or values[before] is None:
        return {name: float(evaluations[after][name]) for name in names}
    share = (goal - values[before]) / (values[after] - values[before])
    first, second = evaluations[before], evaluations[after]
    return {name: first[name] + share * (second[name] - first[name]) for name in names}
