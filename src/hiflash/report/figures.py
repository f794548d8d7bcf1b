"""Figures of one run and of a comparison, as PNG and PDF."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from hiflash.report.canvas import (
    FONT,
    INK,
    MUTED,
    accuracy_axis,
    legend_below,
    log_x,
    new_figure,
    save,
    style,
    target_line,
)
from hiflash.report.methods import CENTRALIZED, colour, label
from hiflash.report.summary import Result, at_target, by_method, common_target, known
from hiflash.report.units import count, percent

__all__ = ["draw_compare", "draw_run"]

_PANELS = (
    ("communications", "Communications with the cloud"),
    ("client_steps", "Client steps"),
    ("virtual_s", "Virtual time (s)"),
)
_LOG_RATIO = 20
_DENSE = 200
_HALO = (withStroke(linewidth=2.5, foreground="white"),)

Curve = tuple[NDArray[np.float64], NDArray[np.float64]]


def draw_run(result: Result, stem: Path) -> list[Path]:
    """Save a PNG and a PDF of accuracy against communications, client steps and virtual time."""
    title = f"{label(result['method'])} on {_setting([result])}, seed {result['seed']}"
    figure = new_figure(10.5, 3.8, title)
    panels = figure.subplots(1, len(_PANELS), sharey=True)
    handles = [_handle(result["method"])]
    for axes, (measure, x_label) in zip(panels, _PANELS, strict=True):
        style(axes, x_label)
        _draw_single(axes, result, measure)
        if result["stop_target"] is not None:
            handles[1:] = [target_line(axes, result["stop_target"], "--")]
    accuracy_axis(panels[0], labelled=True)
    legend_below(figure, handles)
    return save(figure, stem)


def draw_compare(results: Sequence[Result], stem: Path) -> list[Path]:
    """Save a PNG and a PDF of the three curves per method and the communications to the target."""
    groups = by_method(results)
    target = common_target(results)
    seeds = max((len(cells) for cells in groups.values()), default=0)
    note = f" ({seeds} seeds: mean and range while all run)" if seeds > 1 else ""
    figure = new_figure(9.2, 6.8, f"{_setting(results)}{note}")
    grid = figure.subplots(2, 2)
    panels = (grid[0, 0], grid[0, 1], grid[1, 0])
    handles = [_handle(method) for method in groups]
    for axes, (measure, x_label) in zip(panels, _PANELS, strict=True):
        style(axes, x_label)
        _draw_methods(axes, groups, measure)
        if target is not None:
            handles[len(groups) :] = [target_line(axes, target, ":")]
    low, high = _accuracy_range(panels)
    for axes in panels:
        axes.set_ylim(low, high)
        accuracy_axis(axes, labelled=axes is not grid[0, 1])
    _draw_bars(grid[1, 1], groups, target)
    legend_below(figure, handles)
    return save(figure, stem)


def _setting(results: Sequence[Result]) -> str:
    names = dict.fromkeys(f"{r['data']}, {r['partition']}" for r in results)
    return "; ".join(names) or "no results"


def _handle(method: str) -> Line2D:
    return Line2D(
        [], [], color=colour(method), label=label(method), lw=2.2, ls="--" if method == CENTRALIZED else "-"
    )


def _curve(result: Result, measure: str) -> Curve:
    """Return the evaluated points by rising x; of points at the same x the last, which is the newer model."""
    points = {e[measure]: e["accuracy"] for e in result["evaluations"] if known(e["accuracy"])}
    xs = np.array(sorted(points), dtype=np.float64)
    return xs, np.array([points[x] for x in xs], dtype=np.float64)


def _draw_single(axes: Axes, result: Result, measure: str) -> None:
    xs, ys = _curve(result, measure)
    hue = colour(result["method"])
    if len(xs) == 0:
        _say(axes, "no evaluation")
        return
    if xs[-1] == 0:
        axes.axhline(ys[-1], color=hue, linestyle="--", linewidth=1.8)
        axes.set_xticks([])
        _say(axes, f"not used; final accuracy {percent(ys[-1])}")
        return
    axes.plot(xs, ys, color=hue, linewidth=1.8 if len(xs) < _DENSE else 1.2)
    axes.set_xlim(left=0)
    best = int(np.argmax(ys))
    axes.plot(xs[best], ys[best], "o", color=hue, markeredgecolor="white", markersize=7, zorder=4)
    right = xs[best] > xs[-1] / 2
    axes.annotate(
        f"best {percent(ys[best])}",
        (xs[best], ys[best]),
        xytext=(4 if right else -4, 7),
        textcoords="offset points",
        ha="right" if right else "left",
        fontsize=FONT - 0.5,
        color=INK,
        path_effects=_HALO,
        zorder=5,
    )


def _draw_methods(axes: Axes, groups: dict[str, list[Result]], measure: str) -> None:
    ends = []
    for method, cells in groups.items():
        if method == CENTRALIZED:
            levels = [c["accuracy"] for c in cells if known(c["accuracy"])]
            if levels:
                axes.axhline(float(np.mean(levels)), color=colour(method), linestyle="--", linewidth=1.5)
            continue
        curves = [curve for curve in (_curve(c, measure) for c in cells) if len(curve[0])]
        ends += [max(xs[-1] for xs, _ in curves)] if curves else []
        _draw_mean(axes, curves, colour(method))
    used = [end for end in ends if end > 0]
    if not used:
        _say(axes, "no evaluation")
    elif max(used) > _LOG_RATIO * min(used):
        log_x(axes)
    else:
        axes.set_xlim(left=0)


def _draw_mean(axes: Axes, curves: list[Curve], hue: str) -> None:
    """Draw the mean with its range, only where every seed has data: past that, seeds would drop out of it."""
    for xs, ys in curves:
        alone = len(curves) == 1
        marker = "o" if len(xs) == 1 else None
        axes.plot(xs, ys, color=hue, lw=1.8 if alone else 0.7, alpha=1.0 if alone else 0.45, marker=marker)
    if len(curves) < 2:
        return
    start, end = max(xs[0] for xs, _ in curves), min(xs[-1] for xs, _ in curves)
    # The union of all the seeds' points: on it the mean of piecewise linear curves is exact.
    grid = np.unique(np.concatenate([xs for xs, _ in curves]))
    grid = grid[(grid >= start) & (grid <= end)]
    if len(grid) < 2:
        return
    stack = np.stack([np.interp(grid, xs, ys) for xs, ys in curves])
    axes.fill_between(grid, stack.min(axis=0), stack.max(axis=0), color=hue, alpha=0.15, linewidth=0)
    axes.plot(grid, stack.mean(axis=0), color=hue, linewidth=2.0)


def _draw_bars(axes: Axes, groups: dict[str, list[Result]], target: float | None) -> None:
    ends = "in total" if target is None else f"to {percent(target).replace('.0%', '%')}"
    several = any(len(cells) > 1 for cells in groups.values())
    style(axes, f"Communications {ends}" + (" (mean; dots: seeds)" if several else ""))
    methods = [method for method in groups if method != CENTRALIZED]
    room = 1.0
    for row, method in enumerate(methods):
        reached = [at_target(cell, target) for cell in groups[method]]
        values = [state["communications"] for state in reached if state is not None]
        text, at = "not reached", 0.0
        if values:
            mean, at = float(np.mean(values)), max(values)
            axes.barh(row, mean, height=0.6, color=colour(method), alpha=0.85)
            if len(values) > 1:
                axes.plot(values, [row] * len(values), "o", ms=4, color=INK, mec="white", mew=0.6, zorder=3)
            partly = "" if len(values) == len(reached) else f" ({len(values)}/{len(reached)} seeds)"
            text = count(mean).replace(" ", "") + partly
            room = max(room, 1.35 if partly else 1.15)
        axes.annotate(
            text,
            (at, row),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=FONT - 1,
            color=INK if values else MUTED,
            style="normal" if values else "italic",
        )
    axes.set_yticks(range(len(methods)), [label(m) for m in methods])
    axes.set_ylim(len(methods) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    # Room on the right for what is written after the longest bar.
    axes.set_xlim(0, axes.get_xlim()[1] * room)


def _accuracy_range(panels: Sequence[Axes]) -> tuple[float, float]:
    limits = [axes.get_ylim() for axes in panels]
    return min(low for low, _ in limits), max(high for _, high in limits)


def _say(axes: Axes, text: str) -> None:
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", color=MUTED, fontsize=FONT)
