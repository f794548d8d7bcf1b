"""Figures of the paper's items that no other study draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.ticker import FuncFormatter

from hiflash.report.canvas import FONT, INK, legend_below, new_figure, save, style
from hiflash.report.units import goal

__all__ = ["draw_js_accuracy"]

COLOURS = {"hifl": "#0072B2", "hidelta": "#D55E00"}
NAMES = {"hifl": "HiFL", "hidelta": "HiDelta (ours)"}


def draw_js_accuracy(points: Sequence[Mapping[str, Any]], title: str, stem: Path) -> list[Path]:
    """Save accuracy against total JS divergence, a named point per association; return the paths.

    A point has `label`, `method`, `total_js` and `accuracy`.
    """
    figure = new_figure(6.4, 4.2, title)
    axes = figure.subplots()
    handles = []
    for method in dict.fromkeys(point["method"] for point in points):
        own = [point for point in points if point["method"] == method]
        (line,) = axes.plot(
            [point["total_js"] for point in own],
            [point["accuracy"] for point in own],
            "o" if method == "hifl" else "D",
            color=COLOURS.get(method, INK),
            markersize=7,
            label=NAMES.get(method, method),
        )
        handles.append(line)
    for place, point in enumerate(sorted(points, key=lambda point: float(point["total_js"]))):
        axes.annotate(
            str(point["label"]).removeprefix("hidelta-"),
            (point["total_js"], point["accuracy"]),
            xytext=(0, 9 if place % 2 else -15),  # neighbours are close together: above, below
            textcoords="offset points",
            ha="center",
            fontsize=FONT - 1.5,
            color=INK,
        )
    style(axes, "Total JS divergence of the edges", "Test accuracy")
    axes.margins(x=0.12, y=0.15)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: goal(value)))
    legend_below(figure, handles)
    return save(figure, stem)
