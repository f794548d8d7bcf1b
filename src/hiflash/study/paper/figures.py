"""Figures that an item has beside those of its comparison: which ones, its file says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hiflash.core.metrics import ACCURACY
from hiflash.sim.targets import interpolated
from hiflash.study.paper.items import Item, Plan
from hiflash.study.paper.parameter_rules import CHOSEN, point_label
from hiflash.study.paper.runs import Runs

__all__ = ["FAMILIES", "draw_more"]

Rows = Sequence[Mapping[str, Any]]

FAMILIES = {
    "Delays of the WAN": {"+wan-off": "none", "": "default", "+wan-slow": "slow"},
    "Length of a slot": {
        "+slot-10ms": "0.01 s",
        "": "0.05 s (default)",
        "+slot-100ms": "0.1 s",
        "+slot-500ms": "0.5 s",
    },
}
"""The settings of `sensitivity-mnist` in order: the words for what follows a label."""
RANGE, DOTS = "mean and range of {} seeds", "bars: mean of {} seeds, dots: seeds"
COST = ("compute_cost", "send_cost", "total_cost")


def draw_more(item: Item, plan: Plan, runs: Runs, rows: Rows, folder: Path) -> list[Path]:
    """Draw the figures that the item names, and return their paths.

    A figure with the name of one of the comparison takes its place: it has words for readers of the paper.
    """
    wanted = [(name, MORE[name]) for name in item.figures if name in MORE]
    return [path for name, draw in wanted for path in draw(plan, runs, rows, folder / name)]


def _compared(name: str) -> Draw:
    """Return what draws a figure of the comparison, in words."""

    def draw(plan: Plan, runs: Runs, rows: Rows, stem: Path) -> list[Path]:
        from hiflash.report.canvas import save
        from hiflash.report.compare_figures import compare_figures

        return save(compare_figures(_worded(runs.cells))[name], stem)

    return draw


def _trade_off(plan: Plan, runs: Runs, rows: Rows, stem: Path) -> list[Path]:
    """Draw communications to the item's targets. Labels that reach none are named, with their best."""
    from hiflash.report.canvas import INK, save
    from hiflash.report.compare_figures import compare_figures
    from hiflash.report.paper_words import label_words

    cells = [_aimed(cell, plan["targets"]) for cell in runs.cells if cell["label"] in plan["shown"]]
    known = {cell["label"] for cell in cells if any(cell["targets"].values())}
    learned = [cell for cell in cells if cell["label"] in known] or cells
    figure = compare_figures(_worded(learned))["tradeoff"]
    best = {label: runs.mean(label, "best_accuracy") for label in plan["shown"] if label not in known}
    told = [f"{label_words(name)}: {100 * value:.1f} % at best" for name, value in best.items() if value]
    axes = figure.axes[0]
    axes.text(0.99, 0.07, "\n".join(told), transform=axes.transAxes, ha="right", va="bottom", color=INK)
    return save(figure, stem)


def _methods(plan: Plan, runs: Runs, rows: Rows, stem: Path) -> list[Path]:
    """Draw the curves of the paper's methods alone: all labels in one figure hide each other."""
    from hiflash.report.canvas import save
    from hiflash.report.compare_figures import compare_figures

    shown = [cell for cell in runs.cells if cell["label"] in plan["methods"]]
    return save(compare_figures(_worded(shown))["compare"], stem)


def _zoom(plan: Plan, runs: Runs, rows: Rows, stem: Path) -> list[Path]:
    """Draw every label alone in the upper range, with its fluctuation in words."""
    from hiflash.report.paper_zoom import draw_zoom

    cells = _worded(runs.cells)
    notes = {}
    for raw, cell in zip(runs.cells, cells, strict=True):
        falls = runs.fluctuation(str(raw["label"]), str(raw["partition"]))
        if falls is not None:
            notes[cell["partition"], cell["label"]] = f"mean fall {100 * falls:.2f} points"
    what = "accuracy in its upper range, the others in grey"
    return draw_zoom(cells, notes, _title(runs, what, RANGE), stem)


def _needs(plan: Plan, runs: Runs, rows: Rows, stem: Path) -> list[Path]:
    from hiflash.report.paper_needs import draw_needs

    return draw_needs(rows, _title(runs, "communications to a target"), stem)


def _shards(plan: Plan, runs: Runs, rows: Rows, stem: Path) -> list[Path]:
    from hiflash.report.paper_needs import TAKEN, Need, draw_shards

    parts: dict[str, dict[str, dict[str, Need]]] = {}
    for row in rows:
        part, label = str(row["partition"]), str(row["label"])
        parts.setdefault(part, {})[label] = {
            name: Need(runs.seeds_to_target(label, part, name)) for name in TAKEN
        }
    return draw_shards(parts, _title(runs, f"communications and time to {_goal(runs)}", RANGE), stem)


def _settings(plan: Plan, runs: Runs, rows: Rows, stem: Path) -> list[Path]:
    from hiflash.report.paper_needs import TAKEN, Need, draw_settings

    needs = {}
    for row in rows:
        label, told = str(row["label"]), row.get("forecast") or {}
        needs[label] = {name: Need(runs.seeds_to_target(label, None, name), told.get(name)) for name in TAKEN}
    title = _title(runs, f"communications and time to {_goal(runs)}", RANGE)
    return draw_settings(needs, plan["crossed"], FAMILIES, title, stem)


def _costs(plan: Plan, runs: Runs, rows: Rows, stem: Path) -> list[Path]:
    from hiflash.report.paper_figures import draw_costs

    costs = {}
    for label in dict.fromkeys(str(row["label"]) for row in rows):
        seeds = [runs.seeds_to_target(label, measure=measure) for measure in COST]
        parts = [(compute, send, total - compute - send) for compute, send, total in zip(*seeds, strict=True)]
        if parts:
            costs[label] = parts
    return draw_costs(costs, _title(runs, f"system cost to {_goal(runs)}", DOTS), stem)


def _js(plan: Plan, runs: Runs, rows: Rows, stem: Path) -> list[Path]:
    from hiflash.report.paper_figures import draw_js_accuracy

    methods = {str(cell["label"]): str(cell["method"]) for cell in runs.cells}
    points = [
        {"label": label, "method": method, "total_js": runs.mean(label, "total_js"), "accuracy": accuracy}
        for label, method in methods.items()
        if (accuracy := runs.accuracy(label)) is not None
    ]
    return draw_js_accuracy(points, _title(runs, "accuracy and divergence"), stem)


def _grid_curves(plan: Plan, runs: Runs, rows: Rows, stem: Path) -> list[Path]:
    from hiflash.report.paper_grid import draw_grid_curves

    cells = {point: runs.of(label) for label, point in _points(runs).items()}
    return draw_grid_curves(cells, runs.target, _title(runs, "accuracy of HiFL", RANGE), stem)


def _grid_maps(plan: Plan, runs: Runs, rows: Rows, stem: Path) -> list[Path]:
    """Draw what the claims are about: needs, the accuracy at the end, and fluctuation."""
    from hiflash.report.paper_grid import GridMap, draw_grid_maps

    points = _points(runs)
    needs = {point: runs.to_target(label) for label, point in points.items()}
    told = {}
    for label, point in points.items():
        mean, reached, seeds = needs[point], runs.reached(label), len(runs.of(label))
        told[point] = (
            f"{reached} of {seeds} seeds" if mean is None else _spread(mean, runs.range_to_target(label))
        )
    ends = {point: runs.accuracy(label) for label, point in points.items()}
    falls = {point: runs.fluctuation(label) for label, point in points.items()}
    maps = [
        GridMap(f"Communications to {_goal(runs)}", needs, told, True),
        GridMap("Accuracy, last five evaluations", ends, _texts(ends, "{:.1f} %"), False),
        GridMap("Mean fall between evaluations", falls, _texts(falls, "{:.2f} points"), True),
    ]
    return draw_grid_maps(maps, points.get(CHOSEN), _title(runs, "HiFL by alpha and upsilon"), stem)


def _spread(mean: float, ends: Sequence[float] | None) -> str:
    """Return a mean, and the range of several seeds below it."""
    low, high = ends or (mean, mean)
    return f"{mean:,.0f}" if low == high else f"{mean:,.0f}\n({low:,.0f}-{high:,.0f})"


def _texts(values: Mapping[tuple[float, float], float | None], form: str) -> dict[tuple[float, float], str]:
    return {point: "-" if value is None else form.format(100 * value) for point, value in values.items()}


def _points(runs: Runs) -> dict[str, tuple[float, float]]:
    """Return alpha and upsilon of every label of a grid."""
    points = (cell["point"] for cell in runs.cells)
    return {point_label(point): (point["cloud.alpha"], point["cloud.penalty"]) for point in points}


def _worded(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return cells as figures show them: in words, and with targets interpolated as everywhere in the item.

    Methods keep their names, from which figures know their looks.
    """
    from hiflash.report.paper_words import data_words, label_words, part_title, part_words

    several = len(_parts(cells)) > 1
    worded = part_title if several else part_words  # alone, it stands in the title of the figure
    return [
        {
            **cell,
            "data": data_words(str(cell["data"])),
            "partition": cell["partition"] if cell["partition"] == "pooled" else worded(cell["partition"]),
            "label": cell["label"] if cell["label"] == cell["method"] else label_words(str(cell["label"])),
            "targets": cell["targets_interpolated"] or cell["targets"],
        }
        for cell in cells
    ]


def _aimed(cell: Mapping[str, Any], targets: Sequence[float]) -> dict[str, Any]:
    """Return a cell with the targets of the item instead of those of every run."""
    reached = interpolated(cell["evaluations"], ACCURACY, [str(target) for target in targets])
    return {**cell, "targets": reached, "targets_interpolated": reached}


def _title(runs: Runs, what: str, how: str = "mean of {} seeds") -> str:
    """Return the title of a figure: data, the partition if it is one, what is shown, how many seeds."""
    from hiflash.report.paper_words import data_words, over_seeds_words, part_words

    data = ", ".join(dict.fromkeys(data_words(str(cell["data"])) for cell in runs.cells))
    parts = _parts(runs.cells)
    where = f", {part_words(parts[0])}" if len(parts) == 1 else ""
    seeds = len({cell["seed"] for cell in runs.cells})
    return f"{data}{where}: {what} {over_seeds_words(seeds, how)}"


def _parts(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(str(cell["partition"]) for cell in cells if cell["partition"] != "pooled"))


def _goal(runs: Runs) -> str:
    return f"{100 * (runs.target or 0):g} %"


Draw = Callable[[Plan, Runs, Rows, Path], list[Path]]
MORE: dict[str, Draw] = {
    "compare": _compared("compare"),
    "latency": _compared("latency"),
    "tradeoff": _trade_off,
    "methods": _methods,
    "zoom": _zoom,
    "needs": _needs,
    "shards": _shards,
    "settings": _settings,
    "costs": _costs,
    "js": _js,
    "curves": _grid_curves,
    "maps": _grid_maps,
}
