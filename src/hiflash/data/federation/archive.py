"""Reads and writes `federation.npz`: plain arrays under the names of `FederationData`, nothing pickled."""

from __future__ import annotations

import difflib
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from ...errors import DataError
from .arrays import ARRAYS, Origin
from .availability import COLUMNS, Availability
from .tables import MOST_CELLS, regular_file

__all__ = ["read_archive"]

MOST_BYTES = 8 * 1024**3
NAMES = (*ARRAYS, *(f"availability_{name}" for name in COLUMNS))
BROKEN = (OSError, EOFError, ValueError, RuntimeError, NotImplementedError, zlib.error, zipfile.BadZipFile)


def read_archive(path: Path) -> dict[str, tuple[Any, Origin]]:
    """Return the arrays of an npz file by name, and where they come from."""
    regular_file(path, MOST_BYTES)
    arrays: dict[str, Any] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                name = member.removesuffix(".npy")
                if name not in NAMES:
                    near = difflib.get_close_matches(name, NAMES, n=1)
                    hint = f"did you mean {near[0]}?" if near else f"it may have {', '.join(NAMES)}."
                    raise DataError(f"{path}: unknown array {name[:40]}; {hint}")
                arrays[name] = _array(archive, member, f"{path}, {name}")
    except BROKEN as error:
        raise DataError(f"{path}: it cannot be read as npz ({error}). Save it with numpy.savez.") from error
    if not arrays:
        raise DataError(f"{path}: it has no arrays. Save some with numpy.savez, like latency_ms.")
    found: dict[str, tuple[Any, Origin]] = {
        name: (values, _origin(f"{path}, {name}")) for name, values in arrays.items() if name in ARRAYS
    }
    if len(found) < len(arrays):
        found["availability"] = (_availability(path, arrays), Origin(str(path), _origin(str(path)).place))
    return found


def _array(archive: zipfile.ZipFile, member: str, name: str) -> Any:
    """Return an array after a look at its header: it may be huge, or hold Python objects."""
    with archive.open(member) as stream:
        version = npy.read_magic(stream)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(stream)
        if dtype.hasobject or dtype.names:
            raise DataError(f"{name}: it holds objects ({dtype}), which are not read. Save plain numbers.")
        if int(np.prod(shape, dtype=object)) > MOST_CELLS:
            raise DataError(f"{name}: it has the shape {shape}, and at most {MOST_CELLS:,} numbers are read.")
    with archive.open(member) as stream:
        return npy.read_array(stream, allow_pickle=False)


def _availability(path: Path, arrays: dict[str, Any]) -> Availability:
    """Return the schedule whose columns are the arrays `availability_*`."""
    for name in COLUMNS[:3]:
        if f"availability_{name}" not in arrays:
            raise DataError(f"{path}: the array availability_{name} is missing; availability needs it.")
    rows = arrays["availability_time_s"].size
    usual: dict[str, Any] = {"edge": np.full(rows, -1.0), "send_ms": np.full(rows, np.nan)}
    columns: dict[str, Any] = {name: arrays.get(f"availability_{name}", usual.get(name)) for name in COLUMNS}
    for name, values in columns.items():
        kinds = "U" if name == "event" else "iuf"
        if values.shape != (rows,) or values.dtype.kind not in kinds:
            wanted = "words (join, leave, move)" if name == "event" else "numbers"
            raise DataError(
                f"{path}, availability_{name}: it must hold {rows} {wanted}, got shape {values.shape} of "
                f"{values.dtype}."
            )
    numbers = {name: values.astype(np.float64) for name, values in columns.items() if name != "event"}
    return Availability.from_columns(
        numbers["time_s"], numbers["client"], columns["event"].tolist(), numbers["edge"], numbers["send_ms"],
        lambda row, column: f"{path}, availability_{column}[{row}]",
    )  # fmt: skip


def _origin(name: str) -> Origin:
    return Origin(name, lambda *index: f"{name}[{', '.join(map(str, index))}]")
