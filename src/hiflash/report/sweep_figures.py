"""The figure of a sweep: lines for one setting, heat maps for two, ranked bars for more."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from hiflash.core.metrics import Metric
from hiflash.report.bars import Bar, draw_bars
from hiflash.report.canvas import FONT, INK, MUTED, new_figure, save, style
from hiflash.report.curves import log_if_wide
from hiflash.report.measures import COSTS
from hiflash.report.outcome import (
    best_name,
    best_of,
    final,
    mark,
    measure_of,
    metric_among,
    show,
    validated,
)
from hiflash.report.summary import Groups, Result, at_target, common_target, known
from hiflash.report.sweep import by_point, leaves, setting, shown, sweep_rows
from hiflash.report.units import spread

__all__ = ["draw_sweep", "sweep_figure"]

MOST_BARS = 20
"""Number of bars in the figure; the files have all points."""

_COLOUR = "#0077BB"
_MAP = colormaps["viridis"]


def draw_sweep(results: Sequence[Result], by: str, stem: Path) -> list[Path]:
    """Save the figure of a sweep as PNG and PDF; return the paths."""
    return save(sweep_figure(results, by), stem)


def sweep_figure(results: Sequence[Result], by: str) -> Figure:
    """Return the chosen measure beside the task's metric or communications."""
    groups = by_point(results)
    target = common_target(results)
    other = best_name(metric_among(results)) if by in COSTS else "communications"
    metrics = [by] if target is None and other in COSTS else [by, other]
    keys = list(results[0]["point"])
    seeds = max(map(len, groups.values()))
    title = setting(results) + (f" (mean of {seeds} seeds)" if seeds > 1 else " (one seed)")
    title += ", on the validation set" if validated(results) else ""
    draw = {1: _lines, 2: _maps}.get(len(keys), _bars)
    return draw(groups, keys, metrics, target, title)


def _lines(groups: Groups, keys: list[str], metrics: list[str], target: float | None, title: str) -> Figure:
    figure = new_figure(5.0 * len(metrics), 3.6, title)
    values = [cells[0]["point"][keys[0]] for cells in groups.values()]
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    xs = [float(value) for value in values] if numeric else list(map(float, range(len(values))))
    for axes, metric in zip(figure.subplots(1, len(metrics), squeeze=False)[0], metrics, strict=True):
        style(axes, keys[0], _axis(metric, target, _task_metric(groups)))
        _draw_line(axes, xs, list(groups.values()), metric, target)
        if numeric and min(xs) > 0 and max(xs) > 20 * min(xs):
            log_if_wide(axes, xs)
        axes.set_xticks(xs, [shown(value) for value in values], rotation=0 if len(xs) < 7 else 45)
        axes.minorticks_off()
    return figure


def _draw_line(
    axes: Axes, xs: Sequence[float], cells: Sequence[list[Result]], metric: str, target: float | None
) -> None:
    scale = 100 if measure_of(metric, metric_among(cells[0])).unit == "share" else 1
    means: list[tuple[float, float]] = []
    for x, group in sorted(zip(xs, cells, strict=True), key=lambda pair: pair[0]):
        values = [scale * value for value in _values(group, metric, target)]
        if not values:
            means.append((x, float("nan")))  # the line has a gap here
            axes.axvline(x, color=MUTED, ls=":", lw=1)
            axes.annotate(
                "not reached",
                (x, 0.97),
                xycoords=("data", "axes fraction"),
                rotation=90,
                ha="right",
                va="top",
                style="italic",
                color=MUTED,
                fontsize=FONT - 1,
            )
            continue
        means.append((x, float(np.mean(values))))
        axes.plot([x] * len(values), values, "o", color=_COLOUR, ms=4, alpha=0.45, mec="none")
        if len(values) < len(group):
            axes.annotate(
                f"{len(values)} of {len(group)} seeds",
                means[-1],
                xytext=(6, 6),
                textcoords="offset points",
                color=MUTED,
                style="italic",
                fontsize=FONT - 1.5,
            )
    axes.plot(
        *zip(*means, strict=True) if means else ([], []), "o-", color=_COLOUR, lw=1.8, ms=6, mec="white"
    )
    axes.margins(x=0.08, y=0.15)


def _maps(groups: Groups, keys: list[str], metrics: list[str], target: float | None, title: str) -> Figure:
    rows, columns = (
        list(
            {json.dumps(cells[0]["point"][key]): cells[0]["point"][key] for cells in groups.values()}.values()
        )
        for key in keys
    )
    height = 1.6 + 0.55 * len(rows)
    figure = new_figure(len(metrics) * (1.6 + 0.85 * len(columns)), height, title)
    for axes, metric in zip(figure.subplots(1, len(metrics), squeeze=False)[0], metrics, strict=True):
        means = {
            point: float(np.mean(values))
            for point, cells in groups.items()
            if (values := _values(cells, metric, target))
        }
        low, high = min(means.values(), default=0.0), max(means.values(), default=1.0)
        for point, cells in groups.items():
            place = cells[0]["point"]
            x, y = columns.index(place[keys[1]]), rows.index(place[keys[0]])
            _draw_cell(axes, x, y, cells, metric, target, means.get(point), (low, high))
        axes.set_xlim(-0.5, len(columns) - 0.5)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xticks(range(len(columns)), [shown(value) for value in columns], fontsize=FONT)
        axes.set_yticks(range(len(rows)), [shown(value) for value in rows], fontsize=FONT)
        axes.set_xlabel(keys[1], fontsize=FONT, color=INK)
        axes.set_ylabel(keys[0], fontsize=FONT, color=INK)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_title(_axis(metric, target, _task_metric(groups)), fontsize=FONT, color=INK)
    return figure


def _draw_cell(
    axes: Axes,
    x: int,
    y: int,
    cells: list[Result],
    metric: str,
    target: float | None,
    mean: float | None,
    limits: tuple[float, float],
) -> None:
    low, high = limits
    face: Any
    if mean is None:
        face, ink, text = "#F0F0F0", MUTED, "not\nreached"
    else:
        share = (mean - low) / (high - low) if high > low else 0.5
        task_metric = metric_among(cells)
        outcome = metric in (task_metric.name, best_name(task_metric))
        if not outcome or task_metric.better == "lower":  # light is good: low costs, high accuracy
            share = 1 - share
        face, ink = _MAP(0.12 + 0.88 * share), "white" if share < 0.6 else INK
        reached = len(_values(cells, metric, target))
        text = spread(mean, None, measure_of(metric, task_metric).unit)
        text += f"\n{reached} of {len(cells)} seeds" if reached < len(cells) else ""
    hatch = "////" if mean is None else None
    axes.add_patch(
        Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, facecolor=face, edgecolor="white", hatch=hatch, lw=0)
    )
    axes.text(x, y, text, ha="center", va="center", color=ink, fontsize=FONT - 1, linespacing=1.1)


def _bars(groups: Groups, keys: list[str], metrics: list[str], target: float | None, title: str) -> Figure:
    ranked = sweep_rows([cell for cells in groups.values() for cell in cells], metrics[0])[:MOST_BARS]
    best = f"the best {MOST_BARS} of {len(groups)} points, " if len(groups) > MOST_BARS else ""
    names = leaves(keys)
    figure = new_figure(
        4.5 + 4.0 * len(metrics), 1.4 + 0.28 * len(ranked), f"{title}: {best}{', '.join(names)}"
    )
    row, task_metric = figure.subplots(1, len(metrics), squeeze=False, sharey=True)[0], _task_metric(groups)
    for axes, metric in zip(row, metrics, strict=True):
        measure = measure_of(metric, task_metric)
        scale = 100 if measure.unit == "share" else 1
        bars = []
        for point in (line["point"] for line in ranked):
            cells = groups[json.dumps(point)]
            values = [scale * value for value in _values(cells, metric, target)]
            name = ", ".join(shown(value) for value in point.values())
            watched = validated(cells)
            best = show(task_metric.best(best_of(cell, watched=watched) for cell in cells), task_metric)
            bars.append(Bar(name, _COLOUR, values, len(cells), f"not reached (best {best})"))
        unit = "count" if scale == 100 else measure.unit
        draw_bars(axes, bars, _axis(metric, target, task_metric), unit)
        if scale == 100:
            axes.set_xticks(range(0, 101, 25))  # and not beyond, where the labels of bars are
    return figure


def _values(cells: Sequence[Result], metric: str, target: float | None) -> list[float]:
    """Return the metric of every seed that has it, on the set that ranks the points."""
    watched = validated(cells)
    if metric in COSTS:
        states = [at_target(cell, target, watched=watched) for cell in cells]
        return [float(state[metric]) for state in states if state is not None and known(state[metric])]
    task_metric = metric_among(cells)
    take = {task_metric.name: final, best_name(task_metric): best_of}.get(metric, _loss)
    values = (take(cell, watched=watched) for cell in cells)
    return [float(value) for value in values if value is not None and known(value)]


def _loss(cell: Result, *, watched: bool) -> float | None:
    value: float | None = (cell["validation"]["scores"] if watched else cell)["loss"]
    return value


def _task_metric(groups: Groups) -> Metric:
    return metric_among([cell for cells in groups.values() for cell in cells])


def _axis(metric: str, target: float | None, task_metric: Metric) -> str:
    name = measure_of(metric, task_metric).axis
    if metric not in COSTS:
        return name
    return f"{name} in total" if target is None else f"{name} to {mark(target, task_metric)}"
