"""Groups of results, and means over seeds at every target, for figures and tables."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from hiflash.report.measures import COSTS
from hiflash.report.outcome import best_name, best_of, easiest, final, metric_among, metric_of, validated

__all__ = [
    "VALIDATION",
    "Groups",
    "Result",
    "all_targets",
    "at_target",
    "by_partition",
    "common_target",
    "group",
    "is_reference",
    "known",
    "name_of",
    "over_seeds",
    "seed_row",
    "statistics",
    "target_rows",
]

Result = Mapping[str, Any]
"""The content of a `result.json`; a comparison adds the `label` of the cell, a sweep its `point`."""

Groups = dict[str, list[Result]]
"""The results of every seed by label."""

POOLED = "pooled"
VALIDATION = "validation_"
"""Begins the names of numbers on the validation set."""


def is_reference(result: Result) -> bool:
    """Return whether a run trained on pooled data: it sends nothing, so it does not compete."""
    return bool(result["partition"] == POOLED)


def group(results: Iterable[Result], key: Callable[[Result], str]) -> Groups:
    """Return the results by key, in the order in which the keys first appear."""
    groups: Groups = {}
    for result in results:
        groups.setdefault(key(result), []).append(result)
    return groups


def by_partition(results: Iterable[Result]) -> dict[str, Groups]:
    """Return the results by partition and label; runs on pooled data appear under every partition."""
    results = list(results)
    pooled = [result for result in results if is_reference(result)]
    parts = group((result for result in results if not is_reference(result)), lambda r: str(r["partition"]))
    order = list(dict.fromkeys(name_of(result) for result in results))
    return {
        part: dict(sorted(group([*cells, *pooled], name_of).items(), key=lambda item: order.index(item[0])))
        for part, cells in (parts or {POOLED: []}).items()
        if cells or pooled
    }


def name_of(result: Result) -> str:
    """Return the label of a cell of a comparison, or the method of any other run."""
    return str(result.get("label", result["method"]))


def common_target(results: Sequence[Result]) -> float | None:
    """Return the easiest stop target, at which all results can be compared, or None if none has a target."""
    targets = [r["stop_target"] for r in results if r["stop_target"] is not None]
    return easiest(targets, metric_among(results))


def all_targets(results: Iterable[Result]) -> list[float]:
    """Return every target that a result lists, the easiest first."""
    results = list(results)
    targets = {float(target) for result in results for target in result["targets"]}
    return sorted(targets, reverse=metric_among(results).better == "lower")


def at_target(result: Result, target: float | None, *, watched: bool = False) -> Mapping[str, Any] | None:
    """Return the measures when the target was reached, or None; without a target, those at the end.

    The target is reached on the test set, or, if `watched`, on the validation set.
    """
    if target is None:
        return result
    told = result["validation"] if watched else result
    targets: Mapping[str, Mapping[str, Any] | None] = told["targets"]
    for text, reached in targets.items():
        if math.isclose(float(text), target):
            return reached
    # A run with another stop target may not list this one, but its evaluations show when it got there.
    metric = metric_of(result)
    name = f"{VALIDATION}{metric.name}" if watched else metric.name
    return next((e for e in result["evaluations"] if metric.reached(e[name], target)), None)


def target_rows(results: Iterable[Result]) -> list[dict[str, Any]]:
    """Return a flat row per partition, label and target, and one for the end of the runs (`target` None).

    `<name>_mean`, `_std` (of the sample), `_min`, `_max` and `_n` are over the seeds that reached the target.
    """
    results = list(results)
    return [
        {"partition": part, "label": name, "method": cells[0]["method"], **seed_row(cells, target)}
        for part, groups in by_partition(results).items()
        for name, cells in groups.items()
        for target in [*all_targets(results), None]
    ]


def seed_row(cells: Sequence[Result], target: float | None) -> dict[str, Any]:
    """Return the statistics over the seeds of one configuration.

    Where runs have a validation set, the same statistics on it begin with `validation_`.
    """
    row: dict[str, Any] = {"target": target, "seeds": len(cells), **_statistics(cells, target, watched=False)}
    if validated(cells):
        on_it = _statistics(cells, target, watched=True)
        row |= {f"{VALIDATION}{name}": value for name, value in on_it.items()}
    return row


def _statistics(cells: Sequence[Result], target: float | None, *, watched: bool) -> dict[str, Any]:
    states = (at_target(cell, target, watched=watched) for cell in cells)
    reached = [state for state in states if state is not None]
    row: dict[str, Any] = {"reached": len(reached)}
    metric = metric_among(cells)
    row |= statistics(metric.name, [final(cell, watched=watched) for cell in cells])
    row |= statistics(best_name(metric), [best_of(cell, watched=watched) for cell in cells])
    losses = [(cell["validation"]["scores"] if watched else cell)["loss"] for cell in cells]
    row |= statistics("loss", losses)
    for name in COSTS:
        row |= statistics(name, [state[name] for state in reached])
    return row


def over_seeds(groups: Groups, words: str = "mean") -> str:
    """Return what the numbers of a table are: means over seeds, or those of one seed, which has no spread.

    >>> over_seeds({"hifl": [{"seed": 0}, {"seed": 1}]}), over_seeds({"hifl": [{"seed": 3}]})
    ('mean over seeds', 'one seed (3)')
    """
    if max(map(len, groups.values()), default=0) > 1:
        return f"{words} over seeds"
    seeds = sorted({cell["seed"] for cells in groups.values() for cell in cells})
    return f"one seed ({seeds[0]})" if len(seeds) == 1 else "one seed each"


def statistics(name: str, values: Iterable[float | None]) -> dict[str, float | int | None]:
    """Return mean, deviation, range and number of the known values."""
    numbers = [float(value) for value in values if value is not None and known(value)]
    return {
        f"{name}_mean": fmean(numbers) if numbers else None,
        f"{name}_std": stdev(numbers) if len(numbers) > 1 else None,
        f"{name}_min": min(numbers, default=None),
        f"{name}_max": max(numbers, default=None),
        f"{name}_n": len(numbers),
    }


def known(value: float | None) -> bool:
    """Return whether a value is a finite number."""
    return value is not None and math.isfinite(value)
