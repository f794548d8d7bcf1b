"""The figures of an evaluation: cost of every policy, and the cost of random and learned thresholds.

The second is the paper's figure of HiFL and HiFlash. Here both have the association of the condition, so that
only the thresholds differ.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from hiflash.report.canvas import (
    FONT,
    INK,
    legend_below,
    name_panel,
    name_rows,
    new_figure,
    save,
    style,
    write_after,
)
from hiflash.report.evaluation import Told, condition_title, tables_of
from hiflash.report.methods import looks
from hiflash.report.units import goal, spread

__all__ = ["draw_evaluation"]

_PARTS = {
    "compute_cost": ("computing", "#4477AA"),
    "send_cost": ("sending", "#CCBB44"),
    "time_cost": ("time (slots)", "#BBBBBB"),
}
_SIDES = {"random": "hifl", "agent": "hiflash"}
_NAMES = {"random": "random thresholds", "agent": "learned thresholds"}
_GROUPS = {
    "compute_cost": "computation",
    "send_cost": "communication",
    "time_cost": "time",
    "total_cost": "total cost",
}


def draw_evaluation(told: Told, directory: Path) -> list[Path]:
    """Save `cost-CONDITION` for every condition, and `normalised-CONDITION` for those with an agent."""
    paths = []
    for condition, table in tables_of(told).items():
        kinds = list(dict.fromkeys(kind for runs in table.values() for kind in runs))
        if not kinds:
            continue
        paths += save(_costs(told, condition, table, kinds), directory / f"cost-{condition}")
        both = [kind for kind in kinds if all(kind in table.get(policy, {}) for policy in _SIDES)]
        if both:
            title = f"{_where(told, condition)}: cost relative to the larger of the two"
            figure = _normalised(table, both, title)
            paths += save(figure, directory / f"normalised-{condition}")
    return paths


def _where(told: Told, condition: str) -> str:
    return f"{told['data']}, {told['partition']}, {condition_title(condition)}"


def _costs(told: Told, condition: str, table: Mapping[str, Any], kinds: Sequence[str]) -> Figure:
    title = f"{_where(told, condition)}: cost to {goal(told['target'])} accuracy"
    figure = new_figure(1.4 + 4.9 * len(kinds), 1.8 + 0.3 * len(table), title)
    row = figure.subplots(1, len(kinds), squeeze=False, sharey=True, sharex=True)[0]
    told_runs = [run for runs in table.values() for run in runs.values()]
    most = max(run["runs"] for run in told_runs)
    about = (
        "Total cost (mean and deviation over seeds)"
        if any(r["runs"] > 1 for r in told_runs)
        else "Total cost (one seed)"
    )
    if any(run["reached"] < run["runs"] for run in told_runs):
        about += "\n* some runs ended below the target"
    for axes, kind in zip(row, kinds, strict=True):
        style(axes, about)
        name_panel(axes, f"{kind} resources")
        best = told["comparisons"].get(condition, {}).get(kind, {}).get("best_fixed")
        for place, (policy, runs) in enumerate(table.items()):
            if kind in runs:
                _draw_policy(axes, place, runs[kind], most, best=policy == best)
        name_rows(axes, list(table))
        axes.tick_params(axis="y", labelleft=axes is row[0])
    for text, policy in zip(row[0].get_yticklabels(), table, strict=True):
        text.set_fontweight("bold" if policy == "agent" else "normal")
    ends = [run["total_cost"]["mean"] + (run["total_cost"]["spread"] or 0) for run in told_runs]
    row[0].set_xlim(0, 1.38 * max(ends))  # room for the text after the longest bar
    legend_below(figure, [Patch(color=colour, label=label) for label, colour in _PARTS.values()])
    return figure


def _draw_policy(axes: Axes, place: int, run: Mapping[str, Any], most: int, *, best: bool) -> None:
    start = 0.0
    for name, (_, colour) in _PARTS.items():
        axes.barh(place, run[name]["mean"], left=start, height=0.66, color=colour)
        start += run[name]["mean"]
    total = run["total_cost"]
    deviation = total["spread"] or 0.0
    if deviation:
        axes.errorbar(total["mean"], place, xerr=deviation, color=INK, capsize=2.5, lw=1.0)
    mark = "*" if run["reached"] < run["runs"] else ""
    mark += f"  {run['runs']} of {most} seeds" if run["runs"] < most else ""
    text = spread(total["mean"], total["spread"], "count") + mark + ("  best fixed" if best else "")
    write_after(axes, place, total["mean"] + deviation, text)


def _normalised(table: Mapping[str, Any], kinds: Sequence[str], title: str) -> Figure:
    """Draw the paper's figure: each part of the cost, divided by the larger of the two means."""
    figure = new_figure(max(6.4, 0.8 + 4.6 * len(kinds)), 3.6, title)
    row = figure.subplots(1, len(kinds), squeeze=False, sharey=True)[0]
    colours = looks(_SIDES.values())
    for axes, kind in zip(row, kinds, strict=True):
        style(axes, "", "Normalised cost" if axes is row[0] else "")
        name_panel(axes, f"{kind} resources")
        for place, name in enumerate(_GROUPS):
            stats = {policy: table[policy][kind][name] for policy in _SIDES}
            largest = max(stat["mean"] for stat in stats.values()) or 1.0
            for side, (policy, stat) in enumerate(stats.items()):
                x, height = place + 0.38 * (side - 0.5), stat["mean"] / largest
                error = (stat["spread"] or 0.0) / largest
                axes.bar(x, height, width=0.36, color=colours[_SIDES[policy]].colour)
                if error:
                    axes.errorbar(x, height, yerr=error, color=INK, capsize=2.5, lw=1.0)
                axes.annotate(
                    f"{height:.2f}", (x, height + error), xytext=(0, 3), textcoords="offset points",
                    ha="center", fontsize=FONT - 1.5, color=INK,
                )  # fmt: skip
        axes.set_xticks(range(len(_GROUPS)), list(_GROUPS.values()))
        axes.tick_params(axis="x", length=0, labelsize=FONT)
        axes.grid(visible=False, axis="x")
    row[0].set_ylim(0, 1.08 * row[0].get_ylim()[1])  # room for the numbers on top
    sides = [Patch(color=colours[_SIDES[policy]].colour, label=_NAMES[policy]) for policy in _SIDES]
    legend_below(figure, sides)
    return figure
