"""The figures of a comparison: curves, bars to the target, the trade-off, and latencies."""

from collections.abc import Sequence, Sized
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hiflash.core.metrics import ACCURACY, Metric
from hiflash.report.bars import Bar, draw_bars
from hiflash.report.canvas import (
    INK,
    legend_below,
    metric_axis,
    name_panel,
    new_figure,
    save,
    say,
    style,
    target_line,
)
from hiflash.report.client_figures import client_bars, has_clients
from hiflash.report.curves import PANELS, draw_curves, handle, log_if_wide
from hiflash.report.measures import MEASURES
from hiflash.report.methods import Look, label, looks
from hiflash.report.outcome import aim, best_of, metric_among, metric_of, show
from hiflash.report.summary import (
    Groups,
    Result,
    all_targets,
    at_target,
    by_partition,
    common_target,
    is_reference,
    known,
)

__all__ = ["compare_figures", "draw_compare", "latency_figure"]

_TO_TARGET = ("communications", "client_steps", "virtual_s", "wan_bytes")
_LATENCIES = (("response_latency_ms", "Response latency (ms)"), ("waiting_ms", "Waiting at the edge (ms)"))

_RANGE = "mean and range of {} seeds"
_DOTS = "bars: mean of {} seeds, dots: seeds"

Parts = dict[str, Groups]


def draw_compare(results: Sequence[Result], directory: Path) -> list[Path]:
    """Save four figures as PNG and PDF: compare, targets, tradeoff and latency; return their paths.

    A fifth, clients, is for runs that held out samples of their clients.
    """
    figures = compare_figures(results)
    return [path for name, figure in figures.items() for path in save(figure, directory / name)]


def compare_figures(results: Sequence[Result]) -> dict[str, Figure]:
    """Return the figures of a comparison by name."""
    parts = by_partition(results)
    styles = looks(name for groups in parts.values() for name in groups)
    target, metric = common_target(results), metric_among(results)
    figures = {
        "compare": _curves(parts, styles, target, metric),
        "targets": _targets(parts, styles, target, metric),
        "tradeoff": _tradeoff(parts, styles, all_targets(results), metric),
    }
    if any(map(has_clients, results)):
        figures["clients"] = client_bars(parts)
    return {**figures, "latency": _latency(parts, styles)}


def latency_figure(results: Sequence[Result]) -> Figure:
    """Return the latencies of edges."""
    parts = by_partition(results)
    return _latency(parts, looks(name for groups in parts.values() for name in groups))


def _curves(parts: Parts, styles: dict[str, Look], target: float | None, metric: Metric) -> Figure:
    figure = new_figure(
        12.0, 0.9 + 3.2 * len(parts) + _legend_height(styles), _title(parts, metric.name, _RANGE)
    )
    grid = figure.subplots(len(parts), len(PANELS), squeeze=False, sharey="row")
    handles = [handle(name, look) for name, look in styles.items()]
    drawn: dict[str, tuple[list[float], list[float]]] = {measure: ([], []) for measure, _ in PANELS}
    for row, (part, groups) in zip(grid, parts.items(), strict=True):
        for axes, (measure, x_label) in zip(row, PANELS, strict=True):
            style(axes, x_label)
            for before, found in zip(drawn[measure], draw_curves(axes, groups, measure, styles), strict=True):
                before += found
            if target is not None:
                handles[len(styles) :] = [target_line(axes, target, metric, ":")]
        metric_axis(row[0], metric, labelled=True)
        _name_part(row[0], part, parts)
    for column, (ends, halves) in zip(grid.T, drawn.values(), strict=True):
        for axes in column:  # one scale for all rows
            log_if_wide(axes, ends, halves)
    legend_below(figure, handles)
    return figure


def _targets(parts: Parts, styles: dict[str, Look], target: float | None, metric: Metric) -> Figure:
    ends = "in total" if target is None else f"to {aim(target, metric)}"
    figure = new_figure(13.5, 0.9 + len(parts) * _bars_height(styles), _title(parts, ends, _DOTS))
    grid = figure.subplots(len(parts), len(_TO_TARGET), squeeze=False, sharey="row")
    for row, (part, groups) in zip(grid, parts.items(), strict=True):
        for axes, measure in zip(row, _TO_TARGET, strict=True):
            bars = []
            for name, cells in _rivals(groups).items():
                states = [at_target(cell, target) for cell in cells]
                values = [float(state[measure]) for state in states if state is not None]
                best = metric.best(map(best_of, cells))
                instead = f"not reached (best {show(best, metric)})"
                bars.append(Bar(label(name), styles[name].colour, values, len(cells), instead))
            draw_bars(axes, bars, MEASURES[measure].axis, MEASURES[measure].unit)
        _name_part(row[0], part, parts)
    return figure


def _tradeoff(parts: Parts, styles: dict[str, Look], targets: Sequence[float], metric: Metric) -> Figure:
    """Draw each method's communications to the targets that all its seeds reach and to its best value."""
    what = "an accuracy" if metric == ACCURACY else f"a value of {metric.name}"
    title = _title(parts, f"communications to reach {what}", _RANGE)
    # At least as wide as the title of a single panel.
    figure = new_figure(max(1.5 + 4.6 * len(parts), 8.0), 4.4 + _legend_height(styles), title)
    row = figure.subplots(1, len(parts), squeeze=False, sharey=True)[0]
    for axes, (part, groups) in zip(row, parts.items(), strict=True):
        style(axes, "Communications with the cloud")
        drawn: list[float] = []
        for name, cells in _rivals(groups).items():
            drawn += _draw_tradeoff(axes, cells, styles[name], targets)
        if not drawn:
            say(axes, "no target reached")
        log_if_wide(axes, [x for x in drawn if x > 0])
        _name_part(axes, part, parts)
    metric_axis(row[0], metric, labelled=True)
    shown = {name: look for name, look in styles.items() if any(name in _rivals(g) for g in parts.values())}
    best = Line2D(
        [],
        [],
        color=INK,
        ls="",
        marker="o",
        mfc="white",
        ms=7,
        mew=1.5,
        label=f"best {metric.name} of the run",
    )
    legend_below(figure, [*(handle(name, look) for name, look in shown.items()), best])
    return figure


def _draw_tradeoff(axes: Axes, cells: Sequence[Result], look: Look, targets: Sequence[float]) -> list[float]:
    """Draw the line of one method and return its x values."""
    points: list[tuple[float, float, float, float]] = []
    for target in targets:
        states = [at_target(cell, target) for cell in cells]
        values = [float(state["communications"]) for state in states if state is not None]
        if len(values) == len(cells):
            points.append((float(np.mean(values)), target, min(values), max(values)))
    metric = metric_among(cells)
    choose = max if metric.better == "higher" else min
    best = [choose(rows, key=lambda e: e[metric.name]) for rows in map(_evaluated, cells) if rows]
    if len(best) < len(cells):
        return []
    end = (
        float(np.mean([e["communications"] for e in best])),
        float(np.mean([e[metric.name] for e in best])),
    )
    points = [point for point in points if point[0] <= end[0]]
    xs, ys = [*(p[0] for p in points), end[0]], [*(p[1] for p in points), end[1]]
    axes.plot(xs, ys, color=look.colour, linestyle=look.dashes, linewidth=1.6)
    if points:
        spans = [[p[0] - p[2] for p in points], [p[3] - p[0] for p in points]]
        axes.errorbar(
            xs[:-1],
            ys[:-1],
            xerr=spans,
            color=look.colour,
            linestyle="",
            marker=look.marker,
            markersize=6,
            markeredgecolor="white",
            elinewidth=1.0,
            capsize=2,
        )
    axes.plot(*end, color=look.colour, marker=look.marker, ms=8, mfc="white", mew=1.6, zorder=4)
    return xs


def _latency(parts: Parts, styles: dict[str, Look]) -> Figure:
    """Draw the latencies of every partition, or one row if all partitions have the same."""
    tables = {
        part: {
            name: {key: [float(cell[key]) for cell in cells] for key, _ in _LATENCIES}
            for name, cells in _rivals(groups).items()
        }
        for part, groups in parts.items()
    }
    first = next(iter(tables.values()))
    if all(table == first for table in tables.values()):
        tables = {next(iter(tables)) if len(tables) == 1 else "all partitions": first}
    title = _title(parts, "latency of edges at mean resources", _DOTS)
    figure = new_figure(9.5, 0.9 + len(tables) * _bars_height(styles), title)
    grid = figure.subplots(len(tables), len(_LATENCIES), squeeze=False, sharey="row")
    for row, (part, table) in zip(grid, tables.items(), strict=True):
        for axes, (key, x_label) in zip(row, _LATENCIES, strict=True):
            bars = []
            for name, values in table.items():
                nobody = not any(values[key])
                shown = [] if nobody else values[key]
                bars.append(Bar(label(name), styles[name].colour, shown, len(values[key]), "0: no edges"))
            draw_bars(axes, bars, x_label, "count")
        _name_part(row[0], part, tables)
    return figure


def _evaluated(cell: Result) -> list[dict[str, float]]:
    name = metric_of(cell).name
    return [e for e in cell["evaluations"] if known(e[name])]


def _rivals(groups: Groups) -> Groups:
    return {name: cells for name, cells in groups.items() if not is_reference(cells[0])}


def _title(parts: Parts, what: str, how: str) -> str:
    cells = [cell for groups in parts.values() for group in groups.values() for cell in group]
    data = ", ".join(dict.fromkeys(str(cell["data"]) for cell in cells)) or "no results"
    where = f", {next(iter(parts))}" if len(parts) == 1 else ""
    seeds = max((len(group) for groups in parts.values() for group in groups.values()), default=0)
    return f"{data}{where}: {what}" + (f" ({how.format(seeds)})" if seeds > 1 else " (one seed)")


def _name_part(axes: Axes, part: str, parts: Sized) -> None:
    if len(parts) > 1:
        name_panel(axes, part, "bold")


def _legend_height(styles: dict[str, Look]) -> float:
    return 0.24 * (len(styles) // 6 + 1)


def _bars_height(styles: dict[str, Look]) -> float:
    return 0.7 + 0.27 * len(styles)
