"""How far forecasts are from finished runs: `python -m benchmarks forecast_error`.

Forecasts every row of the committed tables from one constant per task, FedAvg's row of the same table, and
compares communications and virtual time. Nothing is trained. `python -m benchmarks.forecast_error --out
docs/results/forecast` does so for all tables and writes a page, a figure and the errors that forecasts name.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.committed_tables import RESULTS, Measured, agent_tables, method_tables
from benchmarks.forecast_paper import committed_items, forecast_item
from hiflash.report.forecast_figures import draw_against_measured
from hiflash.report.forecast_tables import markdown_tables
from hiflash.study.forecast import forecast
from hiflash.study.forecast.constants import Constant
from hiflash.study.forecast.expected import FILE
from hiflash.study.forecast.study import forecast_cells
from hiflash.study.policies import plan

__all__ = [
    "MEASURES",
    "errors",
    "forecast_100k_s",
    "forecast_error",
    "forecast_methods",
    "forecast_paper",
    "forecast_policies",
    "main",
    "rank",
]

EXPERIMENTS = RESULTS.parents[1] / "experiments"
METHODS = (RESULTS / "methods_mnist.md", EXPERIMENTS / "methods_mnist.toml")
EPOCHS = (RESULTS / "methods_mnist_epochs.md", EXPERIMENTS / "forecast_epochs.toml")
EDGES = (RESULTS / "methods_mnist_edges.md", EXPERIMENTS / "forecast_edge_noniid.toml")
MORE = (RESULTS / "methods_mnist_more.md", EXPERIMENTS / "forecast_more.toml")
POLICIES = RESULTS / "agent_mnist" / "table.md"
MEASURES = ("communications", "virtual_s")
PARTICIPANTS = 10
"""Clients in a round of FedAvg, so communications per round."""

PAPER = "paper: "
FEWEST = 3
"""Rows in a rank correlation, at least."""

SHOWN = 6
"""Rows whose error in closed form is named."""

LARGE = ("fedavg", "hierfavg", "hifl", "hiflash")

Row = dict[str, Any]


def forecast_error() -> dict[str, float]:
    """Return median and worst relative error of communications and time, and the smallest rank correlation.

    FedAvg's own rows are left out: the constant comes from them.
    """
    told = summary(forecast_methods(*METHODS))
    return {
        "forecast_error_median": told["median"],
        "forecast_error_worst": told["worst"],
        "forecast_rank": told["rank"],
        "forecast_error_rows": told["rows"],
    }


def forecast_100k_s() -> float:
    """Return the seconds of forecasting four methods for 100,000 clients and 1,000 edges."""
    start = time.perf_counter()
    forecast(methods=LARGE, rounds=250, federation={"clients": 100_000, "edges": 1000})
    return time.perf_counter() - start


def forecast_methods(page: Path, file: Path, words: str = "3 local steps") -> list[Row]:
    """Return every row of a page of methods but FedAvg's, measured and forecast."""
    rows = []
    for partition, measured in method_tables(page).items():
        known = {row.label: row for row in measured}
        fedavg = known.pop("fedavg")
        told = forecast(file, partitions=[partition], rounds=_rounds(fedavg), seeds=fedavg.seeds)
        group = f"{partition.replace('noniid', 'Non-IID(')}), {words}"
        rows += [beside(group, known[row["label"]], row) for row in told.rows() if row["label"] in known]
    return rows


def forecast_policies(page: Path, rounds: float, kind: str, *, by_class: bool = True) -> list[Row]:
    """Return every row of the tables of threshold policies, measured and forecast.

    `kind` is the association, `aware` or `noniid`.
    """
    rows = []
    for (association, enforce, dynamics), measured in agent_tables(page).items():
        if association != kind:
            continue
        known = {row.label: row for row in measured}
        wanted = plan(
            policies=list(known), associations=[association], enforce=[enforce], dynamics=[dynamics],
            seeds=max(row.seeds for row in measured), choice_seeds=(),
        )  # fmt: skip
        cells = [
            replace(cell, tags={"label": cell.tags["policy"]})
            for cell in wanted.cells
            if cell.config.seed < known[cell.tags["policy"]].seeds
        ]
        told = forecast_cells(cells, {"noniid2": Constant(rounds, "the table of methods")}, by_class=by_class)
        words = {"aware": "thresholds, edges alike", "noniid": "thresholds, Edge-NonIID"}[association]
        part = f"{enforce}, {dynamics}"
        rows += [beside(words, known[row["label"]], row, part) for row in told.rows()]
    return rows


def forecast_paper() -> list[Row]:
    """Return every committed row of the paper's items but FedAvg's, measured and forecast.

    Those with momentum in the cloud are a group of their own: it is known that a number says less of them.
    """
    rows, items = [], committed_items()
    for item in items:
        for measured, told, partition in forecast_item(item, items):
            row = beside(f"{PAPER}{item.name}", measured, told, partition)
            if row["regime"] == "momentum":
                row |= {"group": f"{PAPER}momentum in the cloud", "part": f"{item.name}, {partition}"}
            rows.append(row)
    return rows


def beside(group: str, measured: Measured, told: Row, part: str = "") -> Row:
    """Return a row of a table with its forecast."""
    return {
        "group": group,
        "part": part,
        "label": measured.label,
        "seeds": measured.seeds,
        "reached": measured.reached,
        "mean_js": told["mean_js"],
        "regime": told["expected_error"]["regime"],
        "closed_form": told["closed_form"],
        **{f"measured_{name}": getattr(measured, name) for name in MEASURES},
        **{f"forecast_{name}": told[name] for name in MEASURES},
    }


def errors(rows: Iterable[Row], names: Sequence[str] = MEASURES) -> list[float]:
    """Return the relative errors of rows and measures, with their sign.

    Rows that missed the target on a seed are left out: their means are over the lucky seeds alone.
    """
    whole = [row for row in rows if row["reached"] == row["seeds"]]
    return [row[f"forecast_{name}"] / row[f"measured_{name}"] - 1 for row in whole for name in names]


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return median and worst size of the errors, and the smallest rank correlation of a table's measure.

    The last is None if no table has enough rows.
    """
    sizes = [abs(error) for error in errors(rows)]
    parts: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["reached"] == row["seeds"]:
            parts.setdefault((row["group"], row["part"]), []).append(row)
    return {
        "rows": sum(map(len, parts.values())),
        "median": median(sizes),
        "worst": max(sizes),
        "bias": median(errors(rows)),
        "rank": min(
            (rank(part, name) for part in parts.values() if len(part) >= FEWEST for name in MEASURES),
            default=None,
        ),
    }


def by_regime(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Return the errors of each kind of run; rows that are the same run in several tables count once."""
    numbers = [f"{side}_{name}" for side in ("measured", "forecast") for name in MEASURES]
    distinct = {tuple(row[number] for number in numbers): row for row in reversed(rows)}
    found: dict[str, list[Row]] = {}
    for row in distinct.values():
        found.setdefault(row["regime"], []).append(row)
    return {regime: summary(each) for regime, each in sorted(found.items())}


def rank(rows: Sequence[Row], name: str) -> float:
    """Return Spearman's rho of the measured and the forecast values of a measure."""
    from scipy.stats import spearmanr

    sides = ([row[f"{side}_{name}"] for row in rows] for side in ("measured", "forecast"))
    return float(spearmanr(*sides).statistic)


def main() -> None:
    """Forecast every committed table and write the page, the figure and the expected errors."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.forecast_error", description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "forecast")
    out: Path = parser.parse_args().out
    fedavg = next(row for row in method_tables(METHODS[0])["noniid2"] if row.label == "fedavg")
    rows = forecast_methods(*METHODS)
    rows += [
        row for kind in ("aware", "noniid") for row in forecast_policies(POLICIES, _rounds(fedavg), kind)
    ]
    rows += forecast_methods(*EDGES, words="five classes per edge")
    rows += forecast_methods(*MORE, words="beyond the table")
    rows += forecast_methods(*EPOCHS, words="30 local steps")
    rows += sorted(forecast_paper(), key=lambda row: row["regime"] == "momentum")
    groups = list(dict.fromkeys(row["group"] for row in rows))
    told = {group: summary([row for row in rows if row["group"] == group]) for group in groups}
    one = summary(forecast_policies(POLICIES, _rounds(fedavg), "noniid", by_class=False))
    told["thresholds, Edge-NonIID, with one number for all classes"] = one
    command = "python -m benchmarks.forecast_error"
    FILE.write_text(json.dumps({"command": command, "regimes": by_regime(rows)}, indent=1) + "\n")
    out.mkdir(parents=True, exist_ok=True)
    (out / "rows.json").write_text(json.dumps({"command": command, "rows": rows}, indent=1) + "\n")
    (out / "table.md").write_text(_page(command, rows, told))
    draw_against_measured([{**row, "group": _shown(row["group"])} for row in rows], out / "against-measured")
    print(json.dumps({**told, "mean_js": _mean_js(rows)}, indent=1))


def _shown(group: str) -> str:
    """Return the group of a row in the figure, where the paper's items are one."""
    items = group.startswith(PAPER) and "momentum" not in group
    return "the paper's items" if items else group


def _rounds(fedavg: Measured) -> float:
    if fedavg.communications is None or not fedavg.whole:
        raise ValueError("FedAvg did not reach the target on every seed, so there is no constant")
    return fedavg.communications / PARTICIPANTS


def _page(command: str, rows: Sequence[Row], told: Mapping[str, Mapping[str, Any]]) -> str:
    head = (
        "# Forecasts beside finished runs\n\n"
        f"`{command}` writes this page: every row of the committed tables and of the paper's items,\n"
        "forecast from one constant per task. "
        "[The forecast](../../forecast.md) explains it. Errors are of communications and virtual seconds.\n\n"
    )
    known = [row for row in rows if row["closed_form"] and row["reached"] == row["seeds"]]
    off = [abs(row["closed_form"] / row["measured_communications"] - 1) for row in known]
    by_size = sorted(zip(off, map(_name, known), strict=True), reverse=True)
    tail = (
        f"\nThe closed form, for the {len(known)} rows whose cloud interpolates: communications off by a "
        f"median of {median(off):.1%}. The largest errors: "
        f"{', '.join(f'{size:.1%} ({name})' for size, name in by_size[:SHOWN])}.\n"
    )
    return head + markdown_tables(rows, told) + tail


def _name(row: Row) -> str:
    return ", ".join(filter(None, (row["label"], row["group"], row["part"])))


def _mean_js(rows: Sequence[Row]) -> dict[str, float]:
    """Return the mean divergence of the edges in every group, and the largest of a row."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row["mean_js"] is not None:
            found.setdefault(row["group"], []).append(row["mean_js"])
    return {group: round(fmean(values), 3) for group, values in found.items()}


if __name__ == "__main__":
    main()
