"""Two figures of the paper about an agent: its thresholds over training, and under other cost weights."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from hiflash.core.thresholds.policy import REFUSE
from hiflash.report.canvas import FONT, INK, legend_below, new_figure, save, style

__all__ = ["draw_sigma", "draw_threshold_boxes"]

_BOX, _LINE, _BAR = "#88AACC", "#882255", "#CCBB44"
_DECIDED: dict[str, Any] = {
    "linestyle": "", "marker": "D", "markersize": 6, "mfc": _BAR, "mec": INK,
}  # fmt: skip


def draw_threshold_boxes(rows: Sequence[Mapping[str, Any]], stem: Path) -> list[Path]:
    """Save box plots of the granted thresholds and bars of the refusals by `episode`; return the paths."""
    figure = new_figure(
        max(6.2, 1.6 + 0.62 * len(rows)),
        4.8,
        "What the agent grants and refuses while it learns",
    )
    boxes, bars = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    style(boxes, "", "Threshold")
    _draw_boxes(boxes, rows)
    style(bars, "Training episode", "Refused")
    _draw_refusals(bars, rows)
    bars.set_xticks(range(len(rows)), [str(row["episode"]) for row in rows])
    legend_below(figure, _handles())
    return save(figure, stem)


def draw_sigma(rows: Sequence[Mapping[str, Any]], stem: Path) -> list[Path]:
    """Save thresholds, refusals and the mean number of busy edges by `sigma`; return the paths."""
    figure = new_figure(max(9.0, 2.4 + 2.8 * len(rows)), 3.9, "Agents for other weights of the cost")
    boxes, refusals, bars = figure.subplots(1, 3)
    _draw_boxes(boxes, rows)
    _draw_refusals(refusals, rows)
    _draw_bars(bars, [row["parallelism"] for row in rows], "{:.1f}")
    labels = ("Threshold", "Refused", "Edges at work, on average")
    for axes, label in zip((boxes, refusals, bars), labels, strict=True):
        style(axes, "Weights (σ1 computing, σ2 sending)", label)
        axes.grid(visible=False, axis="x")
        axes.set_xticks(
            range(len(rows)), [f"{row['label']}\n({row['sigma'][0]:g}, {row['sigma'][1]:g})" for row in rows]
        )
    legend_below(figure, _handles())
    return save(figure, stem)


def _draw_boxes(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw quartiles, median and mean of the granted thresholds.

    A diamond is the mean of the paper's actions: thresholds, with -1 for a refusal.
    """
    granted = [[threshold for threshold in row["thresholds"] if threshold != REFUSE] for row in rows]
    full = [(place, sample) for place, sample in enumerate(granted) if sample]
    axes.boxplot(
        [sample for _, sample in full],
        positions=[place for place, _ in full],
        widths=0.55,
        showmeans=True,
        patch_artist=True,
        showfliers=False,
        whis=(5, 95),
        boxprops={"facecolor": _BOX, "edgecolor": INK, "linewidth": 0.8},
        medianprops={"color": _LINE, "linewidth": 2},
        meanprops={"marker": "o", "markerfacecolor": "white", "markeredgecolor": INK, "markersize": 5},
        whiskerprops={"color": INK, "linewidth": 0.8},
        capprops={"color": INK, "linewidth": 0.8},
    )
    decided = [float(np.mean(row["thresholds"])) for row in rows]
    axes.plot(range(len(rows)), decided, **_DECIDED, zorder=4)
    axes.set_ylim(bottom=REFUSE - 0.5)
    axes.yaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.grid(visible=False, axis="x")


def _draw_refusals(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    refused = [100 * np.mean([threshold == REFUSE for threshold in row["thresholds"]]) for row in rows]
    _draw_bars(axes, refused, "{:.0f}%")
    axes.yaxis.set_major_formatter(PercentFormatter(decimals=0))


def _draw_bars(axes: Axes, heights: Sequence[float], form: str) -> None:
    axes.bar(range(len(heights)), heights, width=0.55, color=_BAR)
    for place, height in enumerate(heights):
        axes.annotate(
            form.format(height), (place, height), xytext=(0, 3), textcoords="offset points", ha="center",
            fontsize=FONT - 1, color=INK,
        )  # fmt: skip
    axes.margins(y=0.18)
    axes.set_ylim(bottom=0)
    axes.grid(visible=False, axis="x")


def _handles() -> list[Line2D | Patch]:
    return [
        Line2D([], [], color=_LINE, linewidth=2, label="median"),
        Line2D([], [], linestyle="", marker="o", mfc="white", mec=INK, label="mean"),
        Line2D([], [], **_DECIDED, label="mean with refusals as -1"),
        Patch(facecolor=_BOX, edgecolor=INK, label="quartiles, whiskers from 5% to 95%"),
    ]
