"""What several commands do: stop on a signal, run many cells with a live view, say where things are."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hiflash.errors import ConfigError, Paused
from hiflash.study.signals import EXIT_CODE, Stopped, answered, new_pause, say_at_the_end

if TYPE_CHECKING:
    from rich.table import Table

    from hiflash.report.live import LiveView
    from hiflash.sim.observer import Observer
    from hiflash.sim.result import Result
    from hiflash.study.cells import Cell

__all__ = [
    "PAUSED",
    "answering_signals",
    "cells_options",
    "check_installed",
    "pause_on_signal",
    "print_paths",
    "print_run",
    "print_tables",
    "processes_option",
    "resumable",
    "run_with_view",
    "shown_in",
    "track_option",
    "trackers",
]

PAUSED = EXIT_CODE
MOST_PROCESSES = 1024


def answering_signals(main: Callable[[Sequence[str] | None], int]) -> Callable[..., int]:
    """Return a command line that ends soon, with one line and `PAUSED`, when it is interrupted."""

    @wraps(main)
    def answering(arguments: Sequence[str] | None = None) -> int:
        try:
            with answered():
                return main(arguments)
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
            return PAUSED

    return answering


def check_installed(command: str, *packages: str) -> None:
    """Say how to install what a command of a deployment needs, if it is not there."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f'hiflash {command} needs the package {", ".join(missing)}: pip install "hiflash[serve]"'
        )


def pause_on_signal() -> Callable[[], bool]:
    """Return whether somebody asked to stop: Ctrl-C or SIGTERM; a second Ctrl-C does not wait."""
    return new_pause()


@contextmanager
def resumable(path: Path) -> Iterator[None]:
    """Say how to go on with a run that was stopped when it could not save its state once more."""

    def stopped() -> Paused:
        return Paused(str(path) if (path / "config.toml").is_file() else None)

    say_at_the_end(lambda: f"{stopped()}\n")
    try:
        yield
    except Stopped:
        raise stopped() from None


def cells_options(command: argparse.ArgumentParser) -> None:
    """Give a command what all have that run many cells."""
    command.add_argument("--seeds", help="how many, or a list with commas")
    processes_option(command)


def processes_option(command: argparse.ArgumentParser) -> None:
    """Give a command the number of runs at the same time."""
    command.add_argument(
        "--processes", type=_processes, default=0, help="runs at the same time; 0 is one per core"
    )


def _processes(text: str) -> int:
    if not text.strip().isdecimal() or int(text) > MOST_PROCESSES:
        raise argparse.ArgumentTypeError(f"must be a whole number in 0..{MOST_PROCESSES}, got {text}")
    return int(text)


def track_option(command: argparse.ArgumentParser) -> None:
    """Give a command what all have that run something."""
    command.add_argument(
        "--track", metavar="NAMES", help="also write tensorboard or csv files, or both with a comma"
    )


def trackers(options: argparse.Namespace) -> list[str]:
    """Return the names of the trackers that `--track` wants."""
    return [name.strip() for name in (getattr(options, "track", None) or "").split(",") if name.strip()]


def shown_in(view: LiveView) -> Observer:
    """Return an observer that shows runs in a view."""
    from hiflash.sim.observer import Observer, RunInfo

    class Showing(Observer):
        def started(self, run: RunInfo) -> None:
            if not run.finished:
                view.started(run.name)

        def progress(self, run: RunInfo, status: Mapping[str, Any]) -> None:
            view.progress(run.name, status)

        def finished(self, run: RunInfo, result: Result) -> None:
            view.finished(run.name, result.to_dict())

    return Showing()


def run_with_view(
    cells: Sequence[Cell],
    folder: Path,
    options: argparse.Namespace,
    titles: Mapping[str, str] | None = None,
) -> list[Result]:
    """Run the cells, save them in the folder and return their results; the view shows `titles` by name.

    An interruption says how to go on.
    """
    from hiflash.report.live import LiveView
    from hiflash.study.run_cells import run_cells

    # At least two: each cell has a process of its own, so that the view goes on while it works.
    processes = options.processes or max(2, min(len(cells), os.cpu_count() or 1))
    paused = Paused(None, f"paused; give the same command again to go on with {folder}")
    say_at_the_end(lambda: f"{paused}\n")
    try:
        with LiveView(titles or [cell.name for cell in cells], processes=processes) as view:
            return run_cells(
                cells,
                directory=folder,
                processes=processes,
                observers=[shown_in(view), *trackers(options)],
                pause=pause_on_signal(),
            )
    except (Paused, Stopped):
        raise paused from None


def print_tables(console: Any, tables: Iterable[Table]) -> None:
    """Print tables with a line between them."""
    for table in tables:
        console.print(table)
        if table.caption:
            console.print()


FILES = ("result.json", "events.jsonl", "model.safetensors", "figure.png", "figure.pdf", "clients.png",
         "clients.pdf", "evaluations.csv", "uploads.csv", "tensorboard")  # fmt: skip


def print_run(result: Result, path: Path | None, *, as_json: bool) -> None:
    """Print the result of a run as a table with its files, or as JSON and nothing else."""
    if as_json:
        print(json.dumps(result.to_dict()))
        return
    from rich.console import Console

    from hiflash.report.tables import run_table

    console = Console()
    console.print(run_table(result.to_dict()))
    if path is not None:
        print_paths(console, (path / file for file in FILES))
    console.print(f"digest {result.digest}", soft_wrap=True, highlight=False)


def print_paths(console: Any, paths: Iterable[Path]) -> None:
    """Print the paths of the files that are there: a run that trains nothing has neither model nor figure."""
    for path in paths:
        if path.exists():
            console.print(str(path), soft_wrap=True, highlight=False)
