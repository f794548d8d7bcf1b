"""Forecasts as tables: for the terminal, and as Markdown beside finished runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from hiflash.report.grid import Grid
from hiflash.report.measures import COSTS, MEASURES
from hiflash.report.methods import label
from hiflash.report.outcome import aim, metric_of
from hiflash.report.units import UNKNOWN, count, spread

__all__ = ["forecast_remarks", "forecast_tables", "markdown_tables"]

_REGIMES = {
    "alike": "of few local steps",
    "edge-noniid": "of edges that hold half of the classes",
    "momentum": "with momentum in the cloud: needs may be twice as high",
    "many-steps": "of 30 local steps: clients drift apart, which no number shows",
}

Row = Mapping[str, Any]


def forecast_tables(rows: Sequence[Row], width: int) -> list[Table]:
    """Return a table per data, partition and target with every method, the least of each column in bold."""
    parts: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        parts.setdefault((row["data"], row["partition"], row["target"], row["metric"]), []).append(row)
    return [table for group in parts.values() for table in _grid(group).tables(width)]


def forecast_remarks(told: Mapping[str, Any]) -> list[str]:
    """Return what belongs under the tables: constants, expected errors, budgets, notes, what is left out."""
    constants: dict[str, list[str]] = {}
    for name, constant in told["constants"].items():
        text = f"S = {constant['rounds']:.4g} rounds of FedAvg to the target ({constant['origin']})"
        constants.setdefault(text, []).append(name)
    lines = [f"{', '.join(names)}: {text}" for text, names in constants.items()]
    lines += dict.fromkeys(_error(row["expected_error"]) for row in told["rows"])
    said: dict[str, list[str]] = {}
    for row in told["rows"]:
        for remark in _remarks(row):
            said.setdefault(remark, []).append(label(row["label"]))
    lines += [f"{', '.join(dict.fromkeys(names))}: {remark}" for remark, names in said.items()]
    return lines + [f"{label(name)} is left out: {reason}" for name, reason in told["left_out"].items()]


def markdown_tables(rows: Sequence[Row], told: Mapping[str, Row]) -> str:
    """Return one table of errors by group, and one per group with every row, measured and forecast."""
    lines = ["| Runs | Rows | Median error | Worst | Median with sign | Smallest rank correlation |"]
    lines.append("| --- | ---: | ---: | ---: | ---: | ---: |")
    for group, found in told.items():
        sizes = f"{found['median']:.1%} | {found['worst']:.1%} | {found['bias']:+.1%}"
        rank = UNKNOWN if found["rank"] is None else f"{found['rank']:.3f}"
        lines.append(f"| {group} | {found['rows']} | {sizes} | {rank} |")
    for group in dict.fromkeys(row["group"] for row in rows):
        lines += [
            "",
            f"## {group}",
            "",
            "| | Communications | forecast | off by | Seconds | forecast | off by |",
        ]
        lines.append("| --- |" + " ---: |" * 6)
        lines += [_markdown(row) for row in rows if row["group"] == group]
    return "\n".join(lines) + "\n"


def _grid(rows: Sequence[Row]) -> Grid:
    first = rows[0]
    columns = []
    for name in COSTS:
        means = [row[name] for row in rows]
        least = min(means) if len(set(means)) > 1 else None
        columns.append(
            (
                MEASURES[name].head,
                [Text(_cell(row, name), style="bold" if row[name] == least else "") for row in rows],
            )
        )
    columns.append(("staleness", [Text(count(row["staleness"])) for row in rows]))
    columns.append(("expected\nerror", [Text(_expected(row)) for row in rows]))
    target = "the target" if first["target"] == "none" else aim(first["target"], metric_of(first))
    several = ", mean over seeds" if first["seeds"] > 1 else ""
    return Grid(
        f"{first['data']}, {first['partition']}: forecast to {target}{several}",
        "method",
        [Text(label(row["label"])) for row in rows],
        columns,
    )


def _remarks(row: Row) -> list[str]:
    found = list(row["notes"])
    if row["reached"] < row["seeds"]:
        missed = row["seeds"] - row["reached"]
        found.append(f"given up before the target in {missed} of {row['seeds']} seeds")
    elif row["over_budget"]:
        keys = ", ".join(f"stop.{budget}" for budget in row["over_budget"])
        found.append(f"more than {keys} allows; a run would end before its target")
    return found


def _error(found: Row) -> str:
    return (
        f"expected error: median {found['median']:.0%}, largest {found['worst']:.0%}, over "
        f"{found['rows']} results {_REGIMES[found['regime']]}"
    )


def _cell(row: Row, name: str) -> str:
    more = "> " if row["reached"] < row["seeds"] else ""
    return more + spread(row[name], None, MEASURES[name].unit)


def _expected(row: Row) -> str:
    found = row["expected_error"]
    return f"{found['median']:.0%} ({found['worst']:.0%})"


def _markdown(row: Row) -> str:
    cells = [f"{row['label']}{', ' + row['part'] if row['part'] else ''}"]
    for name, digits in (("communications", 0), ("virtual_s", 1)):
        measured, told = row[f"measured_{name}"], row[f"forecast_{name}"]
        missed = row["reached"] < row["seeds"]
        note = f" ({row['reached']} of {row['seeds']} seeds)" if missed else ""
        cells.append(UNKNOWN if measured is None else f"{measured:,.0f}{note}")
        cells.append(f"{told:,.{digits}f}")
        cells.append(UNKNOWN if measured is None or missed else f"{told / measured - 1:+.1%}")
    return f"| {' | '.join(cells)} |"
