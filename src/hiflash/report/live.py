"""Progress of runs: a live view on a terminal, plain lines in a pipe."""

import os
import re
import sys
import time
from collections.abc import Iterable, Mapping
from threading import RLock
from types import TracebackType
from typing import Any, Self, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from hiflash.report.alerts import alert, alerts_of
from hiflash.report.board import MANY, Board, numbers_of, total_line
from hiflash.report.outcome import show
from hiflash.report.run_state import RunState, time_left

__all__ = ["LiveView"]

_REFRESHES_PER_S = 10
_PLAIN_EVERY_S = 5.0
_TOTAL_EVERY_S = 30.0


class LiveView:
    """A view of runs by name, used as a context manager; any thread may report to it.

    `cells` are the names of the runs, or a mapping from names to titles for people. `processes` is how many
    run at a time. `plain` chooses plain lines (True) or the live view (False); None looks at the stream.
    Start worker processes by spawning: a forked one would inherit the view's lock and its stderr.
    """

    def __init__(
        self,
        cells: Iterable[str] | Mapping[str, str],
        *,
        processes: int = 1,
        stream: TextIO | None = None,
        plain: bool | None = None,
    ) -> None:
        titles = cells if isinstance(cells, Mapping) else {name: name for name in cells}
        self._cells = {name: RunState(title) for name, title in titles.items()}
        self._processes = processes
        self._stream = sys.stderr if stream is None else stream
        self._lock = RLock()
        self._began = self._total_said_at = time.monotonic()
        self._started_at: dict[str, float] = {}
        self._said_at: dict[str, float] = {}
        self._warned: set[tuple[str, str]] = set()
        self._final = False
        if plain is None:
            plain = not self._stream.isatty() or os.environ.get("TERM") in {"dumb", "unknown"}
        self._live = None if plain else self._new_live()

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start(refresh=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._final = True
        # Not under our lock: the refreshing thread may be waiting for it, and stop waits for that thread.
        if self._live is not None:
            self._live.stop()

    def started(self, cell: str) -> None:
        """Show the run as running."""
        with self._lock:
            self._cells[cell].state = "running"
            self._started_at[cell] = self._said_at[cell] = time.monotonic()
        if self._live is None:
            self._say(f"{self._cells[cell].name}: started")

    def progress(self, cell: str, progress: Mapping[str, Any]) -> None:
        """Show the latest numbers of a run, and the run as running."""
        if self._cells[cell].state == "waiting":
            self.started(cell)
        with self._lock:
            run = self._cells[cell]
            if run.state == "done":
                return  # the end of the run overtook this report
            run.latest = dict(progress)
            now = time.monotonic()
            if self._live is None and now - self._said_at.get(cell, now) >= _PLAIN_EVERY_S:
                self._said_at[cell] = now
                self._say(_plain_line(run))
                self._warn(run)
                if now - self._total_said_at >= _TOTAL_EVERY_S:
                    self._say_total()

    def finished(self, cell: str, result: Mapping[str, Any]) -> None:
        """Show the run as done, with the numbers of its result."""
        with self._lock:
            run = self._cells[cell]
            run.elapsed_s = self._elapsed_s(cell, result)
            run.state = "done"
            run.latest = {
                **result,
                "staleness": result["staleness"]["mean"],
                "target": result.get("stop_target"),
            }
        if self._live is None or len(self._cells) > MANY:
            # Among many runs a finished one loses its line, so its outcome stays above the view.
            outcome = f"{run.metric.name} {show(run.score, run.metric)}"
            if result.get("trainer") == "none":
                outcome = "nothing was trained"
            self._say(f"{run.name}: done, {outcome}, {result['stop_reason']}")
        if self._live is None:
            self._warn(run)
            self._say_total()

    def note(self, text: str) -> None:
        """Write a line of text, above the live view if there is one."""
        self._say(text)

    def _new_live(self) -> Live:
        console = Console(file=self._stream, force_terminal=True)
        return Live(
            console=console,
            get_renderable=self._snapshot,
            refresh_per_second=_REFRESHES_PER_S,
            # Output that goes to a file must stay out of the view.
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=self._stream is sys.stderr,
        )

    def _snapshot(self) -> Board:
        with self._lock:
            runs = self._runs()
            elapsed_s = time.monotonic() - self._began
            return Board(runs, elapsed_s, time_left(runs, self._processes), self._final)

    def _runs(self) -> list[RunState]:
        """Return copies of the states, with the time that running ones have taken up to now."""
        return [
            RunState(
                run.name,
                run.state,
                run.latest,
                self._elapsed_s(cell, run.latest) if run.state == "running" else run.elapsed_s,
            )
            for cell, run in self._cells.items()
        ]

    def _elapsed_s(self, cell: str, numbers: Mapping[str, Any]) -> float:
        """Return the wall time of a run: since its start here, or more if it began in an earlier command."""
        now = time.monotonic()
        return max(now - self._started_at.get(cell, now), numbers.get("wall_s") or 0.0)

    def _warn(self, run: RunState) -> None:
        """Write the warnings of a run that are new. A number that grows makes none new until the end."""
        for warning in alerts_of(run.latest):
            kind = warning if run.state == "done" else re.sub(r"\d[\d,.]*", "#", warning)
            if not {(run.name, warning), (run.name, kind)} & self._warned:
                self._warned |= {(run.name, warning), (run.name, kind)}
                self._say(alert(warning, run.name if len(self._cells) > 1 else "").plain)

    def _say_total(self) -> None:
        """Write the line about all runs, if there are several."""
        self._total_said_at = time.monotonic()
        if len(self._cells) > 1:
            runs = self._runs()
            elapsed_s = self._total_said_at - self._began
            self._say(total_line(runs, elapsed_s, time_left(runs, self._processes)))

    def _say(self, text: str) -> None:
        if self._live is not None:
            # Never under our lock: rich locks first and then asks us for a snapshot.
            self._live.console.print(Text(text), soft_wrap=True)
            return
        with self._lock:
            self._stream.write(f"{text}\n")
            self._stream.flush()


def _plain_line(run: RunState) -> str:
    shown = numbers_of(run)
    return (
        f"{run.name}: {shown['%']}, {run.metric.name} {shown['score']}, "
        f"version {shown['version'].lstrip('v')}, staleness {shown['stale']}, "
        f"communications {shown['comms']}, virtual time {shown['time']}, "
        f"{_plain_eta(shown['ETA'])}"
    )


def _plain_eta(eta: str) -> str:
    return eta if eta.startswith(("target", "saving")) else f"ETA {eta.replace('≤', 'at most ')}"
