"""Figures of the federated evaluation: the metric on every client's own held-out samples."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hiflash.report.bars import Bar, draw_bars
from hiflash.report.canvas import legend_below, metric_axis, name_panel, new_figure, save, style
from hiflash.report.methods import Look, label, looks
from hiflash.report.outcome import metric_of
from hiflash.report.summary import Groups, Result, is_reference, known

__all__ = ["client_bars", "clients_figure", "draw_clients", "has_clients"]

MOST_EDGES = 20
"""Number of edges in the figure; the result has all."""

_KINDS = (("shared model", "#0077BB", "-"), ("with own BatchNorm values", "#EE7733", "--"))
_BARS = (("mean", "mean over clients"), ("worst_tenth", "worst tenth of the clients"))


def has_clients(result: Result) -> bool:
    """Return whether a run held samples of its clients out."""
    return bool(result.get("clients"))


def draw_clients(result: Result, stem: Path) -> list[Path]:
    """Save the figure of a run's clients as PNG and PDF; return the paths."""
    return save(clients_figure(result), stem)


def clients_figure(result: Result) -> Figure:
    """Return the metric of every client, worst first, and of every edge."""
    told, metric = result["clients"], metric_of(result)
    title = f"{label(result['method'])} on {result['data']}, {result['partition']}, seed {result['seed']}"
    figure = new_figure(10.5 if told["per_edge"] else 5.5, 3.8, f"{title}: clients' own held-out samples")
    left, *right = figure.subplots(1, 2 if told["per_edge"] else 1, squeeze=False)[0]
    style(left, f"Clients, lowest {metric.name} first")
    handles = []
    for (words, colour, dashes), part in zip(_KINDS, (told, told.get("own_batch_norm")), strict=True):
        if part is not None:
            ordered = sorted(value for value in part["per_client"] if known(value))
            handles += left.plot(range(1, len(ordered) + 1), ordered, dashes, color=colour, label=words)
            left.axhline(part["mean"], color=colour, linestyle=":", linewidth=1.0)
    metric_axis(left, metric, labelled=True)
    for axes in right:
        _draw_edges(axes, told, metric.name, 100 if metric.unit == "share" else 1)
    legend_below(figure, handles)
    return figure


def client_bars(parts: Mapping[str, Groups]) -> Figure:
    """Draw for every label of a comparison the mean over clients and the mean of the worst tenth."""
    styles = looks(name for groups in parts.values() for name in groups)
    cells = [cell for groups in parts.values() for group in groups.values() for cell in group]
    metric = metric_of(next(filter(has_clients, cells)))
    scale, unit = (100, " (%)") if metric.unit == "share" else (1, "")
    title = f"{metric.name}{unit} on the clients' own held-out samples"
    figure = new_figure(9.5, 0.9 + len(parts) * (0.7 + 0.27 * len(styles)), title)
    grid = figure.subplots(len(parts), len(_BARS), squeeze=False, sharey="row")
    for row, (part, groups) in zip(grid, parts.items(), strict=True):
        for axes, (key, words) in zip(row, _BARS, strict=True):
            bars = [
                _bar(name, cells, key, scale, styles)
                for name, cells in groups.items()
                if not is_reference(cells[0])
            ]
            draw_bars(axes, bars, words, "count")
        if len(parts) > 1:
            name_panel(row[0], part, "bold")
    return figure


def _bar(name: str, cells: Sequence[Result], key: str, scale: int, styles: Mapping[str, Look]) -> Bar:
    found = [cell["clients"][key] for cell in cells if has_clients(cell)]
    values = [scale * value for value in found if known(value)]
    return Bar(label(name), styles[name].colour, values, len(cells), "nothing held out")


def _draw_edges(axes: Axes, told: Mapping[str, Any], name: str, scale: int) -> None:
    bars = [
        Bar(f"edge {edge}", _KINDS[0][1], [scale * value] if known(value) else [], 1, "nothing held out")
        for edge, value in enumerate(told["per_edge"][:MOST_EDGES])
    ]
    draw_bars(axes, bars, f"Test {name} over the edge's clients" + (" (%)" if scale == 100 else ""), "count")
