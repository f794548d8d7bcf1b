"""The figure of one run."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from hiflash.report.canvas import (
    FONT,
    INK,
    legend_below,
    metric_axis,
    new_figure,
    save,
    say,
    style,
    target_line,
)
from hiflash.report.curves import DENSE, PANELS, curve, handle
from hiflash.report.methods import Look, label, looks
from hiflash.report.outcome import metric_of, show
from hiflash.report.summary import Result

__all__ = ["draw_run", "run_figure"]

_HALO = (withStroke(linewidth=2.5, foreground="white"),)


def draw_run(result: Result, stem: Path) -> list[Path]:
    """Save the figure of a run as PNG and PDF; return the paths."""
    return save(run_figure(result), stem)


def run_figure(result: Result) -> Figure:
    """Return the metric against communications, steps and virtual time."""
    title = f"{label(result['method'])} on {result['data']}, {result['partition']}, seed {result['seed']}"
    figure, metric = new_figure(10.5, 3.8, title), metric_of(result)
    panels = figure.subplots(1, len(PANELS), sharey=True)
    look = looks([result["method"]])[result["method"]]
    handles = [handle(result["method"], look)]
    for axes, (measure, x_label) in zip(panels, PANELS, strict=True):
        style(axes, x_label)
        _draw_single(axes, result, measure, look)
        if result["stop_target"] is not None:
            handles[1:] = [target_line(axes, result["stop_target"], metric, "--")]
    metric_axis(panels[0], metric, labelled=True)
    legend_below(figure, handles)
    return figure


def _draw_single(axes: Axes, result: Result, measure: str, look: Look) -> None:
    (xs, ys), metric = curve(result, measure), metric_of(result)
    hue = look.colour
    if len(xs) == 0:
        say(axes, "no evaluation")
        return
    if xs[-1] == 0:
        axes.axhline(ys[-1], color=hue, linestyle="--", linewidth=1.8)
        axes.set_xticks([])
        say(axes, f"not used; final {metric.name} {show(ys[-1], metric)}")
        return
    axes.plot(xs, ys, color=hue, linewidth=1.8 if len(xs) < DENSE else 1.2)
    axes.set_xlim(left=0)
    best = int(np.argmax(ys) if metric.better == "higher" else np.argmin(ys))
    axes.plot(xs[best], ys[best], "o", color=hue, markeredgecolor="white", markersize=7, zorder=4)
    right = xs[best] > xs[-1] / 2
    axes.annotate(
        f"best {show(ys[best], metric)}",
        (xs[best], ys[best]),
        xytext=(4 if right else -4, 7),
        textcoords="offset points",
        ha="right" if right else "left",
        fontsize=FONT - 0.5,
        color=INK,
        path_effects=_HALO,
        zorder=5,
    )
