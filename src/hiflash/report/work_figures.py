"""The figures of a comparison without training: bytes, time and cost per client round, and latencies."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from hiflash.report.bars import Bar, draw_bars
from hiflash.report.canvas import name_panel, new_figure, save
from hiflash.report.compare_figures import latency_figure
from hiflash.report.methods import Look, label, looks
from hiflash.report.summary import Groups, Result, by_partition
from hiflash.report.work import THOUSAND, WORK, per_client_round

__all__ = ["draw_work", "work_figures"]

_PANELS = ("wan_bytes", "lan_bytes", "virtual_s", "total_cost")


def draw_work(results: Sequence[Result], directory: Path) -> list[Path]:
    """Save two figures as PNG and PDF: work and latency; return their paths."""
    figures = work_figures(results)
    return [path for name, figure in figures.items() for path in save(figure, directory / name)]


def work_figures(results: Sequence[Result]) -> dict[str, Figure]:
    """Return the figures of a comparison without training by name."""
    parts = by_partition(results)
    styles = looks(name for groups in parts.values() for name in groups)
    return {"work": _work(parts, styles), "latency": latency_figure(results)}


def _work(parts: dict[str, Groups], styles: dict[str, Look]) -> Figure:
    """Draw a row of bars per partition; a method that sends nothing over a network has words instead."""
    cells = [cell for groups in parts.values() for group in groups.values() for cell in group]
    data = ", ".join(dict.fromkeys(str(cell["data"]) for cell in cells))
    where = f", {next(iter(parts))}" if len(parts) == 1 else ""
    seeds = max(len(group) for groups in parts.values() for group in groups.values())
    dots = f" (bars: mean of {seeds} seeds, dots: seeds)" if seeds > 1 else " (one seed)"
    title = f"{data}{where}: per {THOUSAND:,} client rounds, nothing trained{dots}"
    height = 0.9 + len(parts) * (0.7 + 0.3 * len(styles))
    figure = new_figure(13.5, height, title)
    grid = figure.subplots(len(parts), len(_PANELS), squeeze=False, sharey="row")
    for row, (part, groups) in zip(grid, parts.items(), strict=True):
        for axes, measure in zip(row, _PANELS, strict=True):
            bars = []
            for name, group in groups.items():
                found = [per_client_round(cell, measure) for cell in group]
                values = [THOUSAND * value for value in found if value]
                nothing = "none: no edge tier" if measure == "lan_bytes" else "none"
                bars.append(Bar(label(name), styles[name].colour, values, len(group), nothing))
            about = WORK[measure]
            draw_bars(axes, bars, about.axis, about.unit)
        if len(parts) > 1:
            name_panel(row[0], part, "bold")
    return figure
