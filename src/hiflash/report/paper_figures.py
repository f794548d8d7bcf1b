"""Figures of the paper's items that no other study draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator

from hiflash.report.canvas import (
    FONT,
    INK,
    legend_below,
    name_rows,
    new_figure,
    save,
    style,
    write_after,
)
from hiflash.report.paper_words import data_words, label_words, over_seeds_words, part_title
from hiflash.report.units import goal

__all__ = ["draw_costs", "draw_js_accuracy", "draw_lambda"]

LAMBDA = (("total_js", "Total JS divergence"), ("mean_latency_ms", "Mean response latency (ms)"))
LINES = (("#332288", "-o"), ("#CC6677", "-s"), ("#332288", "--o"), ("#CC6677", "--s"))
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
    for point in points:
        axes.annotate(
            label_words(str(point["label"]).removeprefix("hidelta-")),
            (point["total_js"], point["accuracy"]),
            xytext=(1, 6),
            textcoords="offset points",
            rotation=40,  # neighbours are close together
            fontsize=FONT - 1.5,
            color=INK,
        )
    style(axes, "Total JS divergence of the edges", "Test accuracy")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}")
    axes.xaxis.set_minor_locator(LogLocator(subs=(2, 5)))
    axes.tick_params(axis="x", which="both", labelsize=FONT - 1)
    axes.margins(x=0.12)
    axes.set_ylim(0, 1.35 * max(float(point["accuracy"]) for point in points))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: goal(value)))
    legend_below(figure, handles)
    return save(figure, stem)


def draw_costs(costs: Mapping[str, Sequence[Sequence[float]]], title: str, stem: Path) -> list[Path]:
    """Save the cost of computing, sending and time to the target, a bar per label; return the paths.

    A label has these three numbers for every seed: bars are means, and dots the totals of seeds.
    """
    figure = new_figure(8.0, 1.5 + 0.36 * len(costs), title)
    axes = figure.subplots()
    style(axes, "System cost (units of the reward)")
    kinds = (("computing", "#4477AA"), ("sending", "#CCBB44"), ("time", "#AA3377"))
    ends = [1.0]
    for place, seeds in enumerate(costs.values()):
        start = 0.0
        for (_, colour), values in zip(kinds, zip(*seeds, strict=True), strict=True):
            axes.barh(place, fmean(values), left=start, height=0.62, color=colour)
            start += fmean(values)
        totals = [sum(parts) for parts in seeds]
        if len(totals) > 1:
            axes.plot(totals, [place] * len(totals), "o", ms=3.2, color=INK, mec="white", mew=0.5, zorder=3)
        ends.append(max(start, *totals))
        write_after(axes, place, ends[-1], f"{start:,.0f}")
    axes.set_xlim(0, 1.15 * max(ends))
    name_rows(axes, [label_words(name) for name in costs])
    legend_below(figure, [Patch(color=colour, label=name) for name, colour in kinds])
    return save(figure, stem)


def draw_lambda(rows: Sequence[Mapping[str, Any]], data: str, stem: Path) -> list[Path]:
    """Save total JS divergence and response latency against lambda, by partition; return the paths.

    A row has `partition`, `seed`, `lambda` and the two measures.
    """
    seeds = len({row["seed"] for row in rows})
    title = (
        f"{data_words(data)}: association of clients {over_seeds_words(seeds, 'mean and range of {} seeds')}"
    )
    figure = new_figure(9.5, 3.9, title)
    panels = figure.subplots(1, 2)
    parts = dict.fromkeys(str(row["partition"]) for row in rows)
    handles: list[Line2D] = []
    for axes, (name, words) in zip(panels, LAMBDA, strict=True):
        style(axes, "lambda", words)
        handles.clear()
        for part, (colour, line) in zip(parts, LINES, strict=False):
            values: dict[float, list[float]] = {}
            for row in rows:
                if row["partition"] == part:
                    values.setdefault(float(row["lambda"]), []).append(float(row[name]))
            xs = sorted(values)
            low, high = ([end(values[x]) for x in xs] for end in (min, max))
            axes.fill_between(xs, low, high, color=colour, alpha=0.08, linewidth=0)
            means = [fmean(values[x]) for x in xs]
            handles += axes.plot(xs, means, line, color=colour, ms=4, label=part_title(part))
    panels[0].set_ylim(bottom=0)
    legend_below(figure, handles)
    return save(figure, stem)
