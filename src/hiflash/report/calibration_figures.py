"""The figure of a calibration: communications, cost and accuracy of real runs beside the surrogate's."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from hiflash.control.surrogate.rehearsal import Rehearsal
from hiflash.core.metrics import ACCURACY
from hiflash.report.canvas import (
    FONT,
    MUTED,
    legend_below,
    metric_axis,
    name_rows,
    new_figure,
    save,
    style,
    target_line,
)
from hiflash.report.curves import curve
from hiflash.report.measures import MEASURES
from hiflash.report.units import goal
from hiflash.sim.result import Result

__all__ = ["draw_calibration"]

_REAL, _SURROGATE = "#222222", "#CC3311"
_COLOURS = ("#0077BB", "#EE7733", "#009988")
_PANELS = ("communications", "total_cost")


def draw_calibration(
    title: str,
    report: Mapping[str, Any],
    policies: Sequence[str],
    results: Sequence[Result],
    rehearsals: Sequence[Sequence[Rehearsal]],
    stem: Path,
) -> list[Path]:
    """Save the figure as PNG and PDF and return the paths."""
    rows = report["policies"]
    target = goal(report["target"])
    figure = new_figure(13.5, 1.9 + 0.3 * max(len(rows), 8), title)
    needs, costs, curves = figure.subplots(1, 3, width_ratios=(1, 1, 1.25))
    for axes, name in zip((needs, costs), _PANELS, strict=True):
        _draw_policies(axes, rows, name, f"{MEASURES[name].title} to {target}")
    costs.tick_params(labelleft=False)
    drawn = _draw_curves(curves, rows, policies, results, rehearsals)
    drawn.append(target_line(curves, report["target"], ACCURACY, ":"))
    metric_axis(curves, ACCURACY, labelled=True)
    seeds = f" (mean and deviation of {rows[0]['seeds']} seeds)" if rows[0]["seeds"] > 1 else ""
    handles = [
        Line2D([], [], color=_REAL, marker="o", ls="", ms=6, label=f"real{seeds}"),
        Line2D([], [], color=_SURROGATE, marker="D", mfc="white", ls="", ms=5.5, label="surrogate"),
        *drawn,
    ]
    legend_below(figure, handles)
    return save(figure, stem)


def _draw_policies(axes: Axes, rows: Sequence[Mapping[str, Any]], name: str, title: str) -> None:
    """Draw for every policy the real mean and deviation, and below them the surrogate's."""
    style(axes, title)
    highest = 0.0
    for place, row in enumerate(rows):
        cell = row[name]
        for side, colour, marker, shift in (
            ("real", _REAL, "o", -0.16),
            ("surrogate", _SURROGATE, "D", 0.16),
        ):
            deviation = cell[f"{side}_std"] or 0.0
            axes.errorbar(
                cell[side],
                place + shift,
                xerr=deviation,
                color=colour,
                marker=marker,
                ms=5.5,
                mfc=colour if side == "real" else "white",
                lw=1.2,
                capsize=2.5,
            )
            highest = max(highest, cell[side] + deviation)
        axes.annotate(
            f"{cell['error']:+.0%}",
            (1.0, place),
            xycoords=("axes fraction", "data"),
            xytext=(-2, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            color=MUTED,
            fontsize=FONT - 1,
        )
    name_rows(axes, [row["policy"] for row in rows])
    axes.set_xlim(0, 1.22 * highest)  # room on the right for the errors


def _draw_curves(
    axes: Axes,
    rows: Sequence[Mapping[str, Any]],
    policies: Sequence[str],
    results: Sequence[Result],
    rehearsals: Sequence[Sequence[Rehearsal]],
) -> list[Line2D]:
    """Draw one real run and the range of its rehearsals for three policies; return the legend's entries."""
    by_need = sorted(rows, key=lambda row: float(row["communications"]["real"]))
    chosen = dict.fromkeys(row["policy"] for row in (rows[0], by_need[0], by_need[-1]))
    handles = []
    for policy, colour in zip(chosen, _COLOURS, strict=False):
        place = policies.index(policy)
        xs, ys = curve(results[place].to_dict(), "communications")
        axes.plot(xs, ys, color=colour, lw=1.6)
        runs = [curve({"evaluations": run.evaluations}, "communications") for run in rehearsals[place]]
        # Only while most rehearsals still run: after that, only slow ones are left for the mean.
        grid = xs[xs <= np.median([ends[-1] for ends, _ in runs])]
        within = np.stack([np.interp(grid, *run) for run in runs])
        axes.fill_between(grid, within.min(axis=0), within.max(axis=0), color=colour, alpha=0.15, lw=0)
        axes.plot(grid, within.mean(axis=0), color=colour, lw=1.4, ls="--")
        handles.append(Line2D([], [], color=colour, lw=1.8, label=policy))
    style(axes, f"Communications (seed {results[0].seed}; dashed: surrogate, mean and range)")
    axes.set_xlim(left=0)
    return handles
