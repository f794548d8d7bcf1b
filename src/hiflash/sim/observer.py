"""Observers: a user's code that follows runs, row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hiflash.config import Config
from hiflash.sim.events import Log
from hiflash.sim.result import Result

__all__ = ["Audience", "Observer", "RunInfo"]


@dataclass(frozen=True)
class RunInfo:
    """The run that an observer is told about.

    `directory` is None if nothing is saved. `tags` has the `label` of a comparison's run, or the `point` of a
    sweep's. `finished` says that the run had ended before: its rows are read back.
    """

    name: str
    config: Config
    directory: Path | None = None
    tags: Mapping[str, Any] = field(default_factory=dict)
    finished: bool = False


class Observer:
    """Follows runs. Override the methods you need; the others do nothing.

    Every call names the run. An observer of a run always sees its rows from the first on: resuming reads the
    rows up to the checkpoint back. Rows are shared, so do not change them.
    """

    def started(self, run: RunInfo) -> None:
        """Take note of a run before its first row."""

    def event(self, run: RunInfo, row: Mapping[str, Any]) -> None:
        """Take note of a row of `events.jsonl`."""

    def evaluation(self, run: RunInfo, row: Mapping[str, Any]) -> None:
        """Take note of an evaluation: a row of `Result.evaluations`."""

    def progress(self, run: RunInfo, status: Mapping[str, Any]) -> None:
        """Take note of the state of a run, several times a second; nothing is read back."""

    def finished(self, run: RunInfo, result: Result) -> None:
        """Take note of the result, after the last row."""

    def stopped(self, run: RunInfo) -> None:
        """Take note that a run ended without a result: it was paused, or something raised an error."""


class Audience:
    """The observers of runs, told one after the other. Rows are made only if an observer overrides a row."""

    def __init__(self, observers: Sequence[Observer] = ()) -> None:
        self._all = tuple(observers)
        self._rows = [each for each in self._all if type(each).event is not Observer.event]
        self._evaluations = [each for each in self._all if type(each).evaluation is not Observer.evaluation]
        self.wants_rows = bool(self._rows or self._evaluations)

    def __bool__(self) -> bool:
        return bool(self._all)

    @contextmanager
    def following(self, run: RunInfo) -> Iterator[None]:
        """Tell the observers that a run starts, and that it stopped if the block raises an error."""
        self.started(run)
        try:
            yield
        except BaseException:
            self.stopped(run)
            raise

    def started(self, run: RunInfo) -> None:
        """Tell the observers that a run starts; if one raises an error, those before it hear of a stop."""
        for place, each in enumerate(self._all):
            try:
                each.started(run)
            except BaseException:
                Audience(self._all[: place + 1]).stopped(run)
                raise

    def finished(self, run: RunInfo, result: Result) -> None:
        """Tell all observers the result; the first error is raised when all have been told."""
        errors: list[Exception] = []
        for each in self._all:
            try:
                each.finished(run, result)
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def event(self, run: RunInfo, row: Mapping[str, Any]) -> None:
        """Tell the observers a row."""
        for each in self._rows:
            each.event(run, row)
        if self._evaluations and row["event"] == "evaluate":
            others = {name: value for name, value in row.items() if name not in ("t", "event")}
            told = {"virtual_s": row["t"], **others}
            for each in self._evaluations:
                each.evaluation(run, told)

    def progress(self, run: RunInfo, status: Mapping[str, Any]) -> None:
        """Tell the observers how far the run is."""
        for each in self._all:
            each.progress(run, status)

    def stopped(self, run: RunInfo) -> None:
        """Tell the observers that a run has ended without a result."""
        for each in self._all:
            with suppress(Exception):  # what ended the run is the news
                each.stopped(run)

    def log(self, run: RunInfo, saved: Log) -> Log:
        """Return a log that saves a row and tells it; without anybody to tell, the one that saves."""
        if not self.wants_rows:
            return saved

        def log(now: float, kind: str, row: Mapping[str, Any]) -> None:
            saved(now, kind, row)
            self.event(run, {"t": now, "event": kind, **row})

        return log

    def replay(self, run: RunInfo, rows: Callable[[], Iterator[Mapping[str, Any]]]) -> None:
        """Tell the rows of an earlier part of the run, if anybody wants rows."""
        if self.wants_rows:
            for row in rows():
                self.event(run, row)
