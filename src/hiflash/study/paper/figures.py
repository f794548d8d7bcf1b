"""Figures that an item has beside those of its comparison: which ones, its file says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hiflash.study.paper.items import Item, Plan
from hiflash.study.paper.reading_rules import SETTINGS
from hiflash.study.paper.runs import Runs

__all__ = ["draw_more"]

Rows = Sequence[Mapping[str, Any]]


def draw_more(item: Item, plan: Plan, runs: Runs, rows: Rows, folder: Path) -> list[Path]:
    """Draw the figures that the item names and a comparison does not have, and return their paths."""
    wanted = [(name, MORE[name]) for name in item.figures if name in MORE]
    return [path for name, draw in wanted for path in draw(plan, runs, rows, folder / name)]


def _methods(plan: Plan, runs: Runs, rows: Rows, stem: Path) -> list[Path]:
    """Draw the curves of the paper's methods alone: all labels in one figure hide each other."""
    from hiflash.report.canvas import save
    from hiflash.report.compare_figures import compare_figures

    shown = [cell for cell in runs.cells if cell["label"] in plan["methods"]]
    return save(compare_figures(shown)["compare"], stem)


def _needs(plan: Plan, runs: Runs, rows: Rows, stem: Path) -> list[Path]:
    from hiflash.report.paper_figures import draw_needs

    return draw_needs(rows, f"{_data(runs)}: communications to a target", stem)


def _js(plan: Plan, runs: Runs, rows: Rows, stem: Path) -> list[Path]:
    from hiflash.report.paper_figures import draw_js_accuracy

    methods = {str(cell["label"]): str(cell["method"]) for cell in runs.cells}
    points = [
        {"label": label, "method": method, "total_js": runs.mean(label, "total_js"), "accuracy": accuracy}
        for label, method in methods.items()
        if (accuracy := runs.accuracy(label)) is not None
    ]
    return draw_js_accuracy(points, f"{_data(runs)}, one class per client", stem)


def _costs(plan: Plan, runs: Runs, rows: Rows, stem: Path) -> list[Path]:
    from hiflash.report.paper_figures import draw_costs

    costs = {}
    for label in dict.fromkeys(str(row["label"]) for row in rows):
        whole = ("compute_cost", "send_cost", "total_cost")
        compute, send, total = (runs.to_target(label, measure=measure) for measure in whole)
        if compute is not None and send is not None and total is not None:
            costs[label] = (compute, send, total - compute - send)
    return draw_costs(costs, f"{_data(runs)}: system cost to {runs.target:.0%}", stem)


def _settings(plan: Plan, runs: Runs, rows: Rows, stem: Path) -> list[Path]:
    from hiflash.report.paper_figures import draw_settings

    title = f"{_data(runs)}: to {runs.target:.0%}, measured (filled) and forecast (open)"
    return draw_settings(rows, plan["crossed"], SETTINGS, title, stem)


def _data(runs: Runs) -> str:
    return str(runs.cells[0]["data"])


MORE: dict[str, Callable[[Plan, Runs, Rows, Path], list[Path]]] = {
    "methods": _methods,
    "needs": _needs,
    "js": _js,
    "costs": _costs,
    "settings": _settings,
}
