"""What figures and tables both need from results: groups by method, and the state at the target."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["MEASURES", "Result", "at_target", "by_method", "common_target", "known"]

Result = Mapping[str, Any]
"""What a `result.json` holds."""

MEASURES = ("communications", "client_steps", "virtual_s", "wan_bytes", "total_cost")
"""What it took to get to a target; the same names in a result, its evaluations and its targets."""


def by_method(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Each method's results, methods in the order in which they first appear."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result["method"], []).append(result)
    return groups


def common_target(results: Sequence[Result]) -> float | None:
    """Return the target that all the results can be judged by: the lowest one set, or None if none is."""
    return min((r["stop_target"] for r in results if r["stop_target"] is not None), default=None)


def at_target(result: Result, target: float | None) -> Mapping[str, Any] | None:
    """Return the measures at the target, None if it was not reached; without a target, those at the end."""
    if target is None:
        return result
    targets: Mapping[str, Mapping[str, Any] | None] = result["targets"]
    for text, reached in targets.items():
        if math.isclose(float(text), target):
            return reached
    # A run with another stop target may not list this one; its evaluations still tell.
    return next((e for e in result["evaluations"] if known(e["accuracy"]) and e["accuracy"] >= target), None)


def known(value: float | None) -> bool:
    """Whether there is a number to show: neither None nor NaN."""
    return value is not None and math.isfinite(value)
