"""The metric against communications, steps or time: a curve per seed, and their mean with its range."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from hiflash.report.canvas import log_x, say
from hiflash.report.measures import MEASURES
from hiflash.report.methods import Look, label
from hiflash.report.outcome import final, metric_of
from hiflash.report.summary import Groups, Result, is_reference, known

__all__ = ["DENSE", "PANELS", "Curve", "curve", "draw_curves", "handle", "log_if_wide", "stacked"]

PANELS = (
    ("communications", "Communications with the cloud"),
    *((name, MEASURES[name].axis) for name in ("client_steps", "virtual_s")),
)
DENSE = 200
"""Lines with this many points or more are thinner."""

_LOG_RATIO = 20
_CORNER = 0.02
_MARKERS = 7
_FEW = 4

Curve = tuple[NDArray[np.float64], NDArray[np.float64]]


def curve(result: Result, measure: str) -> Curve:
    """Return the evaluations by rising x; of several at the same x only the last, of the newest model."""
    name = metric_of(result).name
    points = {e[measure]: e[name] for e in result["evaluations"] if known(e[name])}
    xs = np.array(sorted(points), dtype=np.float64)
    return xs, np.array([points[x] for x in xs], dtype=np.float64)


def handle(name: str, look: Look) -> Line2D:
    """Return a method's entry in a legend."""
    return Line2D(
        [],
        [],
        color=look.colour,
        label=label(name),
        lw=2.0,
        ls=look.dashes,
        marker=look.marker,
        ms=5.5,
        mec="white",
        mew=0.5,
    )


def draw_curves(
    axes: Axes, groups: Groups, measure: str, styles: dict[str, Look]
) -> tuple[list[float], list[float]]:
    """Draw the mean and range of every label, and a level line for a reference.

    Return the last x of each, and the x at which each seed is half-way.
    """
    ends: list[float] = []
    halves: list[float] = []
    for name, cells in groups.items():
        if is_reference(cells[0]):
            levels = [value for value in map(final, cells) if value is not None and known(value)]
            if levels:
                axes.axhline(float(np.mean(levels)), color=styles[name].colour, linestyle="--", linewidth=1.5)
            continue
        curves = [points for points in (curve(c, measure) for c in cells) if len(points[0])]
        ends += [max(xs[-1] for xs, _ in curves)] if curves else []
        halves += [half_way(points) for points in curves if points[1][-1] != points[1][0]]
        _draw_mean(axes, curves, styles[name], faint=len(groups) > _FEW)
    used = [end for end in ends if end > 0]
    if not used:
        say(axes, "no evaluation")
    return used, halves


def half_way(points: Curve) -> float:
    """Return the x at which a curve has come half-way from its first y to its last.

    >>> half_way((np.array([1.0, 2.0, 9.0]), np.array([0.0, 0.6, 1.0])))
    2.0
    """
    xs, ys = points
    return float(xs[np.argmax(np.abs(ys - ys[0]) >= abs(ys[-1] - ys[0]) / 2)])


def stacked(curves: Sequence[Curve]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the x values of all curves as far as every one has data, and a row of y values per curve.

    >>> xs, rows = stacked([(np.array([0.0, 2.0]), np.array([0.0, 4.0])), (np.array([1.0, 3.0]), np.ones(2))])
    >>> xs.tolist(), rows.tolist()
    ([1.0, 2.0], [[2.0, 4.0], [1.0, 1.0]])
    """
    if not curves:
        return np.empty(0), np.empty((0, 0))
    start, end = max(xs[0] for xs, _ in curves), min(xs[-1] for xs, _ in curves)
    # At the union of all points, the mean of piecewise linear curves is exact.
    grid = np.unique(np.concatenate([xs for xs, _ in curves]))
    grid = grid[(grid >= start) & (grid <= end)]
    return grid, np.stack([np.interp(grid, xs, ys) for xs, ys in curves])


def log_if_wide(axes: Axes, values: Sequence[float], halves: Sequence[float] = ()) -> None:
    """Make x logarithmic if the largest value would squeeze the smallest into the corner.

    So it would if half of the seeds' curves come half-way in the first hundredths of the axis.
    """
    steep = bool(halves) and float(np.median(halves)) < _CORNER * max(values, default=0)
    if values and (steep or max(values) > _LOG_RATIO * min(values)):
        log_x(axes)
    elif values:
        axes.set_xlim(left=0)


def _draw_mean(axes: Axes, curves: list[Curve], look: Look, *, faint: bool) -> None:
    """Draw the mean with its range as far as all seeds have data: later it would be a mean of fewer."""
    if len(curves) == 1:
        _line(axes, curves[0], look)
        return
    for xs, ys in curves:
        marker = "o" if len(xs) == 1 else None
        axes.plot(xs, ys, color=look.colour, lw=0.6, alpha=0.25 if faint else 0.45, marker=marker)
    grid, stack = stacked(curves)
    if len(grid) < 2:
        return
    shade = 0.10 if faint else 0.15
    axes.fill_between(grid, stack.min(axis=0), stack.max(axis=0), color=look.colour, alpha=shade, linewidth=0)
    _line(axes, (grid, stack.mean(axis=0)), look)


def _line(axes: Axes, points: Curve, look: Look) -> None:
    """Draw a line with a few markers, evenly spaced in x, one at the end."""
    xs, ys = points
    wanted = np.linspace(xs[0], xs[-1], _MARKERS)
    marked = sorted({int(np.argmin(np.abs(xs - x))) for x in wanted})
    axes.plot(
        xs,
        ys,
        color=look.colour,
        linestyle=look.dashes,
        linewidth=1.8 if len(xs) < DENSE else 1.3,
        marker=look.marker,
        markevery=marked,
        markersize=5,
        markeredgecolor="white",
        markeredgewidth=0.5,
    )
