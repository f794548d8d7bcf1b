"""What privacy costs an association, as a table and a figure against epsilon."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullLocator
from rich.table import Table

from hiflash.report.canvas import INK, legend_below, new_figure, save, style
from hiflash.report.grid import new_table

if TYPE_CHECKING:
    from hiflash.study.private_association import PrivacyRow, PrivacyStudy

__all__ = ["draw_privacy", "privacy_table"]

# Paul Tol's "bright" scheme, safe for the common kinds of colour blindness.
_SINGLE, _GROUP, _RANDOM = "#AA3377", "#4477AA", "#777777"
Value = Callable[["PrivacyRow"], tuple[float, float]]
_PANELS: tuple[tuple[str, Value], ...] = (
    ("Total JS divergence", lambda row: (row.total_js, row.total_js_sd)),
    ("Mean response latency (ms)", lambda row: (row.mean_latency_ms, row.mean_latency_ms_sd)),
)


def privacy_table(study: PrivacyStudy) -> Table:
    """Return a table with a row per epsilon for single histograms and for groups, the given one in bold."""
    draws = max(row.draws for row in study.rows)
    table = new_table(
        f"{study.title}: association {study.rows[0].strategy} under privacy",
        f"{_rules(study)};\nmean and deviation of {draws} draws; JS by the true labels",
    )
    for head in ("histograms", "epsilon", "total JS", "latency\nms", "waiting\nms"):
        side: Literal["left", "right"] = "left" if head == "histograms" else "right"
        table.add_column(head, justify=side, no_wrap=True, vertical="bottom")
    for row in study.rows:
        table.add_row(
            f"{'exact' if row.epsilon is None else 'noised'}, "
            f"{f'groups of {row.group}' if row.group else 'clients'}"
            if row.histograms != "none"
            else f"none ({row.strategy})",
            ("off" if row.epsilon is None else f"{row.epsilon:g}") + " *" * row.chosen,
            _spread(row.total_js, row.total_js_sd, 3, row.draws),
            _spread(row.mean_latency_ms, row.mean_latency_ms_sd, 1, row.draws),
            f"{row.waiting_ms:.1f}",
            style="bold" if row.chosen else "",
        )
    return table


def draw_privacy(study: PrivacyStudy, stem: Path) -> list[Path]:
    """Save total JS and latency against epsilon, with the levels without noise, and return the paths."""
    noised = [row for row in study.rows if row.epsilon is not None]
    figure = new_figure(9.2, 4.6, f"{study.title}: association from label histograms, {_rules(study)}")
    panels = figure.subplots(1, 2).ravel()
    curves = [(label, colour, rows, exact) for label, colour, rows, exact in _curves(study.rows) if rows]
    random = next((row for row in study.rows if row.strategy == "random"), None)
    for axes, (title, value) in zip(panels, _PANELS, strict=True):
        style(axes, "Epsilon of a client's histogram (smaller is more private)", title)
        for _, colour, rows, exact in curves:
            _draw_curve(axes, rows, value, colour)
            if exact is not None:
                axes.axhline(value(exact)[0], color=colour, linestyle="--", linewidth=1.2, zorder=1.5)
        if random is not None:
            axes.axhline(value(random)[0], color=_RANDOM, linestyle=":", linewidth=1.6, zorder=1.5)
        chosen = next((row for row in noised if row.chosen), None)
        if chosen is not None:
            axes.plot(
                [chosen.epsilon], [value(chosen)[0]], "o", ms=10, mfc="none", mec=INK, mew=1.2, zorder=4
            )
        axes.set_xscale("log")
        marks = sorted({row.epsilon for row in noised if row.epsilon is not None})
        axes.set_xticks(marks)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda mark, _: f"{mark:g}"))
        axes.set_ylim(0, 1.1 * max(sum(value(row)) for row in study.rows))
    legend_below(figure, _handles(curves, random, marked=any(row.chosen for row in noised)))
    return save(figure, stem)


Curve = tuple[str, str, "list[PrivacyRow]", "PrivacyRow | None"]


def _curves(rows: Sequence[PrivacyRow]) -> list[Curve]:
    """Return name, colour, noised rows and the row without noise, for single histograms and for groups."""
    grouped = [row for row in rows if row.group is not None]
    single = [row for row in rows if row.group is None and row.strategy != "random"]
    size = grouped[0].group if grouped else 0
    found: list[Curve] = []
    for label, colour, own in (("clients", _SINGLE, single), (f"groups of {size}", _GROUP, grouped)):
        exact = next((row for row in own if row.epsilon is None), None)
        found.append((label, colour, [row for row in own if row.epsilon is not None], exact))
    return found


def _draw_curve(axes: Axes, rows: Sequence[PrivacyRow], value: Value, colour: str) -> None:
    epsilons = [row.epsilon or 0.0 for row in rows]
    means, spreads = zip(*(value(row) for row in rows), strict=True)
    low = [mean - spread for mean, spread in zip(means, spreads, strict=True)]
    high = [mean + spread for mean, spread in zip(means, spreads, strict=True)]
    axes.fill_between(epsilons, low, high, color=colour, alpha=0.18, linewidth=0)
    axes.plot(epsilons, means, color=colour, linewidth=1.8, marker="o", markersize=4)


def _handles(curves: Sequence[Curve], random: PrivacyRow | None, *, marked: bool) -> list[Line2D | Patch]:
    handles: list[Line2D | Patch] = []
    for label, colour, _, exact in curves:
        handles.append(Line2D([], [], color=colour, lw=1.8, marker="o", ms=4, label=f"{label}, noised"))
        if exact is not None:
            handles.append(Line2D([], [], color=colour, lw=1.2, ls="--", label=f"{label}, exact"))
    if random is not None:
        handles.append(Line2D([], [], color=_RANDOM, lw=1.6, ls=":", label="random association"))
    draws = max((row.draws for _, _, rows, _ in curves for row in rows), default=0)
    if draws > 1:
        handles.append(Patch(color=_SINGLE, alpha=0.18, lw=0, label=f"standard deviation, {draws} draws"))
    if marked:
        handles.append(
            Line2D([], [], color=INK, lw=0, marker="o", ms=9, mfc="none", mew=1.2, label="given epsilon")
        )
    return handles


def _rules(study: PrivacyStudy) -> str:
    """Return the noise in words."""
    noised = next((row for row in study.rows if row.epsilon is not None), None)
    if noised is None:
        return "no noise"
    delta = f", delta {noised.delta:g}" if noised.delta else ""
    hidden = "any one sample" if noised.unit == "sample" else "whole histograms"
    return f"{str(noised.noise).capitalize()} noise{delta} that hides {hidden}"


def _spread(mean: float, deviation: float, digits: int, draws: int) -> str:
    return f"{mean:.{digits}f}" + (f" ± {deviation:.{digits}f}" if draws > 1 else "")
