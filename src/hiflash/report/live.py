"""Progress of running cells: a live view on a terminal, plain lines in a pipe."""

import os
import sys
import time
from collections.abc import Iterable, Mapping
from threading import RLock
from types import TracebackType
from typing import Any, Self, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from hiflash.report.board import MANY, Board, RunState
from hiflash.report.units import percent

__all__ = ["LiveView"]

_REFRESHES_PER_S = 10
_PLAIN_EVERY_S = 5.0


class LiveView:
    """A view of cells by name, to be used as a context manager and told from any thread what happens.

    `plain` chooses plain lines (True) or the live view (False); None looks at the stream.
    Start worker processes by spawning: a forked one would inherit the view's lock and its stderr.
    """

    def __init__(
        self, cells: Iterable[str], *, stream: TextIO | None = None, plain: bool | None = None
    ) -> None:
        self._cells = {name: RunState(name) for name in cells}
        self._stream = sys.stderr if stream is None else stream
        self._lock = RLock()
        self._said_at: dict[str, float] = {}
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
        # Not under our lock: the refreshing thread may be waiting for it, and stop waits for that thread.
        if self._live is not None:
            self._live.stop()

    def started(self, cell: str) -> None:
        """Show the cell as running."""
        with self._lock:
            self._cells[cell].state = "running"
            self._said_at[cell] = time.monotonic()
        if self._live is None:
            self._say(f"{cell}: started")

    def progress(self, cell: str, progress: Mapping[str, Any]) -> None:
        """Show the latest numbers of a cell, which runs if there are any."""
        if self._cells[cell].state == "waiting":
            self.started(cell)
        with self._lock:
            known = self._cells[cell]
            if known.state == "done":
                return  # a report overtaken by the end of its run
            known.latest = dict(progress)
            now = time.monotonic()
            if self._live is None and now - self._said_at.get(cell, now) >= _PLAIN_EVERY_S:
                self._said_at[cell] = now
                self._say(_plain_line(known))

    def finished(self, cell: str, result: Mapping[str, Any]) -> None:
        """Show the cell as done, with the numbers of its result."""
        with self._lock:
            self._cells[cell].state = "done"
            self._cells[cell].latest = {**result, "staleness": result["staleness"]["mean"]}
        if self._live is None or len(self._cells) > MANY:
            # Among many, a finished cell loses its line, so its outcome is kept above them.
            self._say(f"{cell}: done, accuracy {percent(result['accuracy'])}, {result['stop_reason']}")

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
            return Board([RunState(c.name, c.state, c.latest) for c in self._cells.values()])

    def _say(self, text: str) -> None:
        if self._live is not None:
            # Never under our lock: rich locks first and then asks us for a snapshot.
            self._live.console.print(Text(text), soft_wrap=True)
            return
        with self._lock:
            self._stream.write(f"{text}\n")
            self._stream.flush()


def _plain_line(cell: RunState) -> str:
    shown = cell.shown()
    return (
        f"{cell.name}: {shown['%']}, accuracy {shown['acc']}, version {shown['version'].lstrip('v')}, "
        f"staleness {shown['stale']}, communications {shown['comms']}, virtual time {shown['time']}, "
        f"ETA {shown['ETA'].replace('≤', 'at most ')}"
    )
