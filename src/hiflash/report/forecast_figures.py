"""The figure of forecasts: each finished run of the tables against its forecast."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from hiflash.report.canvas import FONT, INK, MUTED, legend_below, name_panel, new_figure, save, style
from hiflash.report.methods import label
from hiflash.report.units import count

__all__ = ["BAND", "draw_against_measured"]

BAND = 0.25
"""Width of the shaded band around equality."""
APART = 0.6
"""Distance of two marks with a name, in logarithms."""
_PANELS = {"communications": "Communications", "virtual_s": "Virtual time (s)"}
# Paul Tol's "bright" scheme, and two colours that differ from all of it.
_LOOKS = (
    ("#4477AA", "o"),
    ("#228833", "s"),
    ("#66CCEE", "^"),
    ("#EE6677", "v"),
    ("#CCBB44", "p"),
    ("#222222", "P"),
    ("#AA3377", "D"),
    ("#774411", "X"),
    ("#EE7733", "d"),
)

Row = Mapping[str, Any]


def draw_against_measured(rows: Sequence[Row], stem: Path) -> list[Path]:
    """Save a panel per measure, measured across and forecast up, as PNG and PDF; return the paths."""
    groups = list(dict.fromkeys(row["group"] for row in rows))
    looks = {group: _LOOKS[place % len(_LOOKS)] for place, group in enumerate(groups)}
    figure = new_figure(10.5, 5.6, "To the target: forecast against measured, one constant per task")
    for axes, (name, words) in zip(figure.subplots(1, 2), _PANELS.items(), strict=True):
        _panel(axes, [row for row in rows if row[f"measured_{name}"] is not None], name, looks)
        style(axes, f"{words}, measured (mean of the seeds)", f"{words}, forecast")
        _logarithmic(axes)
        name_panel(axes, words)
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=colour, marker=marker, linestyle="", markersize=6, label=group)
        for group, (colour, marker) in looks.items()
    ]
    handles.append(Patch(color="#E8E8E8", label=f"within {BAND:.0%}"))
    handles.append(
        Line2D([], [], color=INK, marker="o", fillstyle="none", linestyle="", label="not every seed")
    )
    legend_below(figure, handles)
    return save(figure, stem)


def _panel(axes: Axes, rows: Sequence[Row], name: str, looks: Mapping[str, tuple[str, str]]) -> None:
    values = [row[f"{side}_{name}"] for row in rows for side in ("measured", "forecast")]
    ends = [0.8 * min(values), 1.25 * max(values)]
    axes.fill_between(ends, [end * (1 - BAND) for end in ends], [end * (1 + BAND) for end in ends],
                      color="#E8E8E8", linewidth=0)  # fmt: skip
    axes.plot(ends, ends, color=MUTED, linewidth=1)
    for row in rows:
        colour, marker = looks[row["group"]]
        whole = row["reached"] == row["seeds"]
        axes.plot(
            row[f"measured_{name}"], row[f"forecast_{name}"], marker, markersize=6, alpha=0.85,
            markerfacecolor=colour if whole else "none", markeredgecolor=colour if not whole else "white",
            markeredgewidth=0.6 if whole else 1.4,
        )  # fmt: skip
    axes.set_xlim(*ends)
    axes.set_ylim(*ends)
    for row in _far_off(rows, name):
        axes.annotate(
            label(row["label"]), (row[f"measured_{name}"], row[f"forecast_{name}"]), xytext=(6, 5),
            textcoords="offset points", fontsize=FONT - 1.5, color=INK, rotation=25,
            rotation_mode="anchor",
        )  # fmt: skip  # aslant, so that names of neighbours do not overlap


def _far_off(rows: Sequence[Row], name: str) -> list[Row]:
    """Return the three rows farthest from equality, if outside the band and apart from each other."""

    def off(row: Row) -> float:
        return abs(float(row[f"forecast_{name}"] / row[f"measured_{name}"]) - 1)

    found: list[Row] = []
    for row in sorted((row for row in rows if off(row) > BAND), key=off, reverse=True):
        near = (
            max(abs(math.log(row[side] / other[side])) for side in (f"forecast_{name}", f"measured_{name}"))
            for other in found
        )
        if all(distance > APART for distance in near):
            found.append(row)
    return found[:3]


def _logarithmic(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: count(value).replace(" ", "")))
        axis.set_minor_formatter(NullFormatter())
