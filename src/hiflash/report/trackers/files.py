"""What trackers share that write files: one set of open files per run."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from hiflash.errors import ConfigError
from hiflash.sim.observer import Observer, RunInfo
from hiflash.sim.result import Result

__all__ = ["FileTracker"]


class Files(Protocol):
    """The open files of a run."""

    def event(self, row: Mapping[str, Any]) -> None:
        """Write what a row of `events.jsonl` has to say."""

    def evaluation(self, row: Mapping[str, Any]) -> None:
        """Write an evaluation."""

    def close(self) -> None:
        """Close the files."""


Open = TypeVar("Open", bound=Files)


class FileTracker(Observer, Generic[Open]):
    """A tracker that writes into the directory of a run, from its first row to its last.

    The files of an earlier attempt are replaced: the rows of a resumed run begin with the first again.
    """

    NAME: str

    def __init__(self) -> None:
        self._open: dict[str, Open] = {}

    @abstractmethod
    def open(self, run: RunInfo, directory: Path) -> Open:
        """Return new files for a run."""

    def started(self, run: RunInfo) -> None:
        """Refuse a run that is not saved. Its directory need not exist before the first row."""
        if run.directory is None:
            raise ConfigError(
                f"the tracker {self.NAME} writes into the directory of a run, and {run.name} has none; "
                'give one, like directory="runs/mine"'
            )

    def event(self, run: RunInfo, row: Mapping[str, Any]) -> None:
        """Write what a row has to say; the first one opens the files."""
        if run.name not in self._open and run.directory is not None:
            self._open[run.name] = self.open(run, run.directory)
        self._open[run.name].event(row)

    def evaluation(self, run: RunInfo, row: Mapping[str, Any]) -> None:
        """Write an evaluation."""
        self._open[run.name].evaluation(row)

    def finished(self, run: RunInfo, result: Result) -> None:
        """Close the files."""
        self.stopped(run)

    def stopped(self, run: RunInfo) -> None:
        """Close the files as they are; resuming writes them again."""
        files = self._open.pop(run.name, None)
        if files is not None:
            files.close()
