"""Association strategies as a table and a figure: divergence, latency, waiting and cluster sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from rich.table import Table

from hiflash.report.canvas import FONT, INK, legend_below, name_rows, new_figure, save, style, write_after
from hiflash.report.grid import new_table
from hiflash.report.units import duration

if TYPE_CHECKING:
    from hiflash.study.associate import AssociationStudy, Row

__all__ = ["association_table", "draw_association"]

# Paul Tol's "bright" scheme, safe for the common kinds of colour blindness.
_COLOURS = {
    "heterogeneity": "#AA3377",
    "random": "#777777",
    "latency": "#4477AA",
    "data": "#228833",
    "edge-iid": "#66CCEE",
    "edge-noniid": "#CCBB44",
    "given": "#EE6677",
}
_PANELS: tuple[tuple[str, Callable[[Row], float]], ...] = (
    ("Total JS divergence", lambda row: row.total_js),
    ("Mean response latency (ms)", lambda row: row.mean_latency_ms),
    ("Waiting time (ms)", lambda row: row.waiting_ms),
)
_CHOSEN = "chosen: lambda {:g}, where total JS and mean latency,\neach scaled to 0..1, have the smallest sum"
_SIZES = "Clients of an edge (smallest to largest)"


def association_table(study: AssociationStudy) -> Table:
    """Return a table with a row per strategy and lambda, the chosen row in bold."""
    edges = len(study.rows[0].cluster_sizes)
    table = new_table(
        f"{study.title}: {sum(study.rows[0].cluster_sizes)} clients, {edges} edges",
        None if study.chosen is None else _CHOSEN.format(study.rows[study.chosen].weight),
    )
    for head in (
        "strategy",
        "lambda",
        "total JS",
        "latency\nms",
        "waiting\nms",
        "clients\nof an edge",
        "time",
    ):
        side: Literal["left", "right"] = "left" if head == "strategy" else "right"
        table.add_column(head, justify=side, no_wrap=True, vertical="bottom")
    for place, row in enumerate(study.rows):
        table.add_row(
            row.strategy,
            "-" if row.weight is None else f"{row.weight:g}" + " *" * (place == study.chosen),
            f"{row.total_js:.3f}",
            f"{row.mean_latency_ms:.1f}",
            f"{row.waiting_ms:.1f}",
            f"{min(row.cluster_sizes)}..{max(row.cluster_sizes)}",
            duration(row.seconds),
            style="bold" if place == study.chosen else "",
        )
    return table


def draw_association(study: AssociationStudy, stem: Path) -> list[Path]:
    """Save lines against lambda for a sweep of lambda, otherwise a bar per strategy; return the paths."""
    first = study.rows[0].cluster_sizes
    figure = new_figure(9.2, 6.4, f"{study.title}: {sum(first)} clients, {len(first)} edges")
    panels = figure.subplots(2, 2).ravel()
    if study.chosen is None:
        for axes, (title, value) in zip(panels, _PANELS, strict=False):
            values = [value(row) for row in study.rows]
            _draw_bars(axes, title, study.rows, [0.0] * len(values), values, [f"{v:.3g}" for v in values])
        least = [min(row.cluster_sizes) for row in study.rows]
        most = [max(row.cluster_sizes) for row in study.rows]
        texts = [f"{a}" if a == b else f"{a} to {b}" for a, b in zip(least, most, strict=True)]
        # Half a client on either side, so that clusters of equal size still make a visible bar.
        ends = [a - 0.5 for a in least], [b + 0.5 for b in most]
        _draw_bars(panels[3], _SIZES, study.rows, *ends, texts)
        return save(figure, stem)
    swept = [row for row in study.rows if row.strategy == "heterogeneity"]
    levels = [row for row in study.rows if row.strategy != "heterogeneity"]
    for axes, (title, value) in zip(panels, _PANELS, strict=False):
        _draw_curve(axes, title, swept, value)
        for row in levels:
            axes.axhline(value(row), color=_COLOURS[row.strategy], linestyle="--", linewidth=1.4, zorder=1.5)
        axes.set_ylim(0, 1.08 * max(value(row) for row in study.rows) or 1)
    _draw_sizes(panels[3], swept)
    chosen = study.rows[study.chosen].weight
    for axes in panels:
        axes.axvline(chosen, color=INK, linestyle=":", linewidth=1.1, zorder=1.5)
    handles = [
        Line2D([], [], color=_COLOURS["heterogeneity"], lw=2, marker="o", ms=4, label="heterogeneity-aware")
    ]
    handles += [
        Line2D([], [], color=_COLOURS[row.strategy], lw=1.4, ls="--", label=row.strategy) for row in levels
    ]
    handles.append(Line2D([], [], color=INK, lw=1.1, ls=":", label=f"chosen: lambda {chosen:g}"))
    legend_below(figure, handles)
    return save(figure, stem)


def _draw_curve(axes: Axes, title: str, rows: Sequence[Row], value: Callable[[Row], float]) -> None:
    style(axes, "lambda", title)
    order = sorted(rows, key=_weight)
    axes.plot(
        [_weight(row) for row in order],
        [value(row) for row in order],
        color=_COLOURS["heterogeneity"],
        linewidth=1.8,
        marker="o",
        markersize=3.5,
    )


def _draw_sizes(axes: Axes, rows: Sequence[Row]) -> None:
    style(axes, "lambda", "Clients of an edge")
    order = sorted(rows, key=_weight)
    weights, hue = [_weight(row) for row in order], _COLOURS["heterogeneity"]
    axes.fill_between(
        weights,
        [min(row.cluster_sizes) for row in order],
        [max(row.cluster_sizes) for row in order],
        color=hue,
        alpha=0.18,
        linewidth=0,
        label="smallest to largest",
    )
    axes.plot(weights, [np.median(row.cluster_sizes) for row in order], color=hue, lw=1.8, label="median")
    axes.set_ylim(0, 1.08 * max(max(row.cluster_sizes) for row in rows))
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.legend(frameon=False, fontsize=FONT - 1, labelcolor=INK, loc="lower right")


def _draw_bars(
    axes: Axes,
    title: str,
    rows: Sequence[Row],
    starts: Sequence[float],
    ends: Sequence[float],
    texts: Sequence[str],
) -> None:
    style(axes, title)
    widths = [end - start for start, end in zip(starts, ends, strict=True)]
    colours = [_COLOURS[row.strategy] for row in rows]
    axes.barh(range(len(rows)), widths, left=starts, height=0.6, color=colours, alpha=0.85)
    name_rows(axes, [row.strategy for row in rows])
    for place, (end, text) in enumerate(zip(ends, texts, strict=True)):
        write_after(axes, place, end, text)
    axes.set_xlim(0, max(ends) * 1.25 or 1)


def _weight(row: Row) -> float:
    return 0.0 if row.weight is None else row.weight
