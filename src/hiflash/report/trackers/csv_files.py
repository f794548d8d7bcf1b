"""The tracker `csv`: evaluations and uploads of a run as tidy tables."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

from hiflash.report.trackers.files import FileTracker
from hiflash.sim.observer import RunInfo
from hiflash.store.files import storing

__all__ = ["CsvTracker"]

UPLOAD = ("virtual_s", "communications", "edge", "lease", "status", "staleness", "version", "reason")
GRANT = ("granted_s", "base_version", "threshold", "rounds")


class CsvTracker(FileTracker["_Tables"]):
    """Writes `evaluations.csv` and `uploads.csv`, a row per evaluation and per upload.

    Every row begins with the run's name, method and seed, so that tables of many runs can be joined.
    """

    NAME = "csv"

    def open(self, run: RunInfo, directory: Path) -> _Tables:
        """Return both tables, with their headings."""
        return _Tables(directory, {"run": run.name, "method": run.config.method, "seed": run.config.seed})


class _Tables:
    """Both tables of one run. An upload's row has the grant of its lease beside it."""

    def __init__(self, directory: Path, first: Mapping[str, Any]) -> None:
        with ExitStack() as opened:
            self.evaluations = opened.enter_context(_Table(directory / "evaluations.csv", first))
            self.uploads = opened.enter_context(_Table(directory / "uploads.csv", first, (*UPLOAD, *GRANT)))
            self._open = opened.pop_all()
        self._grants: dict[int, dict[str, Any]] = {}
        self._arrived = 0

    def event(self, row: Mapping[str, Any]) -> None:
        """Write an upload, with the grant that came before it."""
        kind = row["event"]
        if kind == "grant":
            told = (row["t"], row["version"], row["threshold"], row["rounds"])
            self._grants[row["lease"]] = dict(zip(GRANT, told, strict=True))
        elif kind == "upload":
            self._arrived += 1
            coordinates = {"virtual_s": row["t"], "communications": self._arrived}
            upload = {name: row[name] for name in UPLOAD if name in row}
            self.uploads.write({**coordinates, **upload, **self._grants.pop(row["lease"], {})})
        elif kind == "cancel":
            self._grants.pop(row["lease"], None)

    def evaluation(self, row: Mapping[str, Any]) -> None:
        """Write an evaluation, and let readers see everything so far."""
        self.evaluations.write(row)
        self.evaluations.flush()
        self.uploads.flush()

    def close(self) -> None:
        """Close both files."""
        self._open.close()


class _Table:
    """One CSV file; its columns are given, or those of its first row."""

    def __init__(self, path: Path, first: Mapping[str, Any], columns: tuple[str, ...] = ()) -> None:
        self._path, self._first = path, first
        with storing(path):
            self._file: TextIO = path.open("w", newline="", encoding="utf-8")
        self._writer: csv.DictWriter[str] | None = None
        if columns:
            self._begin(columns)

    def __enter__(self) -> _Table:
        return self

    def __exit__(self, *_: object) -> None:
        with storing(self._path):
            self._file.close()

    def write(self, row: Mapping[str, Any]) -> None:
        writer = self._writer or self._begin(tuple(row))
        with storing(self._path):
            writer.writerow({**self._first, **row})

    def flush(self) -> None:
        with storing(self._path):
            self._file.flush()

    def _begin(self, columns: tuple[str, ...]) -> csv.DictWriter[str]:
        self._writer = csv.DictWriter(self._file, [*self._first, *columns], lineterminator="\n")
        with storing(self._path):
            self._writer.writeheader()
        return self._writer
