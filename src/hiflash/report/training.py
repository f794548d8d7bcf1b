"""The training of an agent as a live view, a table and figures."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from hiflash.report.agent_figures import draw_threshold_boxes
from hiflash.report.canvas import INK, MUTED, legend_below, new_figure, save, style
from hiflash.report.grid import new_table

__all__ = ["TrainingView", "draw_training", "training_table"]

PLAIN_EVERY_S = 5.0
BOXES = 15
COLORS = {"static": "#0072B2", "fluctuating": "#D55E00"}


class TrainingView:
    """Progress of the training: a bar on a terminal, plain lines in a pipe."""

    def __init__(self, episodes: int, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._episodes = episodes
        self._said_at = 0.0
        self._bar: Progress | None = None
        if self._stream.isatty() and os.environ.get("TERM") not in {"dumb", "unknown"}:
            columns = (TextColumn("episode"), MofNCompleteColumn(), BarColumn(30), TimeRemainingColumn())
            self._bar = Progress(
                *columns, TextColumn("{task.fields[said]}"), console=Console(file=self._stream)
            )
            self._task = self._bar.add_task("", total=episodes, said="")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def episode(self, row: Mapping[str, Any]) -> None:
        """Show the outcome of an episode."""
        said = said_of(row)
        if self._bar is not None:
            self._bar.update(self._task, completed=row["episode"], said=said)
        elif "check" in row or time.monotonic() - self._said_at >= PLAIN_EVERY_S:
            self._said_at = time.monotonic()
            print(f"episode {row['episode']}/{self._episodes}: {said}", file=self._stream, flush=True)


def said_of(row: Mapping[str, Any]) -> str:
    """Return an episode in words: return, cost, refusals, threshold, exploration and check."""
    counts = {int(threshold): count for threshold, count in row["thresholds"].items()}
    total = sum(counts.values())
    refused = counts.pop(-1, 0) / total
    words = [f"return {row['return']:,.0f}", f"cost {row['cost']:,.0f}", f"refused {refused:.0%}"]
    if counts:
        words.append(f"median threshold {_median(counts)}")
    words.append(f"random {row['epsilon']:.0%}")
    if "check" in row:
        words.append(f"check {row['check']:,.0f}")
    return ", ".join(words)


def training_table(record: Mapping[str, Any]) -> Table:
    """Return the total cost in the checks: of simple policies, and of the agent at its best."""
    table = new_table("Total cost in the checks")
    for column in ("policy", "mean", "of random", "refused", "median threshold"):
        table.add_column(column, justify="left" if column == "policy" else "right")
    before = [check for check in record["checks"] if not check["episode"]]
    kept = reversed(record["checks"])  # of equal costs the training keeps the last
    after = min((check for check in kept if check["episode"]), key=lambda check: check["cost"])
    shown = (*before, after)
    if any(_cut_short(check) for check in shown):
        table.caption = "* some runs were cut short; each counts with its cost divided by its progress"
    for check in shown:
        granted = sorted(threshold for threshold in check["thresholds"] if threshold >= 0)
        refused = 1 - len(granted) / len(check["thresholds"])
        table.add_row(
            check["policy"],
            f"{check['cost']:,.0f}" + ("*" if _cut_short(check) else ""),
            f"{check['cost'] / before[0]['cost']:.2f}",
            f"{refused:.0%}",
            str(granted[len(granted) // 2]) if granted else "-",
        )
    return table


def draw_training(record: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw the cost over episodes and the thresholds of the checks; return the paths."""
    figure = new_figure(
        8.5, 4.0, "Cost of an agent's runs while it learns, and of checks without exploration"
    )
    axes = figure.add_subplot()
    for dynamics, color in COLORS.items():
        rows = [row for row in record["episodes"] if row["dynamics"] == dynamics]
        places, costs = [row["episode"] for row in rows], [row["cost"] for row in rows]
        axes.plot(places, costs, ".", color=color, alpha=0.45, markersize=4, label=f"{dynamics} run")
    cut = [row for row in record["episodes"] if not row["reached"]]
    if cut:
        places, costs = [row["episode"] for row in cut], [row["cost"] for row in cut]
        axes.plot(places, costs, "x", color=INK, markersize=4, label="run cut short")
    trained = [check for check in record["checks"] if check["episode"]]
    axes.plot(
        [check["episode"] for check in trained],
        [check["cost"] for check in trained],
        "o-",
        color=INK,
        markersize=4,
        label="checks",
    )
    before = [check for check in record["checks"] if not check["episode"]]
    for check, line in ((before[0], ":"), (min(before[1:], key=lambda check: check["cost"]), "--")):
        axes.axhline(
            check["cost"], color=MUTED, linestyle=line, linewidth=1, label=f"{check['policy']}, checked"
        )
    style(axes, "Training episode", "Total cost")
    axes.set_ylim(bottom=0)
    legend_below(figure, list(axes.get_lines()))
    step = -(-len(trained) // BOXES)
    rows = [before[0], *trained[::-step][::-1]]  # always the last check, and only as many as fit
    return [*save(figure, folder / "training"), *draw_threshold_boxes(rows, folder / "thresholds")]


def _cut_short(check: Mapping[str, Any]) -> bool:
    return bool(check["reached"] < len(check["costs"]))


def _median(counts: Mapping[int, int]) -> int:
    granted = sorted(threshold for threshold, count in counts.items() for _ in range(count))
    return granted[len(granted) // 2]
