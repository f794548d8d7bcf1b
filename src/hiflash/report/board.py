"""The lines of the live view: one per cell, never wider than the terminal."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hiflash.report.grid import cut
from hiflash.report.units import UNKNOWN, count, duration, percent

__all__ = ["MANY", "Board", "RunState"]

MANY = 10
"""With more cells than this, only the running ones have a line; the others are counted."""

_GAP = 2
_TICK = 2
_NAME_MIN, _NAME_MAX = 12, 40
_BAR_MIN, _BAR_MAX = 8, 30
_WIDTHS = {"%": 4, "acc": 6, "ETA": 8, "comms": 6, "time": 7, "version": 7, "stale": 5}
# What a narrow terminal drops first comes last.
_BY_IMPORTANCE = ("%", "acc", "ETA", "bar", "comms", "time", "version", "stale")
_AS_SHOWN = ("bar", "%", "acc", "version", "stale", "comms", "time", "ETA")
_TICKS = {"waiting": " ", "running": "•", "done": "✓"}
_ASCII_TICKS = {"waiting": " ", "running": ">", "done": "+"}


@dataclass
class RunState:
    """What is known of one run: its state and the latest numbers."""

    name: str
    state: Literal["waiting", "running", "done"] = "waiting"
    latest: dict[str, Any] = field(default_factory=dict)

    @property
    def eta_s(self) -> float | None:
        """Seconds to go if the rest takes as long per unit of budget as what is done, None until known."""
        fraction, wall_s = self.latest.get("fraction"), self.latest.get("wall_s")
        return wall_s * (1 - fraction) / fraction if fraction and wall_s else None

    def shown(self) -> dict[str, str]:
        """Return the numbers as texts, by column."""
        latest = self.latest
        fraction = 1.0 if self.state == "done" else latest.get("fraction")
        return {
            # Rounded down: 100% is for cells that are done.
            "%": UNKNOWN if fraction is None else f"{int(100 * fraction)}%",
            "acc": percent(latest.get("accuracy")),
            "version": UNKNOWN if latest.get("version") is None else f"v{latest['version']}",
            "stale": UNKNOWN if latest.get("staleness") is None else f"{latest['staleness']:.1f}",
            "comms": count(latest.get("communications")),
            "time": duration(latest.get("virtual_s")),
            "ETA": "" if self.state == "done" else self._eta(),
        }

    def _eta(self) -> str:
        """Write the time to go: at most so long, where reaching the target would end the run earlier."""
        early = self.latest.get("target") is not None and self.eta_s is not None
        return ("≤" if early else "") + duration(self.eta_s)


class Board:
    """A rich renderable of all the cells, with the columns that the width has room for."""

    def __init__(self, cells: Sequence[RunState]) -> None:
        self._cells = cells

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        many = len(self._cells) > MANY
        cells = [c for c in self._cells if c.state == "running"] if many else self._cells
        if cells:
            # All the names, so that the columns stay in place when other cells run.
            yield _table(cells, max(len(cell.name) for cell in self._cells), options)
        if many:
            states = [cell.state for cell in self._cells]
            counts = ", ".join(f"{states.count(s)} {s}" for s in ("running", "waiting", "done"))
            yield Text(f"  {counts}", style="dim", no_wrap=True, overflow="ellipsis")


def _table(cells: Sequence[RunState], longest: int, options: ConsoleOptions) -> Table:
    # One column less than the terminal: some wrap when the last one is written.
    columns, name_width, bar_width = _layout(longest, options.max_width - 1)
    table = Table.grid(padding=(0, _GAP, 0, 0))
    table.add_column(width=name_width + _TICK, no_wrap=True, overflow="ellipsis")
    for column in columns:
        width = bar_width if column == "bar" else _WIDTHS[column]
        table.add_column(width=width, no_wrap=True, overflow="ellipsis", justify="right")
    table.add_row("", *("" if column == "bar" else column for column in columns), style="dim")
    ticks = _ASCII_TICKS if options.ascii_only else _TICKS
    for cell in cells:
        shown = cell.shown()
        if options.ascii_only:
            shown["ETA"] = shown["ETA"].replace("≤", "<")
        bar = ProgressBar(
            total=1.0,
            completed=1.0 if cell.state == "done" else cell.latest.get("fraction", 0.0),
            width=bar_width,
        )
        short = cut(cell.name, name_width, "~" if options.ascii_only else "…")
        name = Text(f"{ticks[cell.state]} {short}", style="green" if cell.state == "done" else "")
        texts = (bar if column == "bar" else Text(shown[column]) for column in columns)
        table.add_row(name, *texts, style="dim" if cell.state == "waiting" else "")
    return table


def _layout(longest_name: int, width: int) -> tuple[list[str], int, int]:
    """Return the columns that fit beside the names, and the widths of the names and of the bar."""
    essential = sum(_GAP + _WIDTHS[column] for column in _BY_IMPORTANCE[:3])
    name = min(longest_name, _NAME_MAX, max(width - _TICK - essential, _NAME_MIN))
    room = width - _TICK - name
    kept: list[str] = []
    for column in _BY_IMPORTANCE:
        needed = _GAP + (_BAR_MIN if column == "bar" else _WIDTHS[column])
        if needed <= room:
            kept.append(column)
            room -= needed
    bar = min(_BAR_MIN + room, _BAR_MAX)
    return [column for column in _AS_SHOWN if column in kept], name, bar
