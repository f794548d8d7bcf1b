"""The tracker `tensorboard`: scalars of a run in TensorBoard's event files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hiflash.errors import ConfigError
from hiflash.report.trackers.files import FileTracker
from hiflash.sim.observer import RunInfo
from hiflash.store.files import storing

__all__ = ["TensorBoardTracker"]

FOLDER = "tensorboard"
COORDINATES = ("communications", "client_steps", "virtual_ms", "wan_bytes", "version")
TOTALS = ("client_steps", "virtual_s", "wan_bytes", "lan_bytes", "compute_cost", "send_cost", "total_cost")


class TensorBoardTracker(FileTracker["_Scalars"]):
    """Writes scalars into the folder `tensorboard` of a run's directory.

    Metrics are drawn over every coordinate, staleness over uploads, thresholds over grants.
    """

    NAME = "tensorboard"

    def __init__(self) -> None:
        super().__init__()
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ConfigError(
                'the tracker tensorboard needs a package that is not installed: pip install "hiflash[track]"'
            ) from None
        self._make = SummaryWriter

    def open(self, run: RunInfo, directory: Path) -> _Scalars:
        """Return a new file of scalars; an older one would show the same rows again."""
        folder = directory / FOLDER
        with storing(folder):
            for older in folder.glob("events.out.tfevents.*"):
                older.unlink()
            writer = self._make(str(folder), flush_secs=10)
        pooled = run.config.cloud.schedule == "centralized"
        return _Scalars(writer, folder, ("version",) if pooled else COORDINATES)


class _Scalars:
    """The scalars of one run. `coordinates` are the steps that metrics are drawn over."""

    def __init__(self, writer: Any, folder: Path, coordinates: tuple[str, ...]) -> None:
        self._writer, self._folder, self._coordinates = writer, folder, coordinates
        self._uploads = self._grants = 0

    def event(self, row: Mapping[str, Any]) -> None:
        """Write the staleness of an upload, the threshold of a grant, or the loss of pooled training."""
        kind = row["event"]
        if kind == "upload":
            self._uploads += 1
            self._add("staleness/upload", row["staleness"], self._uploads)
        elif kind == "grant":
            self._grants += 1
            self._add("threshold/grant", float(row["threshold"]), self._grants)
        elif kind == "train":
            self._add("train_loss/by_steps", row["loss"], row["steps"])

    def evaluation(self, row: Mapping[str, Any]) -> None:
        """Write the metrics over every coordinate, and the totals over communications."""
        place = {**row, "virtual_ms": round(1000 * row["virtual_s"])}
        for name, value in row.items():
            if name not in (*COORDINATES, *TOTALS):
                for over in self._coordinates:
                    self._add(f"{name}/by_{over}", value, place[over])
        if "communications" in self._coordinates:
            for name in TOTALS:
                self._add(f"total/{name}", row[name], row["communications"])

    def close(self) -> None:
        """Write what is waiting, and close the file."""
        with storing(self._folder):
            self._writer.close()

    def _add(self, tag: str, value: Any, step: int) -> None:
        """Write a number; there is no point where there is none: no threshold, a loss that is not finite."""
        if isinstance(value, int | float) and math.isfinite(value):
            with storing(self._folder):
                self._writer.add_scalar(tag, value, step)
