"""A sweep as rows and as tables, the best point first."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from hiflash.core.metrics import Metric
from hiflash.report.grid import Grid
from hiflash.report.measures import COSTS, MEASURES, Measure
from hiflash.report.methods import label
from hiflash.report.outcome import aim, best_name, measure_of, metric_among, validated
from hiflash.report.summary import VALIDATION, Groups, Result, common_target, group, over_seeds, seed_row
from hiflash.report.units import spread

__all__ = ["by_point", "leaves", "setting", "shown", "sweep_rows", "sweep_tables"]

MOST = 40
"""Number of points in the table; the files have all."""


def by_point(results: Sequence[Result]) -> Groups:
    """Return the results of every seed by point."""
    return group(results, lambda result: json.dumps(result["point"]))


def sweep_rows(results: Sequence[Result], by: str) -> list[dict[str, Any]]:
    """Return a row per point, the best first: `point`, and statistics at the target and at the end.

    Where the runs have a validation set, it ranks the points, and the test set only reports.
    """
    target, metric = common_target(results), metric_among(results)
    rows = [{"point": cells[0]["point"], **seed_row(cells, target)} for cells in by_point(results).values()]
    on = VALIDATION if validated(results) else ""
    return sorted(rows, key=lambda row: _rank(row, by, metric, on))


def _rank(row: Mapping[str, Any], by: str, metric: Metric, on: str) -> tuple[float, float, float]:
    """Return a sort key: first the number of seeds without the target, then the mean.

    `on` begins the names of the numbers that rank.
    """
    missing = row["seeds"] - row[f"{on}reached"] if by in COSTS else 0
    mean, sign = row[f"{on}{by}_mean"], -1 if metric.better == "higher" else 1
    outcome = by in (metric.name, best_name(metric))
    best = row[f"{on}{best_name(metric)}_mean"] or 0.0
    return (missing, float("inf") if mean is None else sign * mean if outcome else mean, sign * best)


def sweep_tables(results: Sequence[Result], by: str, width: int) -> list[Table]:
    """Return tables of the points and their costs at the target, the best first, no wider than the width."""
    rows = sweep_rows(results, by)
    target, metric = common_target(results), metric_among(results)
    ends = "at the end" if target is None else f"to {aim(target, metric)}"
    on, where = (VALIDATION, " on the validation set") if validated(results) else ("", "")
    left = len(rows) - MOST
    caption = f"and {left} more in sweep.csv" if left > 0 else None
    rows = rows[:MOST]
    # The chosen metric and the outcome come first, with their deviation; the rest are means.
    columns = []
    for name in dict.fromkeys((by, best_name(metric))):
        measure = measure_of(name, metric)
        columns.append((measure.head, [_cell(row, on + name, measure, deviation=True) for row in rows]))
    columns.append(("reached", [Text(f"{row[f'{on}reached']}/{row['seeds']}") for row in rows]))
    columns += [
        (MEASURES[name].head, [_cell(row, on + name, MEASURES[name], deviation=False) for row in rows])
        for name in COSTS
        if name not in (by, "total_cost")
    ]
    if on:
        unit = measure_of(metric.name, metric)
        tested = [_cell(row, metric.name, unit, deviation=True) for row in rows]
        columns.append((f"test\n{metric.name}", tested))
    names = [Text(", ".join(shown(value) for value in row["point"].values())) for row in rows]
    head = ", ".join(leaves(list(rows[0]["point"])))
    words = f"{ends}, by {measure_of(by, metric).words}{where}"
    title = f"{setting(results)}: {words}, {over_seeds(by_point(results))}"
    return Grid(title, head, names, columns, caption, shortest=40).tables(width)


def shown(value: Any) -> str:
    """Write a value as in a configuration, but words without quotes."""
    return value if isinstance(value, str) else json.dumps(value)


def leaves(keys: Sequence[str]) -> list[str]:
    """Return the last part of each key, or the whole key if two last parts are equal."""
    last = [key.rpartition(".")[2] for key in keys]
    return [leaf if last.count(leaf) == 1 else key for key, leaf in zip(keys, last, strict=True)]


def setting(results: Sequence[Result]) -> str:
    """Return method, data and partitions in words."""
    parts = ", ".join(dict.fromkeys(str(result["partition"]) for result in results))
    return f"{label(results[0]['method'])} on {results[0]['data']}, {parts}"


def _cell(row: Mapping[str, Any], name: str, measure: Measure, *, deviation: bool) -> Text:
    return Text(spread(row[f"{name}_mean"], row[f"{name}_std"] if deviation else None, measure.unit))
