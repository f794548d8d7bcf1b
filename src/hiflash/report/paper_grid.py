"""Figures of a grid of alpha and upsilon: curves, and maps of what tells the points apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from hiflash.core.metrics import ACCURACY
from hiflash.report.canvas import (
    FONT,
    INK,
    MUTED,
    legend_below,
    metric_axis,
    name_panel,
    new_figure,
    save,
    style,
    target_line,
)
from hiflash.report.curves import curve, stacked
from hiflash.report.summary import Result

__all__ = ["GridMap", "Point", "draw_grid_curves", "draw_grid_maps", "grid_curves"]

Point = tuple[float, float]
"""Alpha and upsilon."""

ALPHA, UPSILON = "alpha, weight of an edge model", "upsilon, penalty for staleness"
LOW = 0.8  # where the whole range would hide what tells the curves apart


@dataclass(frozen=True)
class GridMap:
    """A map: a value per point (None if it has none), its text, what replaces it, and whether low is good."""

    title: str
    values: Mapping[Point, float | None]
    texts: Mapping[Point, str]
    low_is_good: bool


def draw_grid_curves(
    cells: Mapping[Point, Sequence[Result]], target: float | None, title: str, stem: Path
) -> list[Path]:
    """Save accuracy against communications, a panel per upsilon and a line per alpha; return the paths."""
    return save(grid_curves(cells, target, title), stem)


def grid_curves(cells: Mapping[Point, Sequence[Result]], target: float | None, title: str) -> Figure:
    """Return the curves: the whole range above, and the upper range below."""
    alphas = sorted({alpha for alpha, _ in cells})
    upsilons = sorted({upsilon for _, upsilon in cells})
    shades = {
        alpha: colormaps["plasma"](0.88 * i / max(1, len(alphas) - 1)) for i, alpha in enumerate(alphas)
    }
    figure = new_figure(max(3.6 * len(upsilons), 7.0), 6.2, title)
    grid = figure.subplots(2, len(upsilons), squeeze=False, sharey="row", height_ratios=(1, 1.7))
    handles: list[Line2D] = [Line2D([], [], color=shades[a], lw=2.2, label=f"alpha = {a:g}") for a in alphas]
    for column, upsilon in zip(grid.T, upsilons, strict=True):
        for axes in column:
            style(axes, "")
            best = _draw_panel(axes, {a: cells[a, upsilon] for a in alphas if (a, upsilon) in cells}, shades)
            if target is not None:
                handles[len(alphas) :] = [target_line(axes, target, ACCURACY, ":")]
            axes.set_xlim(left=0)
        column[1].set_ylim(min(LOW, best - 0.1), best)
        column[1].set_xlim(left=_first(cells, min(LOW, best - 0.1)))
        column[1].set_xlabel("Communications with the cloud", fontsize=FONT, color=INK)
        name_panel(column[0], f"upsilon = {upsilon:g}", "bold")
    for row in grid:
        metric_axis(row[0], ACCURACY, labelled=True)
    legend_below(figure, handles)
    return figure


def draw_grid_maps(maps: Sequence[GridMap], chosen: Point | None, title: str, stem: Path) -> list[Path]:
    """Save maps of the points side by side, light for good and the chosen one framed; return the paths."""
    points = list(maps[0].texts)
    alphas, upsilons = (sorted({point[at] for point in points}) for at in (0, 1))
    figure = new_figure(max(len(maps) * (1.0 + 1.05 * len(upsilons)), 7.0), 1.9 + 0.6 * len(alphas), title)
    panels = figure.subplots(1, len(maps), squeeze=False, sharey=True)[0]
    for axes, each in zip(panels, maps, strict=True):
        for alpha, upsilon in points:
            framed = (alpha, upsilon) == chosen
            _draw_cell(axes, each, (alpha, upsilon), (upsilons.index(upsilon), alphas.index(alpha)), framed)
        axes.set_xlim(-0.5, len(upsilons) - 0.5)
        axes.set_ylim(len(alphas) - 0.5, -0.5)
        axes.set_xticks(range(len(upsilons)), [f"{value:g}" for value in upsilons], fontsize=FONT)
        axes.set_yticks(range(len(alphas)), [f"{value:g}" for value in alphas], fontsize=FONT)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_title(each.title, fontsize=FONT, color=INK)
    panels[0].set_ylabel(ALPHA, fontsize=FONT, color=INK)
    for axes in panels:
        axes.set_xlabel(UPSILON, fontsize=FONT, color=INK)
    frame = Patch(facecolor="none", edgecolor=INK, lw=2, label="the paper's choice")
    missed = Patch(facecolor="#F0F0F0", edgecolor="#C8C8C8", hatch="////", label="not reached by all seeds")
    some = any(value is None for each in maps for value in each.values.values())
    legend_below(figure, [*([frame] if chosen in points else []), *([missed] if some else [])])
    return save(figure, stem)


def _draw_panel(axes: Axes, cells: Mapping[float, Sequence[Result]], shades: Mapping[float, object]) -> float:
    """Draw the mean and the range of seeds of every alpha; return the best mean."""
    best = 0.0
    for alpha, own in cells.items():
        xs, rows = stacked(
            [points for points in (curve(cell, "communications") for cell in own) if len(points[0])]
        )
        if len(xs):
            axes.fill_between(xs, rows.min(axis=0), rows.max(axis=0), color=shades[alpha], alpha=0.06, lw=0)
            axes.plot(xs, rows.mean(axis=0), color=shades[alpha], lw=1.2)
            best = max(best, float(rows.max()))
    return best


def _first(cells: Mapping[Point, Sequence[Result]], low: float) -> float:
    """Return the communications at which the first run is above an accuracy."""
    found = []
    for own in cells.values():
        for xs, ys in (curve(cell, "communications") for cell in own):
            found += [float(x) for x, y in zip(xs, ys, strict=True) if y >= low][:1]
    return min(found, default=0.0)


def _draw_cell(axes: Axes, each: GridMap, point: Point, place: tuple[int, int], framed: bool) -> None:
    known = [value for value in each.values.values() if value is not None]
    value = each.values[point]
    x, y = place
    box = (x - 0.48, y - 0.46)
    if value is None:
        axes.add_patch(
            Rectangle(box, 0.96, 0.92, facecolor="#F0F0F0", edgecolor="#D8D8D8", hatch="////", lw=0)
        )
        ink = MUTED
    else:
        low, high = min(known), max(known)
        share = (value - low) / (high - low) if high > low else 0.5
        share = 1 - share if each.low_is_good else share
        axes.add_patch(Rectangle(box, 0.96, 0.92, facecolor=colormaps["viridis"](0.12 + 0.88 * share), lw=0))
        ink = "white" if share < 0.6 else INK
    if framed:
        axes.add_patch(Rectangle(box, 0.96, 0.92, facecolor="none", edgecolor=INK, lw=2.2, zorder=4))
    axes.text(
        x, y, each.texts[point], ha="center", va="center", color=ink, fontsize=FONT - 1, linespacing=1.15
    )
