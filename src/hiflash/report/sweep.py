"""A sweep as rows and as tables, the best point first."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from hiflash.report.grid import Grid
from hiflash.report.measures import COSTS, MEASURES
from hiflash.report.methods import label
from hiflash.report.summary import Groups, Result, common_target, group, seed_row
from hiflash.report.units import goal, spread

__all__ = ["by_point", "leaves", "setting", "shown", "sweep_rows", "sweep_tables"]

MOST = 40
"""Number of points in the table; the files have all."""


def by_point(results: Sequence[Result]) -> Groups:
    """Return the results of every seed by point."""
    return group(results, lambda result: json.dumps(result["point"]))


def sweep_rows(results: Sequence[Result], by: str) -> list[dict[str, Any]]:
    """Return a row per point, the best first: `point`, and statistics at the target and at the end."""
    target = common_target(results)
    rows = [{"point": cells[0]["point"], **seed_row(cells, target)} for cells in by_point(results).values()]
    return sorted(rows, key=lambda row: _rank(row, by))


def _rank(row: Mapping[str, Any], by: str) -> tuple[float, float, float]:
    """Return a sort key: first the number of seeds without the target, then the mean."""
    missing = row["seeds"] - row["reached"] if by in COSTS else 0
    mean = row[f"{by}_mean"]
    good = by in ("accuracy", "best_accuracy")
    best = row["best_accuracy_mean"] or 0.0
    return (missing, float("inf") if mean is None else -mean if good else mean, -best)


def sweep_tables(results: Sequence[Result], by: str, width: int) -> list[Table]:
    """Return tables of the points and their costs at the target, the best first, no wider than the width."""
    rows = sweep_rows(results, by)
    target = common_target(results)
    ends = "at the end" if target is None else f"to {goal(target)} accuracy"
    left = len(rows) - MOST
    caption = f"and {left} more in sweep.csv" if left > 0 else None
    rows = rows[:MOST]
    # The chosen metric and the outcome come first, with their deviation; the rest are means.
    first = list(dict.fromkeys((by, "best_accuracy")))
    columns = [(MEASURES[name].head, [_cell(row, name, deviation=True) for row in rows]) for name in first]
    columns.append(("reached", [Text(f"{row['reached']}/{row['seeds']}") for row in rows]))
    columns += [
        (MEASURES[name].head, [_cell(row, name, deviation=False) for row in rows])
        for name in COSTS
        if name not in (by, "total_cost")
    ]
    names = [Text(", ".join(shown(value) for value in row["point"].values())) for row in rows]
    head = ", ".join(leaves(list(rows[0]["point"])))
    title = f"{setting(results)}: {ends}, by {MEASURES[by].words}"
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


def _cell(row: Mapping[str, Any], name: str, *, deviation: bool) -> Text:
    return Text(spread(row[f"{name}_mean"], row[f"{name}_std"] if deviation else None, MEASURES[name].unit))
