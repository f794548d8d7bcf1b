"""The figure of `hiflash theory`: Lemma 2, the gap below its bounds, and the bounds against tau."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from hiflash.report.canvas import FONT, INK, MUTED, legend_below, name_panel, new_figure, save, style

if TYPE_CHECKING:
    from hiflash.study.theory.settings import Setting
    from hiflash.study.theory.study import TheoryStudy

__all__ = ["draw_theory"]

# Paul Tol's "bright" scheme, safe for the common kinds of colour blindness.
_PAPER, _WEAK, _DELAYED = "#EE6677", "#CCBB44", "#228833"


def draw_theory(study: TheoryStudy, stem: Path) -> list[Path]:
    """Save a row of three panels per association and return the paths."""
    groups = [list(group) for _, group in groupby(study.settings, lambda setting: setting.association)]
    task = study.task
    figure = new_figure(
        11.5,
        0.9 + 3.1 * len(groups),
        f"Logistic regression on {study.title}: eta = {task['eta']:.3g}, mu = {task['mu']:.3g}, "
        f"c = {task['c']}, H = {task['H_min']} to {task['H_max']}",
    )
    colours = _colours(sorted({setting.tau for setting in study.settings}))
    for row, group in zip(figure.subplots(len(groups), 3, squeeze=False), groups, strict=True):
        _draw_distances(row[0], group, colours)
        _draw_gaps(row[1], group, colours)
        _draw_taus(row[2], group, colours)
        for axes, what in zip(row, ("Lemma 2", "gap and bounds", "bounds against tau"), strict=True):
            name_panel(axes, f"{group[0].association}: {what}")
    handles = [
        Line2D([], [], color=colour, lw=2, marker="o", ms=4, label=f"measured, tau {tau}")
        for tau, colour in colours.items()
    ]
    handles += [
        Line2D([], [], color=_PAPER, lw=1.8, label="Theorem 1"),
        Line2D([], [], color=_WEAK, lw=1.8, label="Theorem 2, lowest over mu~"),
        Line2D([], [], color=_DELAYED, lw=1.8, label="without V"),
        Line2D([], [], color=MUTED, lw=1.2, ls=":", label="first gap, C2"),
        Line2D([], [], color=INK, lw=1.4, ls="--", label="g(c)"),
    ]
    legend_below(figure, handles)
    return save(figure, stem)


def _draw_distances(axes: Axes, group: Sequence[Setting], colours: dict[int, str]) -> None:
    """Draw the distance at the end of every edge round, as a share of g(c), in the order of the uploads."""
    style(axes, "Edge round", "Distance / g(c)")
    for setting in group:
        ends = np.array([done.distances[-1] for done in setting.trial.rounds])
        axes.plot(ends / setting.g_end if setting.g_end else ends, ".", ms=3, color=colours[setting.tau])
    if group[0].g_end:
        axes.axhline(1.0, color=INK, lw=1.4, ls="--")
        _log_y(axes)
    else:
        axes.set_ylabel("Distance (g(1) is 0)", fontsize=FONT, color=INK)


def _draw_gaps(axes: Axes, group: Sequence[Setting], colours: dict[int, str]) -> None:
    style(axes, "Updates of the cloud", "F(w) - F*")
    first, last = group[0], group[-1]
    versions = list(range(first.updates + 1))
    for setting in group:
        axes.plot(versions, setting.gap, color=colours[setting.tau], lw=1.6, zorder=3)
    for name, colour in (("theorem1", _PAPER), ("theorem2", _WEAK), ("delayed", _DELAYED)):
        low, high = ([each.bounds()[name].after(t) for t in versions] for each in (first, last))
        axes.fill_between(versions, low, high, color=colour, alpha=0.35, lw=0)
        for values in (low, high):
            axes.plot(versions, values, color=colour, lw=1.4)
    axes.axhline(float(first.gap[0]), color=MUTED, lw=1.2, ls=":")
    _log_y(axes)


def _draw_taus(axes: Axes, group: Sequence[Setting], colours: dict[int, str]) -> None:
    style(axes, "tau", f"After {group[0].updates} updates")
    places = list(range(len(group)))
    for name, colour in (("theorem1", _PAPER), ("theorem2", _WEAK), ("delayed", _DELAYED)):
        ends = [setting.bounds()[name].after(setting.updates) for setting in group]
        axes.plot(places, ends, color=colour, lw=1.6, marker="s", ms=4)
        axes.annotate(
            f"{ends[-1] / ends[0] - 1:+.1%}",
            (places[-1], ends[-1]),
            xytext=(0, 5),
            textcoords="offset points",
            ha="right",
            fontsize=FONT - 1.5,
            color=colour,
        )
    axes.plot(places, [setting.gap_end for setting in group], color=MUTED, lw=1, zorder=2)
    for place, setting in zip(places, group, strict=True):
        axes.plot(place, setting.gap_end, "o", ms=6, color=colours[setting.tau], zorder=3)
    axes.axhline(float(group[0].gap[0]), color=MUTED, lw=1.2, ls=":")
    axes.set_xticks(places, [str(setting.tau) for setting in group])
    _log_y(axes)


def _log_y(axes: Axes) -> None:
    """Make y logarithmic with a label at every decade."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    axes.set_ylim(low, high * 1.6)
    axes.yaxis.set_major_locator(FixedLocator([10.0**decade for decade in decades]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())


def _colours(taus: Sequence[int]) -> dict[int, str]:
    """Return a colour for every tau, from dark to light."""
    scale = colormaps["viridis"]
    places = np.linspace(0.0, 0.85, len(taus))
    return {
        tau: "#{:02x}{:02x}{:02x}".format(*(round(255 * part) for part in scale(place)[:3]))
        for tau, place in zip(taus, places, strict=True)
    }
