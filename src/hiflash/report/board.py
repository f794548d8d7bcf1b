"""The live view as text: a line per run, never wider than the terminal, a total, and warnings."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hiflash.report.alerts import alert, alerts_of
from hiflash.report.grid import cut
from hiflash.report.outcome import show
from hiflash.report.run_state import RunState, TimeLeft
from hiflash.report.units import UNKNOWN, count, duration

__all__ = ["MANY", "Board", "numbers_of", "total_line"]

MANY = 10
"""With more runs than this, only the running ones have a line."""

MOST_ALERTS = 4
"""Number of warnings in the view while runs go on; the last view has all."""

_GAP = 2
_TICK = 2
_NAME_MIN, _NAME_MAX = 12, 40
_BAR_MIN, _BAR_MAX = 8, 30
_WIDTHS = {"bar": _BAR_MIN, "%": 4, "score": 6, "ETA": 8, "comms": 6, "time": 7, "version": 7, "stale": 5}
_HEADS = {"bar": "", "time": "virtual\ntime"}
# A narrow terminal drops columns from the end of this list. "outcome" is room for long words under ETA.
_BY_IMPORTANCE = ("%", "score", "ETA", "bar", "comms", "time", "outcome", "version", "stale")
_AS_SHOWN = ("bar", "%", "score", "version", "stale", "comms", "time", "ETA")
_OUTCOME = len("target reached")
_TICKS = {"waiting": " ", "running": "•", "done": "✓"}
_ASCII_TICKS = {"waiting": " ", "running": ">", "done": "+"}


def numbers_of(run: RunState) -> dict[str, str]:
    """Return the numbers of a run as texts, by column."""
    latest, fraction = run.latest, run.fraction
    return {
        # Rounded down: 100% is only for runs that are over.
        "%": UNKNOWN if fraction is None else f"{int(100 * fraction)}%",
        "score": show(run.score, run.metric),
        "version": UNKNOWN if latest.get("version") is None else f"v{latest['version']}",
        "stale": UNKNOWN if latest.get("staleness") is None else f"{latest['staleness']:.1f}",
        "comms": count(latest.get("communications")),
        "time": duration(latest.get("virtual_s")),
        "ETA": _eta(run),
    }


def total_line(runs: Sequence[RunState], elapsed_s: float, left: TimeLeft | None) -> str:
    """Return how many runs are done, the time so far and the time left, at most 60 characters."""
    done = sum(run.state == "done" for run in runs)
    line = f"{done} of {len(runs)} runs done, {_seconds(elapsed_s)} elapsed"
    if done == len(runs):
        return line
    if left is None:
        return f"{line}, time left not known yet"
    return f"{line}, {'at most' if left.at_most else 'about'} {_seconds(left.seconds)} left"


@dataclass(frozen=True)
class Board:
    """A rich renderable of all runs, with as many columns as fit."""

    runs: Sequence[RunState]
    elapsed_s: float = 0.0
    left: TimeLeft | None = None
    final: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width - 1  # some terminals wrap when their last column is written
        many = len(self.runs) > MANY
        lines = [run for run in self.runs if run.state == "running"] if many else self.runs
        if lines:
            # The longest of all names, so that columns stay in place when other runs start.
            yield _table(lines, max(len(run.name) for run in self.runs), width, options.ascii_only)
        texts = []
        if len(self.runs) > 1:
            texts.append(Text(total_line(self.runs, self.elapsed_s, self.left), style="dim"))
        alerts = [
            alert(warning, run.name if len(self.runs) > 1 else "")
            for run in self.runs
            for warning in alerts_of(run.latest)
        ]
        more = 0 if self.final else len(alerts) - MOST_ALERTS
        if more > 0:
            alerts[MOST_ALERTS:] = [alert(f"{more} more")]
        for text in (*texts, *alerts):
            yield from text.wrap(console, width)


def _eta(run: RunState) -> str:
    """Write the time left, with `≤` if the target may end the run earlier, or the outcome."""
    if run.reached:
        return "target reached"
    if run.state == "done":
        return "done" if run.target is None else "target missed"
    if run.eta_s == 0:
        return "saving"  # the budget is used up, and files and figures take a while
    early = run.may_end_early and run.eta_s is not None
    return ("≤" if early else "") + duration(run.eta_s)


def _head(runs: Sequence[RunState]) -> str:
    """Return the head of the metric's column; runs of different metrics share none."""
    names = {run.metric.name for run in runs if run.latest} or {"accuracy"}
    name = names.pop() if len(names) == 1 else "metric"
    return "acc" if name == "accuracy" else cut(name, _WIDTHS["score"], "")


def _table(runs: Sequence[RunState], longest_name: int, width: int, ascii_only: bool) -> Table:
    name_width, widths = _layout(longest_name, width)
    table = Table.grid(padding=(0, _GAP, 0, 0))
    table.add_column(width=name_width + _TICK, no_wrap=True, overflow="ellipsis")
    for room in widths.values():
        table.add_column(width=room, no_wrap=True, overflow="ellipsis", justify="right", vertical="bottom")
    heads = {**_HEADS, "score": _head(runs)}
    table.add_row("", *(heads.get(column, column) for column in widths), style="dim")
    ticks = _ASCII_TICKS if ascii_only else _TICKS
    for run in runs:
        texts = numbers_of(run)
        if widths.get("ETA") != _OUTCOME:
            texts["ETA"] = texts["ETA"].removeprefix("target ")
        if ascii_only:
            texts["ETA"] = texts["ETA"].replace("≤", "<")
        short = cut(run.name, name_width, "~" if ascii_only else "…")
        name = Text(f"{ticks[run.state]} {short}", style="green" if run.state == "done" else "")
        bar = ProgressBar(total=1.0, completed=run.fraction or 0.0, width=widths.get("bar"))
        cells = (bar if column == "bar" else Text(texts[column]) for column in widths)
        table.add_row(name, *cells, style="dim" if run.state == "waiting" else "")
    return table


def _layout(longest_name: int, width: int) -> tuple[int, dict[str, int]]:
    """Return the width of the names, and the widths of the columns that fit beside them."""
    essential = sum(_GAP + _WIDTHS[column] for column in _BY_IMPORTANCE[:3])
    name = min(longest_name, _NAME_MAX, max(width - _TICK - essential, _NAME_MIN))
    room = width - _TICK - name
    widths = dict(_WIDTHS)
    kept = []
    for column in _BY_IMPORTANCE:
        needed = _OUTCOME - _WIDTHS["ETA"] if column == "outcome" else _GAP + _WIDTHS[column]
        if needed <= room:
            kept.append(column)
            room -= needed
    if "outcome" in kept:
        widths["ETA"] = _OUTCOME
    widths["bar"] = min(_BAR_MIN + room, _BAR_MAX)
    return name, {column: widths[column] for column in _AS_SHOWN if column in kept}


def _seconds(seconds: float) -> str:
    """Write a duration without tenths: they would flicker."""
    return f"{seconds:.0f}s" if seconds < 59.5 else duration(seconds)
