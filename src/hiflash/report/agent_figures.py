"""Two of the paper's figures on a learned policy: thresholds over training, and under other weights."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from hiflash.report.canvas import FONT, INK, MUTED, new_figure, save, style

__all__ = ["draw_sigma", "draw_threshold_boxes"]

_BOX, _LINE, _BAR = "#88AACC", "#882255", "#CCBB44"
_REFUSED = -1


def draw_threshold_boxes(rows: Sequence[Mapping[str, Any]], stem: Path) -> list[Path]:
    """Save box plots of the thresholds of each row's `episode` and return the paths; -1 is a refusal."""
    figure = new_figure(
        max(6.2, 1.6 + 0.62 * len(rows)), 3.8, "Thresholds that the agent chooses while it learns"
    )
    axes = figure.subplots()
    style(axes, "Training episode")
    _draw_boxes(axes, [row["thresholds"] for row in rows])
    axes.set_xticks(range(len(rows)), [str(row["episode"]) for row in rows])
    _legend(figure)
    return save(figure, stem)


def draw_sigma(rows: Sequence[Mapping[str, Any]], stem: Path) -> list[Path]:
    """Save thresholds, and how many edges run at once, under each row's `sigma`, and return the paths."""
    figure = new_figure(max(8.0, 2.4 + 2.2 * len(rows)), 3.9, "Thresholds under other weights of the cost")
    boxes, bars = figure.subplots(1, 2, width_ratios=(4, 3))
    names = [f"{row['label']}\n({row['sigma'][0]:g}, {row['sigma'][1]:g})" for row in rows]
    style(boxes, "Weights (σ1 computing, σ2 sending; time has 1)")
    _draw_boxes(boxes, [row["thresholds"] for row in rows])
    style(bars, "Weights (σ1, σ2)")
    for place, row in enumerate(rows):
        bars.bar(place, row["parallelism"], width=0.55, color=_BAR)
        bars.annotate(
            f"{row['parallelism']:.1f}", (place, row["parallelism"]), xytext=(0, 3),
            textcoords="offset points", ha="center", fontsize=FONT - 1, color=INK,
        )  # fmt: skip
    bars.set_ylabel("Edges at work, on average", fontsize=FONT, color=INK)
    bars.margins(y=0.15)
    bars.set_ylim(bottom=0)
    bars.grid(visible=False, axis="x")
    for axes in (boxes, bars):
        axes.set_xticks(range(len(rows)), names)
    _legend(figure)
    return save(figure, stem)


def _draw_boxes(axes: Axes, samples: Sequence[Sequence[float]]) -> None:
    """Draw a box from the first to the third quartile per sample, its median, and its mean as a dot."""
    full = [(place, sample) for place, sample in enumerate(samples) if len(sample)]
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
    if any(_REFUSED in sample for sample in samples):
        axes.axhline(_REFUSED + 0.5, color=MUTED, linestyle=":", linewidth=1)
    axes.set_ylabel("Threshold", fontsize=FONT, color=INK)
    axes.yaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: "refuse" if value == _REFUSED else f"{value:g}")
    )
    if axes.get_ylim()[0] < 0:
        axes.set_yticks([_REFUSED, *(tick for tick in axes.get_yticks() if 0 <= tick <= axes.get_ylim()[1])])
    axes.grid(visible=False, axis="x")


def _legend(figure: Figure) -> None:
    handles = [
        Line2D([], [], color=_LINE, linewidth=2, label="median"),
        Line2D([], [], linestyle="", marker="o", mfc="white", mec=INK, label="mean"),
        Patch(facecolor=_BOX, edgecolor=INK, label="quartiles, whiskers from 5 % to 95 %"),
    ]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=FONT, labelcolor=INK
    )
