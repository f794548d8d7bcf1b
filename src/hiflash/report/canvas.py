"""The look that all figures share: axes, named rows, target line, legend and saving."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from hiflash.core.metrics import Metric
from hiflash.report.outcome import mark
from hiflash.report.units import count, goal
from hiflash.store.files import replacing

__all__ = [
    "FONT",
    "INK",
    "MUTED",
    "legend_below",
    "log_x",
    "metric_axis",
    "name_panel",
    "name_rows",
    "new_figure",
    "save",
    "say",
    "style",
    "target_line",
    "write_after",
]

FONT = 9.5
INK = "#222222"
MUTED = "#777777"

_DPI = 150


def new_figure(width: float, height: float, title: str) -> Figure:
    """Return an empty figure of the given size in inches, laid out so that nothing overlaps."""
    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08, wspace=0.04, hspace=0.06)
    figure = Figure(figsize=(width, height), layout=layout, facecolor="white")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=FONT + 1.5, color=INK)
    return figure


def style(axes: Axes, x_label: str, y_label: str = "") -> None:
    """Give axes labels, a light grid, two spines and k/M tick labels on x."""
    axes.set_xlabel(x_label, fontsize=FONT, color=INK)
    axes.set_ylabel(y_label, fontsize=FONT, color=INK)
    axes.tick_params(labelsize=FONT - 1, colors=INK, length=3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(MUTED)
    axes.grid(color="#E4E4E4", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(_tick))


def metric_axis(axes: Axes, metric: Metric, *, labelled: bool) -> None:
    """Make y a metric with head room for text at the top; a share is in percent, at most 100."""
    low, high = axes.get_ylim()
    top = high + 0.06 * (high - low)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    if metric.unit == "share":
        axes.set_ylim(max(low, -0.02), min(top, 1.06))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: goal(value)))
    else:
        axes.set_ylim(low, top)
    if labelled:
        axes.set_ylabel(f"Test {metric.name}", fontsize=FONT, color=INK)


def log_x(axes: Axes) -> None:
    """Make x logarithmic, with labels at 1, 2 and 5 if decades alone would be too few labels."""
    axes.set_xscale("log", nonpositive="mask")
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0,) if high / low > 200 else (1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(_tick))
    axes.xaxis.set_minor_formatter(NullFormatter())


def target_line(axes: Axes, target: float, metric: Metric, dashes: str) -> Line2D:
    """Draw the target across the axes and return the line for the legend: a label here would hide data."""
    return axes.axhline(
        target,
        color=MUTED,
        linestyle=dashes,
        linewidth=1.1,
        zorder=1.5,
        label=f"Target {mark(target, metric)}",
    )


def name_panel(axes: Axes, name: str, weight: str = "normal") -> None:
    """Write a title above one panel of a figure, at its left end."""
    axes.set_title(name, loc="left", fontsize=FONT + 0.5, color=INK, fontweight=weight)


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Make y a list of named rows from top to bottom, without grid lines or tick marks."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)


def write_after(axes: Axes, row: int, end: float, text: str, *, instead: bool = False) -> None:
    """Write a text to the right of a bar's end; `instead` marks a text that replaces the bar."""
    axes.annotate(
        text,
        (end, row),
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
        fontsize=FONT - 1.5,
        color=MUTED if instead else INK,
        style="italic" if instead else "normal",
    )


def legend_below(figure: Figure, handles: Sequence[Line2D | Patch]) -> None:
    """Put one legend for all panels under them, in as few even rows as fit and at most six entries each."""
    for rows in range(max(-(-len(handles) // 6), 1), max(len(handles), 1) + 1):
        legend = figure.legend(
            handles=handles,
            loc="outside lower center",
            ncols=max(-(-len(handles) // rows), 1),
            frameon=False,
            fontsize=FONT,
            labelcolor=INK,
        )
        if legend.get_window_extent().width <= figure.bbox.width or rows >= len(handles):
            return
        legend.remove()


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write `stem`.png and `stem`.pdf without dates or versions, so that equal figures are equal bytes."""
    paths = []
    for kind, metadata in (("png", {"Software": None}), ("pdf", {"CreationDate": None, "Producer": None})):
        # The stem may contain a dot ("alpha0.7"), which with_suffix would cut off.
        path = stem.with_name(f"{stem.name}.{kind}")
        with replacing(path) as temporary:
            figure.savefig(temporary, format=kind, dpi=_DPI, metadata=metadata)
        paths.append(path)
    return paths


def say(axes: Axes, text: str) -> None:
    """Write in the middle of empty axes why they are empty."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", color=MUTED, fontsize=FONT)


def _tick(value: float, _position: int | None) -> str:
    return count(value).replace(" ", "")
