"""What methods of the paper's items need to a target: means of seeds, and their ranges as whiskers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from hiflash.report.canvas import (
    INK,
    MUTED,
    legend_below,
    log_x,
    name_panel,
    name_rows,
    new_figure,
    save,
    style,
    write_after,
)
from hiflash.report.methods import Look, looks
from hiflash.report.paper_words import label_words, part_title
from hiflash.report.units import count, goal

__all__ = ["TAKEN", "Need", "draw_needs", "draw_settings", "draw_shards"]

TAKEN = {"communications": "Communications with the cloud", "virtual_s": "Virtual time (s)"}
"""What these figures show of a need, and the words for an axis."""
SPREAD = 0.3  # labels stand side by side in this part of a setting's place, to each side
BESIDE = 0.05  # a forecast stands to the right of its run
BALANCED = "-balanced"


@dataclass(frozen=True)
class Need:
    """What every seed needed to the target, nothing unless all reached it; and a forecast, if any."""

    values: Sequence[float]
    forecast: float | None = None

    @property
    def mean(self) -> float:
        """Return the mean, not a number if the target was not reached."""
        return fmean(self.values) if self.values else nan

    @property
    def whiskers(self) -> tuple[list[float], list[float]]:
        """Return the distances from the mean to the least and to the most of a seed."""
        if not self.values:
            return [nan], [nan]
        return [self.mean - min(self.values)], [max(self.values) - self.mean]


Needs = Mapping[str, Mapping[str, Need]]
"""Needs by label and measure."""


def draw_settings(
    needs: Needs,
    labels: Sequence[str],
    families: Mapping[str, Mapping[str, str]],
    title: str,
    stem: Path,
) -> list[Path]:
    """Save needs of labels under families of ordered settings, a column per family; return the paths.

    A family has words for what follows a label (`+wan-off`). Filled marks are runs, open ones forecasts.
    """
    figure = new_figure(10.5, 7.0, title)
    sizes = [len(settings) for settings in families.values()]
    grid = figure.subplots(
        len(TAKEN), len(families), squeeze=False, sharex="col", sharey="row", width_ratios=sizes
    )
    styles = looks(labels)
    for row, (measure, words) in zip(grid, TAKEN.items(), strict=True):
        for axes, settings in zip(row, families.values(), strict=True):
            style(axes, "")
            for place, each in enumerate(labels):
                shift = SPREAD * (2 * place / max(1, len(labels) - 1) - 1)
                own = [needs.get(each + suffix, {}).get(measure, Need([])) for suffix in settings]
                _draw_label(axes, own, shift, styles[each])
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: count(value).replace(" ", "")))
            axes.yaxis.set_minor_formatter(NullFormatter())
            axes.grid(visible=False, axis="x")
            for at in range(1, len(settings)):
                axes.axvline(at - 0.5, color="#E4E4E4", lw=0.7, zorder=0)
            axes.set_xlim(-0.5, len(settings) - 0.5)
            axes.set_xticks(range(len(settings)), settings.values())
        row[0].set_ylabel(words)
    for axes, family in zip(grid[0], families, strict=True):
        name_panel(axes, family, "bold")
    legend_below(figure, [*(_entry(each, styles[each]) for each in labels), _forecast_entry()])
    return save(figure, stem)


def draw_shards(parts: Mapping[str, Needs], title: str, stem: Path) -> list[Path]:
    """Save needs on random shards beside those on balanced ones, a row of panels per base; return the paths.

    `parts` has partitions by name: `noniid2` and `noniid2-balanced` share their panels.
    """
    bases = list(dict.fromkeys(part.removesuffix(BALANCED) for part in parts))
    labels = list(dict.fromkeys(label for needs in parts.values() for label in needs))
    styles = looks(labels)
    figure = new_figure(10.5, 1.1 + len(bases) * (0.7 + 0.36 * len(labels)), title)
    grid = figure.subplots(len(bases), len(TAKEN), squeeze=False, sharex="col", sharey=True)
    for row, base in zip(grid, bases, strict=True):
        for axes, (measure, words) in zip(row, TAKEN.items(), strict=True):
            style(axes, words if base == bases[-1] else "")
            for place, label in enumerate(labels):
                both = [parts.get(base + kind, {}).get(label, {}).get(measure) for kind in ("", BALANCED)]
                _draw_pair(axes, both, place, styles[label].colour)
            log_x(axes)
            name_rows(axes, [label_words(label) for label in labels])
        name_panel(row[0], part_title(base), "bold")
    for axes in grid[0]:
        low, high = axes.get_xlim()
        axes.set_xlim(low, high * (high / low) ** 0.17)  # room for the numbers after the marks
    marks = (("random shards", INK), ("balanced, disjoint shards", "white"))
    handles = [Line2D([], [], ls="", marker="o", mfc=face, mec=INK, ms=6, label=name) for name, face in marks]
    legend_below(figure, handles)
    return save(figure, stem)


def draw_needs(rows: Sequence[Mapping[str, Any]], title: str, stem: Path) -> list[Path]:
    """Save the communications to every target, a line per label and a panel per partition; return the paths.

    A row has `partition`, `label` and `to`: targets and their `communications`, None if not reached.
    """
    parts = dict.fromkeys(str(row["partition"]) for row in rows if row["partition"] != "pooled")
    labels = list(dict.fromkeys(str(row["label"]) for row in rows if row["partition"] in parts))
    figure = new_figure(max(2.2 + 3.6 * len(parts), 7.0), 1.5 + 0.27 * len(labels), title)
    panels = figure.subplots(1, len(parts), squeeze=False, sharex=True, sharey=True)[0]
    for axes, part in zip(panels, parts, strict=True):
        style(axes, "Communications with the cloud")
        for row in rows:
            reached = [each["communications"] for each in row["to"] if each["communications"] is not None]
            if row["partition"] == part and reached:
                place = labels.index(row["label"])
                axes.plot([min(reached), max(reached)], [place, place], color="#C8C8C8", lw=1.2, zorder=1)
        handles = _draw_targets(axes, [row for row in rows if row["partition"] == part], labels)
        log_x(axes)
        if len(parts) > 1:
            name_panel(axes, part_title(part), "bold")
    name_rows(panels[0], [label_words(name) for name in labels])
    legend_below(figure, handles)
    return save(figure, stem)


def _draw_label(axes: Axes, needs: Sequence[Need], shift: float, look: Look) -> None:
    """Draw what a label needs from setting to setting, and its forecasts."""
    xs = [place + shift for place in range(len(needs))]
    axes.plot(xs, [need.mean for need in needs], color=look.colour, lw=1.0, alpha=0.35, zorder=1)
    for x, need in zip(xs, needs, strict=True):
        if need.values:
            axes.errorbar(x, need.mean, need.whiskers, color=look.colour, marker=look.marker, ms=_size(look),
                          mec="white", mew=0.5, elinewidth=1.3, capsize=2.5, zorder=3)  # fmt: skip
        else:
            axes.text(x, 0.97, "not reached", transform=axes.get_xaxis_transform(), rotation=90, va="top",
                      ha="center", style="italic", color=MUTED, fontsize=7)  # fmt: skip
        if need.forecast is not None:
            axes.plot(x + BESIDE, need.forecast, ls="", color=look.colour, marker=look.marker, mfc="white",
                      ms=_size(look), mew=1.1, zorder=2)  # fmt: skip


def _draw_pair(axes: Axes, both: Sequence[Need | None], place: int, colour: str) -> None:
    """Draw a label on random shards above itself on balanced ones, and write both means."""
    ends: list[float] = []
    told: list[str] = []
    for need, shift, face in zip(both, (-0.17, 0.17), (colour, "white"), strict=True):
        if need is None:
            continue
        told.append(f"{need.mean:,.0f}" if need.values else "not reached")
        ends += need.values
        if need.values:
            axes.errorbar(need.mean, place + shift, xerr=need.whiskers, color=colour, marker="o", ms=6,
                          mfc=face, mew=1.3, elinewidth=1.2, capsize=2.5)  # fmt: skip
    if ends:
        write_after(axes, place, max(ends), " / ".join(told))


def _draw_targets(axes: Axes, rows: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> list[Line2D]:
    """Draw a point per label and target, darker for higher targets; return them for the legend."""
    targets = [each["target"] for each in rows[0]["to"]]
    lines = []
    for place, target in enumerate(targets):
        points = [
            (each["communications"], labels.index(row["label"]))
            for row in rows
            for each in row["to"]
            if each["target"] == target and each["communications"] is not None
        ]
        shade = colormaps["viridis_r"](0.1 + 0.9 * place / max(1, len(targets) - 1))
        lines += axes.plot(
            [x for x, _ in points], [y for _, y in points], "o", color=shade, ms=6.5, mec="white", mew=0.6,
            label=goal(target), zorder=2,
        )  # fmt: skip
    return lines


def _entry(name: str, look: Look) -> Line2D:
    return Line2D([], [], color=look.colour, marker=look.marker, ls="", ms=_size(look) + 1, mec="white",
                  mew=0.5, label=label_words(name))  # fmt: skip


def _forecast_entry() -> Line2D:
    return Line2D([], [], ls="", marker="o", mfc="white", color=INK, ms=7, label="open marks: forecasts")


def _size(look: Look) -> float:
    """Return the size of a mark: stars have less ink than others."""
    return 9.0 if look.marker == "*" else 7.0
