"""Writes the files of a federation, and says what is in them (`hiflash federation`)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from hiflash.data.federation import EVENTS, FederationData
from hiflash.data.federation.arrays import ARRAYS
from hiflash.errors import ConfigError, RunError
from hiflash.store.files import storing

__all__ = ["describe", "write_federation"]

CSV_PAIRS = 1_000_000  # more pairs of clients and edges go to an npz file
TABLES = {
    "clients.csv": ("client", ("f_ghz", "step_ms", "samples")),
    "edges.csv": ("edge", ("wan_rtt_ms", "wan_bandwidth_mbps")),
    "association.csv": ("client", ("association",)),
}
MATRICES = ("latency_ms", "bandwidth_mbps", "send_ms", "labels")


def write_federation(federation: FederationData, folder: str | Path, form: str = "auto") -> list[Path]:
    """Write a federation as CSV files or as `federation.npz` into a new folder, and return the paths.

    All files are there, or none: they are written beside the folder and moved. `auto` takes CSV up to a
    million pairs of clients and edges.
    """
    folder = Path(folder)
    if form not in ("auto", "csv", "npz"):
        raise ConfigError(f"the format must be auto, csv or npz, got {form}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder} exists and is not an empty folder; choose another --out or remove it")
    pairs = (federation.clients or 0) * (federation.edges or 0)
    temporary = folder.absolute().with_name(f".{folder.name}.{uuid4().hex}.tmp")
    with storing(folder):
        try:
            temporary.mkdir(parents=True)
            if form == "npz" or (form == "auto" and pairs > CSV_PAIRS):
                _write_archive(federation, temporary / "federation.npz")
            else:
                _write_tables(federation, temporary)
            names = sorted(path.name for path in temporary.iterdir())
            os.replace(temporary, folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return [folder / name for name in names]


def describe(federation: FederationData) -> list[tuple[str, str]]:
    """Return what a federation gives, array by array, in words."""
    rows = [("clients", _or_drawn(federation.clients)), ("edges", _or_drawn(federation.edges))]
    for name in ARRAYS:
        values = getattr(federation, name)
        if values is None:
            rows.append((name, "not given"))
            continue
        finite = values[np.isfinite(values)]
        text = f"{' x '.join(map(str, values.shape))}, {finite.min():g} to {finite.max():g}"
        rows.append((name, text))
    reachable = federation.reachable
    if reachable is not None:
        rows.append(("reachable", f"{reachable.mean():.1%} of all pairs"))
    schedule = federation.availability
    if schedule is None:
        rows.append(("availability", "not given"))
    else:
        counts = np.bincount(schedule.kind, minlength=len(EVENTS)).tolist()
        told = ", ".join(f"{count} {event}s" for count, event in zip(counts, EVENTS, strict=True))
        ends = f", up to {schedule.time_s[-1]:g} s" if len(schedule) else ""
        rows.append(("availability", f"{told}{ends}; {len(schedule.absent)} clients absent at the start"))
    return rows


def _or_drawn(count: int | None) -> str:
    return "not given" if count is None else f"{count:,}"


def _write_archive(federation: FederationData, path: Path) -> None:
    arrays: dict[str, Any] = {name: getattr(federation, name) for name in ARRAYS}
    schedule = federation.availability
    if schedule is not None:
        columns = ("time_s", "client", "edge", "send_ms")
        arrays |= {f"availability_{name}": getattr(schedule, name) for name in columns}
        arrays["availability_event"] = np.array(EVENTS)[schedule.kind]
    np.savez(path, allow_pickle=False, **{name: each for name, each in arrays.items() if each is not None})


def _write_tables(federation: FederationData, folder: Path) -> None:
    for name in MATRICES:
        matrix = getattr(federation, name)
        if matrix is not None:
            empty = ARRAYS[name].unreachable
            rows = (
                [client, *("" if value == empty else _short(value) for value in row)]
                for client, row in enumerate(matrix.tolist())
            )
            _write(folder / f"{name}.csv", ["client", *range(matrix.shape[1])], rows)
    for file, (key, names) in TABLES.items():
        columns = {name: getattr(federation, name) for name in names if getattr(federation, name) is not None}
        if columns:
            header = [key, *("edge" if name == "association" else name for name in columns)]
            whole = zip(*(values.tolist() for values in columns.values()), strict=True)
            _write(folder / file, header, ([i, *map(_short, row)] for i, row in enumerate(whole)))
    schedule = federation.availability
    if schedule is not None:
        events = (
            [
                _short(float(schedule.time_s[row])),
                schedule.client[row],
                EVENTS[schedule.kind[row]],
                "" if schedule.edge[row] < 0 else schedule.edge[row],
                "" if np.isnan(schedule.send_ms[row]) else _short(float(schedule.send_ms[row])),
            ]
            for row in range(len(schedule))
        )
        _write(folder / "availability.csv", ["time_s", "client", "event", "edge", "send_ms"], events)


def _write(path: Path, header: Iterable[Any], rows: Iterable[Iterable[Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in (header, *rows):
            file.write(",".join(map(str, row)) + "\n")


def _short(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(value)
