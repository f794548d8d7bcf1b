"""A sweep as rows and as a table, the best point first."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from hiflash.report.compare_tables import HEADS
from hiflash.report.grid import Grid
from hiflash.report.summary import MEASURES, Groups, Result, common_target, group, seed_row
from hiflash.report.units import Unit, goal, spread

__all__ = ["TITLES", "by_point", "leaves", "shown", "sweep_rows", "sweep_tables"]

MOST = 40
"""Points that a table shows; the files have all."""

TITLES: dict[str, tuple[str, Unit]] = {
    "communications": ("Communications", "count"),
    "client_steps": ("Client steps", "count"),
    "virtual_s": ("Virtual time", "seconds"),
    "wan_bytes": ("WAN bytes", "bytes"),
    "total_cost": ("Cost", "count"),
    "accuracy": ("Final accuracy", "share"),
    "best_accuracy": ("Best accuracy", "share"),
    "loss": ("Final loss", "count"),
}


def by_point(results: Sequence[Result]) -> Groups:
    """Return the results of every seed by point."""
    return group(results, lambda result: json.dumps(result["point"]))


def sweep_rows(results: Sequence[Result], by: str) -> list[dict[str, Any]]:
    """Return a row per point: `point`, the statistics at the target and at the end; the best first."""
    target = common_target(results)
    rows = [{"point": cells[0]["point"], **seed_row(cells, target)} for cells in by_point(results).values()]
    return sorted(rows, key=lambda row: _rank(row, by))


def _rank(row: Mapping[str, Any], by: str) -> tuple[float, float, float]:
    """Return what sorts the best first; a mean over fewer seeds comes after one over more."""
    missing = row["seeds"] - row["reached"] if by in MEASURES else 0
    mean = row[f"{by}_mean"]
    good = by in ("accuracy", "best_accuracy")
    best = row["best_accuracy_mean"] or 0.0
    return (missing, float("inf") if mean is None else -mean if good else mean, -best)


def sweep_tables(results: Sequence[Result], by: str, width: int) -> list[Table]:
    """Return the points, the best first, with what they took to reach the target, in tables that fit."""
    rows = sweep_rows(results, by)
    target = common_target(results)
    ends = "at the end" if target is None else f"to {goal(target)} accuracy"
    left = len(rows) - MOST
    caption = f"and {left} more in sweep.csv" if left > 0 else None
    rows = rows[:MOST]
    # What was asked for and the outcome come first and have their deviation; the rest are means.
    first = list(dict.fromkeys((by, "best_accuracy")))
    columns = [(_head(name), [_cell(row, name, deviation=True) for row in rows]) for name in first]
    columns.append(("reached", [Text(f"{row['reached']}/{row['seeds']}") for row in rows]))
    columns += [
        (_head(name), [_cell(row, name, deviation=False) for row in rows])
        for name in HEADS
        if name not in (by, "total_cost")
    ]
    names = [Text(", ".join(shown(value) for value in row["point"].values())) for row in rows]
    head = ", ".join(leaves(list(rows[0]["point"])))
    title = f"{_setting(results)}: {ends}, by {TITLES[by][0].lower()}"
    return Grid(title, head, names, columns, caption, shortest=40).tables(width)


def shown(value: Any) -> str:
    """Write a value as in a configuration, words without quotes."""
    return value if isinstance(value, str) else json.dumps(value)


def leaves(keys: Sequence[str]) -> list[str]:
    """Return the last parts of the keys, whole keys where these would be the same."""
    last = [key.rpartition(".")[2] for key in keys]
    return [leaf if last.count(leaf) == 1 else key for key, leaf in zip(keys, last, strict=True)]


def _setting(results: Sequence[Result]) -> str:
    parts = ", ".join(dict.fromkeys(str(result["partition"]) for result in results))
    return f"{results[0]['method']} on {results[0]['data']}, {parts}"


def _head(name: str) -> str:
    return HEADS[name][0] if name in HEADS else TITLES[name][0].lower().replace(" ", "\n")


def _cell(row: Mapping[str, Any], name: str, *, deviation: bool) -> Text:
    return Text(spread(row[f"{name}_mean"], row[f"{name}_std"] if deviation else None, TITLES[name][1]))
