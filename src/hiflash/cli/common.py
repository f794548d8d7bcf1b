"""What several commands do: stop on a signal, and say where things were saved."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["PAUSED", "pause_on_signal", "print_paths"]

PAUSED = 130  # what a shell reports for a command that was interrupted


def pause_on_signal() -> Callable[[], bool]:
    """Return whether somebody asked to stop: Ctrl-C or SIGTERM; a second Ctrl-C does not wait."""
    asked = False

    def ask(number: int, _frame: object) -> None:
        nonlocal asked
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked = True

    signal.signal(signal.SIGINT, ask)
    signal.signal(signal.SIGTERM, ask)
    return lambda: asked


def print_paths(console: Any, folder: Path, *names: str) -> None:
    """Print the paths of the files that are there: a run that trains nothing has neither model nor figure."""
    for path in (folder / name for name in names):
        if path.exists():
            console.print(str(path), soft_wrap=True, highlight=False)
