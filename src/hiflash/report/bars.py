"""Horizontal bars of means over seeds; a missing bar is explained in words."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from hiflash.report.canvas import INK, name_rows, style, write_after
from hiflash.report.units import Unit, spread

__all__ = ["Bar", "draw_bars"]


@dataclass(frozen=True)
class Bar:
    """One named bar: the values of the seeds that have one, the number of seeds, and words if none has."""

    name: str
    colour: str
    values: Sequence[float]
    seeds: int
    instead: str


def draw_bars(axes: Axes, bars: Sequence[Bar], x_label: str, unit: Unit) -> None:
    """Draw a bar per name with the mean written at its end and a dot per seed."""
    style(axes, x_label)
    longest = max((value for bar in bars for value in bar.values if value > 0), default=0.0)
    for row, bar in enumerate(bars):
        text, at = bar.instead, 0.0
        if bar.values:
            mean, at = float(np.mean(bar.values)), max(bar.values)
            axes.barh(row, mean, height=0.62, color=bar.colour, alpha=0.85)
            if len(bar.values) > 1:
                rows = [row] * len(bar.values)
                axes.plot(bar.values, rows, "o", ms=3.2, color=INK, mec="white", mew=0.5, zorder=3)
            some = "" if len(bar.values) == bar.seeds else f" ({len(bar.values)} of {bar.seeds} seeds)"
            # Seconds as on the axis, which knows no minutes.
            text = spread(mean, None, "count" if unit == "seconds" else unit) + some
        write_after(axes, row, at, text, instead=not bar.values)
    name_rows(axes, [bar.name for bar in bars])
    partly = any(0 < len(bar.values) < bar.seeds for bar in bars)
    # Room on the right for the text after the longest bar.
    lowest = min((value for bar in bars for value in bar.values), default=0.0)  # R squared may be negative
    axes.set_xlim(min(0.0, 1.1 * lowest), (longest or 1.0) * (1.75 if partly else 1.35))
    if not longest:
        axes.set_xticks([])  # a scale without a bar would be made up
