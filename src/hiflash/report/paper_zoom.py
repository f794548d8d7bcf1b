"""Curves of one label at a time in the upper range of accuracy: seeds, their range, and others behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from hiflash.core.metrics import ACCURACY
from hiflash.report.canvas import FONT, INK, metric_axis, name_panel, new_figure, save, style
from hiflash.report.curves import Curve, curve, stacked
from hiflash.report.measures import MEASURES
from hiflash.report.methods import Look, label, looks
from hiflash.report.summary import Groups, Result, by_partition, is_reference

__all__ = ["draw_zoom", "upper_range"]

STEP = 0.05
SETTLED = 0.25
"""From this share of a run on, curves are in the upper range."""

Notes = Mapping[tuple[str, str], str]
"""A line under the name of a panel, by partition and label."""


def draw_zoom(cells: Sequence[Result], notes: Notes, title: str, stem: Path) -> list[Path]:
    """Save accuracy against client steps, a panel per label and a block of rows per partition; return paths.

    Every panel has the seeds, mean and range of its label, and the means of the other labels in grey.
    """
    parts = {
        part: {name: own for name, own in groups.items() if not is_reference(own[0])}
        for part, groups in by_partition(cells).items()
    }
    styles = looks(name for groups in parts.values() for name in groups)
    columns = min(3, len(styles)) if len(parts) == 1 else len(styles)
    lines = -(-len(styles) // columns)
    figure = new_figure(max(3.3 * columns, 8.0), 0.9 + 2.6 * lines * len(parts), title)
    grid = figure.subplots(lines * len(parts), columns, squeeze=False, sharex=True, sharey="row")
    for place, (part, groups) in enumerate(parts.items()):
        block = grid[lines * place : lines * (place + 1)]
        drawn = _draw_block(
            list(block.flat), groups, styles, {name: notes.get((part, name), "") for name in groups}
        )
        for axes in list(block.flat)[drawn:]:
            axes.set_visible(False)
        for row in block:
            row[0].set_ylim(*upper_range(_curves(groups)))
            metric_axis(row[0], ACCURACY, labelled=True)
        if len(parts) > 1:
            block[0][0].set_ylabel(f"{part}\nTest accuracy", fontsize=FONT, color=INK)
    for axes in grid[-1]:
        axes.set_xlabel(MEASURES["client_steps"].axis, fontsize=FONT, color=INK)
    grid[0][0].set_xlim(left=0)
    return save(figure, stem)


def upper_range(curves: Mapping[str, Sequence[Curve]]) -> tuple[float, float]:
    """Return limits for accuracy: from a step below the lowest mean after a quarter of the runs, to the best.

    >>> run = (np.array([0.0, 40.0, 100.0]), np.array([0.1, 0.88, 0.97]))
    >>> low, high = upper_range({"hifl": [run]})  # 0.5875 after 25: one step below 0.55
    >>> round(low, 2), high
    (0.5, 0.97)
    """
    lows, highs = [1.0], [0.0]
    for own in curves.values():
        xs, rows = stacked(own)
        if len(xs):
            settled = xs[0] + SETTLED * (xs[-1] - xs[0])
            lows.append(float(np.interp(settled, xs, rows.mean(axis=0))))
            highs.append(float(rows.max()))
    return max(0.0, STEP * floor(min(lows) / STEP + 1e-9) - STEP), max(highs)


def _draw_block(
    panels: Sequence[Axes], groups: Groups, styles: Mapping[str, Look], notes: Mapping[str, str]
) -> int:
    """Draw the panels of a partition; return how many there are."""
    curves = _curves(groups)
    for axes, (name, own) in zip(panels, curves.items(), strict=False):
        style(axes, "")
        for other, theirs in curves.items():
            xs, rows = stacked(theirs)
            if other != name and len(xs):
                axes.plot(xs, rows.mean(axis=0), color="#CFCFCF", lw=0.7, zorder=1)
        colour = styles[name].colour
        for xs, ys in own:
            axes.plot(xs, ys, color=colour, lw=0.5, alpha=0.6, zorder=2)
        xs, rows = stacked(own)
        if len(xs):
            axes.fill_between(xs, rows.min(axis=0), rows.max(axis=0), color=colour, alpha=0.18, lw=0)
            axes.plot(xs, rows.mean(axis=0), color=colour, lw=1.3, zorder=3)
        name_panel(axes, label(name), "bold")
        axes.text(0.98, 0.06, notes[name], transform=axes.transAxes, ha="right", fontsize=FONT - 1, color=INK)
    return len(curves)


def _curves(groups: Groups) -> dict[str, list[Curve]]:
    found = {name: [curve(cell, "client_steps") for cell in cells] for name, cells in groups.items()}
    return {name: [points for points in own if len(points[0])] for name, own in found.items()}
