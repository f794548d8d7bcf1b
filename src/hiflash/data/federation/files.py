"""Reads a folder with the files of a federation: small tables as CSV, large matrices in `federation.npz`."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from ...errors import DataError
from .archive import read_archive
from .arrays import ARRAYS, FederationData, Origin
from .availability import Availability
from .tables import MOST_CELLS, Floats, Ints, Table, ids, read_rows, read_table

__all__ = ["ARCHIVE", "FILES", "from_anywhere", "is_remembered", "read_federation", "remember"]

ARCHIVE = "federation.npz"
MATRICES = {
    "latency_ms": ("edge", "latency_ms"),
    "bandwidth_mbps": ("edge", "bandwidth_mbps"),
    "send_ms": ("edge", "send_ms"),
    "labels": ("label", "samples"),
}
"""Tables with a row per client, and the columns of their long form besides `client`."""
CLIENTS, EDGES = ("f_ghz", "step_ms", "samples"), ("wan_rtt_ms", "wan_bandwidth_mbps")
FILES = (
    *(f"{name}.csv" for name in MATRICES),
    "clients.csv",
    "edges.csv",
    "association.csv",
    "availability.csv",
    ARCHIVE,
)

_remembered: WeakValueDictionary[str, FederationData] = WeakValueDictionary()
_kept: dict[str, tuple[Any, FederationData]] = {}  # the last folder that was read, while it does not change


def remember(federation: FederationData) -> str:
    """Return a name for arrays that a program passes: `read_federation` finds them while it keeps them."""
    name = f"<arrays {federation.digest[:12]}>"
    _remembered[name] = federation
    return name


def is_remembered(files: str) -> bool:
    """Return whether this is a name for arrays, and no folder."""
    return files.startswith("<arrays ")


def from_anywhere(files: str) -> str:
    """Return the absolute path of a folder, so that a run can be resumed from anywhere; names stay."""
    return files if is_remembered(files) else os.path.abspath(os.path.expanduser(files))


def read_federation(folder: str | Path) -> FederationData:
    """Return what the files of a folder say of a federation; or arrays, by the name of `remember`.

    A run asks several times, so the last folder is kept in memory until one of its files changes.
    """
    if str(folder) in _remembered:
        return _remembered[str(folder)]
    if is_remembered(str(folder)):
        raise DataError(
            f"federation.files is {folder}: the run was begun with arrays in Python; pass them again, "
            "federation=hiflash.FederationData(...)."
        )
    path = Path(folder)
    files = _files(path)
    stamp = tuple((file.name, about.st_mtime_ns, about.st_size, about.st_ino) for file, about in files)
    key = str(path)
    if key not in _kept or _kept[key][0] != stamp:
        found = _read([file for file, _ in files])
        _kept.clear()
        _kept[key] = (stamp, found)
    return _kept[key][1]


def _files(folder: Path) -> list[tuple[Path, Any]]:
    """Return the files of a federation in a folder with their `stat`, and refuse CSV files of other names."""
    try:
        if not folder.exists():
            raise DataError(
                f"federation.files: the folder {folder} does not exist; give a folder with files."
            )
        if not folder.is_dir():
            raise DataError(
                f"federation.files: {folder} is not a folder; give the folder that holds {_some()}."
            )
        names = sorted(entry.name for entry in folder.iterdir())
        for name in names:
            if name not in FILES and name.endswith((".csv", ".npz", ".npy")) and not name.startswith("."):
                near = difflib.get_close_matches(name, FILES, n=1, cutoff=0.6)
                hint = f"did you mean {near[0]}?" if near else f"a folder may have {', '.join(FILES)}."
                raise DataError(f"{folder / name}: no file of a federation has this name; {hint}")
        files = [(folder / name, (folder / name).stat()) for name in names if name in FILES]
    except OSError as error:
        raise DataError(f"federation.files: {folder} cannot be read ({error.strerror}).") from error
    if not files:
        raise DataError(f"federation.files: {folder} has no file of a federation; it may have {_some()}.")
    return files


def _some() -> str:
    return f"{', '.join(FILES[:-1])} and {FILES[-1]}"


def _read(files: list[Path]) -> FederationData:
    arrays: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    readers: dict[str, Callable[[Path], dict[str, tuple[Any, Origin]]]] = {
        **dict.fromkeys((f"{name}.csv" for name in MATRICES), _matrix),
        "clients.csv": lambda path: _columns(path, "client", CLIENTS),
        "edges.csv": lambda path: _columns(path, "edge", EDGES),
        "association.csv": _association,
        "availability.csv": _availability,
        ARCHIVE: read_archive,
    }
    for path in files:
        for name, (values, origin) in readers[path.name](path).items():
            if name in arrays:
                raise DataError(f"{origin.name} and {origins[name].name} both give {name}; remove one.")
            arrays[name], origins[name] = values, origin
    return FederationData(**arrays, origins=origins)


def _matrix(path: Path) -> dict[str, tuple[Any, Origin]]:
    """Return a matrix by its name; the first line tells its form, wide or long."""
    name = path.stem
    across, value = MATRICES[name]
    table = read_table(path, empty=True)
    missing = 0.0 if name == "labels" else ARRAYS[name].unreachable or 0.0
    if table.header == ["client", across, value]:
        return {name: _long(table, across, missing)}
    if table.header[0] != "client" or len(table.header) < 2:
        raise DataError(
            f"{path}, line 1: it must be client,0,1,... with a column per {across}, or client,{across},"
            f"{value} with a row per pair, got {','.join(table.header)[:60]}."
        )
    return {name: _wide(table, across, missing)}


def _wide(table: Table, across: str, missing: float) -> tuple[Floats, Origin]:
    """Return the matrix of a table with a row per client and a column per edge or label."""
    width = len(table.header) - 1
    names = [str(number) for number in range(width)]
    for column, name in enumerate(table.header[1:], 2):
        if name not in names:
            raise DataError(
                f"{table.path}, line 1, column {column}: there is no {across} {name[:40]}; the {width} "
                f"columns after client must be named 0 to {width - 1}."
            )
    rows = _rows_by_id(table, "client")
    columns = np.array([table.header.index(name) for name in names])
    values = table.values
    if not ((np.diff(columns) == 1).all() and (np.diff(rows) == 1).all()):
        values = values[rows]
        values[:, 1:] = values[:, columns]
    matrix = values[:, 1:]
    gaps = np.isnan(matrix)
    if gaps.any():
        matrix[gaps] = missing

    def place(client: int, other: int) -> str:
        return table.place(int(rows[client]), int(columns[other]))

    return matrix, Origin(str(table.path), place)


def _long(table: Table, across: str, missing: float) -> tuple[Floats, Origin]:
    """Return the matrix of a table with a row per pair; a pair without a row is `missing`."""
    client, other = ids(table, "client"), ids(table, across)
    shape = (int(client.max()) + 1, int(other.max()) + 1)
    if shape[0] * shape[1] > MOST_CELLS:
        row = int(np.argmax(client))
        raise DataError(
            f"{table.place(row, 0)}: {shape[0]:,} clients and {shape[1]:,} {across}s are "
            f"{shape[0] * shape[1]:,} pairs, and at most {MOST_CELLS:,} are read. Are the numbers right?"
        )
    pairs = client * shape[1] + other
    order = np.argsort(pairs, kind="stable")
    twice = np.flatnonzero(np.diff(pairs[order]) == 0)
    if len(twice):
        first, second = order[twice[0]], order[twice[0] + 1]
        raise DataError(
            f"{table.path}, line {table.line(int(second))}: client {client[second]} and {across} "
            f"{other[second]} are in line {table.line(int(first))} already. Give every pair once."
        )
    for axis, (name, found) in enumerate((("client", client), (across, other))):
        absent = np.flatnonzero(np.bincount(found, minlength=shape[axis]) == 0)
        if len(absent):
            raise DataError(
                f"{table.path}: {name} {absent[0]} is missing; it must have rows for 0 to {shape[axis] - 1}."
            )
    matrix = np.full(shape, missing)
    values = table.values[:, 2]
    matrix[client, other] = np.where(np.isnan(values), missing, values)

    def place(one: int, two: int) -> str:
        found = np.searchsorted(pairs[order], one * shape[1] + two)
        there = found < len(order) and pairs[order[found]] == one * shape[1] + two
        return table.place(int(order[found]), 2) if there else f"{table.path}, client {one}"

    return matrix, Origin(str(table.path), place)


def _columns(path: Path, key: str, known: tuple[str, ...]) -> dict[str, tuple[Any, Origin]]:
    """Return the columns of a table with a row per client or per edge."""
    table = read_table(path)
    _check_columns(table.path, table.header, (key,), known)
    rows = _rows_by_id(table, key)
    found = {}
    for name in table.header:
        if name != key:
            column = table.header.index(name)
            found[name] = (
                table.values[rows, column],
                Origin(str(path), lambda index, column=column: table.place(int(rows[index]), column)),
            )
    return found


def _association(path: Path) -> dict[str, tuple[Any, Origin]]:
    table = read_table(path)
    _check_columns(path, table.header, ("client", "edge"), ())
    rows, edges = _rows_by_id(table, "client"), ids(table, "edge")
    column = table.header.index("edge")
    return {
        "association": (edges[rows], Origin(str(path), lambda client: table.place(int(rows[client]), column)))
    }


def _availability(path: Path) -> dict[str, tuple[Any, Origin]]:
    header, rows = read_rows(path)
    _check_columns(path, header, ("time_s", "client", "event"), ("edge", "send_ms"))

    def place(row: int, column: str) -> str:
        where = f"{path}, line {rows[row][0]}"
        return f"{where}, column {header.index(column) + 1} ({column})" if column in header else where

    def numbers(name: str, nothing: float | None) -> Floats:
        if name not in header:
            return np.full(len(rows), nothing, np.float64)
        column, values = header.index(name), []
        for row, (_, cells) in enumerate(rows):
            cell = cells[column]
            try:
                values.append(float(nothing) if not cell and nothing is not None else float(cell))
            except ValueError:
                raise DataError(
                    f"{place(row, name)}: it must be a number, got {cell[:40] or 'nothing'}."
                ) from None
        return np.array(values, np.float64)

    events = [cells[header.index("event")] for _, cells in rows]
    schedule = Availability.from_columns(
        numbers("time_s", None), numbers("client", None), events, numbers("edge", -1.0),
        numbers("send_ms", np.nan), place,
    )  # fmt: skip
    return {"availability": (schedule, Origin(str(path), place))}


def _check_columns(path: Path, header: list[str], needed: tuple[str, ...], more: tuple[str, ...]) -> None:
    """Raise if a needed column is missing or an unknown one is there."""
    may = f" and may name {', '.join(more)}" if more else ""
    for name in needed:
        if name not in header:
            raise DataError(
                f"{path}, line 1: the column {name} is missing; it must name {', '.join(needed)}{may}."
            )
    for column, name in enumerate(header, 1):
        if name not in (*needed, *more):
            near = difflib.get_close_matches(name, (*needed, *more), n=1)
            hint = f"did you mean {near[0]}?" if near else f"it may have {', '.join((*needed, *more))}."
            raise DataError(f"{path}, line 1, column {column}: unknown name {name[:40]}; {hint}")


def _rows_by_id(table: Table, key: str) -> Ints:
    """Return the row of every client or edge, each of which must be there once."""
    found = ids(table, key)
    order = np.argsort(found, kind="stable")
    twice = np.flatnonzero(np.diff(found[order]) == 0)
    if len(twice):
        first, second = order[twice[0]], order[twice[0] + 1]
        raise DataError(
            f"{table.path}, line {table.line(int(second))}: {key} {found[second]} is in line "
            f"{table.line(int(first))} already. Give every {key} once."
        )
    gap = np.flatnonzero(found[order] != np.arange(len(order)))
    if len(gap):
        raise DataError(
            f"{table.path}: {key} {gap[0]} is missing, though {key} {found[order[-1]]} is there; number the "
            f"{key}s from 0 without gaps."
        )
    return order
