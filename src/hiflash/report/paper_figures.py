"""Figures of the paper's items that no other study draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from hiflash.report.canvas import (
    FONT,
    INK,
    legend_below,
    log_x,
    name_panel,
    name_rows,
    new_figure,
    save,
    style,
    write_after,
)
from hiflash.report.curves import handle
from hiflash.report.methods import label, looks
from hiflash.report.units import count, goal

__all__ = ["draw_costs", "draw_js_accuracy", "draw_lambda", "draw_needs", "draw_settings"]

LAMBDA = (("total_js", "Total JS divergence"), ("mean_latency_ms", "Mean response latency (ms)"))
LINES = (("#332288", "-o"), ("#CC6677", "-s"), ("#332288", "--o"), ("#CC6677", "--s"))
SETTINGS = (("communications", "Communications with the cloud"), ("virtual_s", "Virtual time (s)"))
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


def draw_needs(rows: Sequence[Mapping[str, Any]], title: str, stem: Path) -> list[Path]:
    """Save the communications to every target, a line per label and a panel per partition; return the paths.

    A row has `partition`, `label` and `to`: targets and their `communications`, None if not reached.
    """
    parts = dict.fromkeys(str(row["partition"]) for row in rows if row["partition"] != "pooled")
    labels = list(dict.fromkeys(str(row["label"]) for row in rows if row["partition"] in parts))
    figure = new_figure(max(1.6 + 3.6 * len(parts), 6.4), 1.5 + 0.27 * len(labels), title)
    panels = figure.subplots(1, len(parts), squeeze=False, sharey=True)[0]
    for axes, part in zip(panels, parts, strict=True):
        style(axes, "Communications with the cloud")
        for row in rows:
            reached = [each["communications"] for each in row["to"] if each["communications"] is not None]
            if row["partition"] == part and reached:
                place = labels.index(row["label"])
                axes.plot([min(reached), max(reached)], [place, place], color="#C8C8C8", lw=1.2, zorder=1)
        handles = _draw_targets(axes, [row for row in rows if row["partition"] == part], labels)
        log_x(axes)
        if len(parts) > 1:
            name_panel(axes, part, "bold")
    name_rows(panels[0], [label(name) for name in labels])
    legend_below(figure, handles)
    return save(figure, stem)


def draw_costs(costs: Mapping[str, Sequence[float]], title: str, stem: Path) -> list[Path]:
    """Save the cost of computing, sending and time to the target, a bar per label; return the paths."""
    figure = new_figure(8.0, 1.5 + 0.36 * len(costs), title)
    axes = figure.subplots()
    style(axes, "System cost (units of the reward)")
    kinds = (("computing", "#4477AA"), ("sending", "#CCBB44"), ("time", "#AA3377"))
    for place, parts in enumerate(costs.values()):
        start = 0.0
        for (_, colour), value in zip(kinds, parts, strict=True):
            axes.barh(place, value, left=start, height=0.62, color=colour)
            start += value
        write_after(axes, place, start, count(start))
    axes.set_xlim(0, 1.15 * max(map(sum, costs.values()), default=1.0))
    name_rows(axes, [label(name) for name in costs])
    legend_below(figure, [Patch(color=colour, label=name) for name, colour in kinds])
    return save(figure, stem)


def draw_lambda(rows: Sequence[Mapping[str, Any]], stem: Path) -> list[Path]:
    """Save total JS divergence and response latency against lambda, by partition; return the paths."""
    figure = new_figure(9.5, 3.9, "Association of clients: mean over seeds")
    panels = figure.subplots(1, 2)
    parts = dict.fromkeys(str(row["partition"]) for row in rows)
    handles: list[Line2D] = []
    for axes, (name, words) in zip(panels, LAMBDA, strict=True):
        style(axes, "lambda", words)
        handles.clear()
        for part, look in zip(parts, LINES, strict=False):
            means: dict[float, list[float]] = {}
            for row in rows:
                if row["partition"] == part:
                    means.setdefault(float(row["lambda"]), []).append(float(row[name]))
            xs = sorted(means)
            handles += axes.plot(xs, [fmean(means[x]) for x in xs], look[1], color=look[0], ms=4, label=part)
        axes.set_ylim(bottom=0)
    legend_below(figure, handles)
    return save(figure, stem)


def draw_settings(
    rows: Sequence[Mapping[str, Any]],
    labels: Sequence[str],
    settings: Mapping[str, str],
    title: str,
    stem: Path,
) -> list[Path]:
    """Save communications and virtual time of labels under settings; return the paths.

    `settings` has words for what follows a label (`+wan-off`). Filled marks are runs, open ones their
    `forecast`.
    """
    figure = new_figure(10.5, 4.4, title)
    panels = figure.subplots(1, 2)
    known = {str(row["label"]): row for row in rows}
    styles = looks(labels)
    for axes, (name, words) in zip(panels, SETTINGS, strict=True):
        style(axes, "", words)
        for each in labels:
            own = [known.get(each + suffix, {}) for suffix in settings]
            values = [row.get(name) or nan for row in own]
            axes.plot(range(len(settings)), values, color=styles[each].colour, marker=styles[each].marker,
                      ls=styles[each].dashes, lw=1.4, ms=6)  # fmt: skip
            told = [(row.get("forecast") or {}).get(name) or nan for row in own]
            axes.plot(range(len(settings)), told, ls="", color=styles[each].colour,
                      marker=styles[each].marker, mfc="none", ms=9, mew=0.9)  # fmt: skip
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: count(value)))
        axes.set_xticks(range(len(settings)), settings.values(), rotation=20, ha="right")
    open_mark = Line2D([], [], ls="", marker="o", mfc="none", color=INK, ms=9, label="forecast")
    legend_below(figure, [*(handle(each, styles[each]) for each in labels), open_mark])
    return save(figure, stem)


def _draw_targets(axes: Axes, rows: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> list[Line2D]:
    """Draw a point per label and target, darker for higher targets; return them for the legend."""
    targets = [each["target"] for each in rows[0]["to"]]
    lines = []
    for place, target in enumerate(targets):
        points = [
            (each["communications"], labels.index(row["label"]))
            for row in rows
            for each in row["to"]
            if each["target"] == target and each["communications"] is not None
        ]
        shade = colormaps["viridis_r"](0.1 + 0.9 * place / max(1, len(targets) - 1))
        lines += axes.plot(
            [x for x, _ in points], [y for _, y in points], "o", color=shade, ms=6.5, mec="white", mew=0.6,
            label=goal(target), zorder=2,
        )  # fmt: skip
    return lines
