"""Tables of numbers in CSV files: read at the speed of numpy, wrong cells named by file, line and column."""

from __future__ import annotations

import io
import re
import stat
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ...errors import DataError

__all__ = ["Floats", "Ints", "Table", "cells_of", "ids", "read_rows", "read_table", "regular_file", "shown"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MOST_BYTES = 2 * 1024**3  # of a CSV file: more is for federation.npz
MOST_CELLS = 500_000_000  # 4 GB of numbers
WHOLE = 2.0**53  # larger numbers are not exact


@dataclass(frozen=True, eq=False)
class Table:
    """The numbers of a CSV file under the names of its first line; NaN is an empty cell."""

    path: Path
    header: list[str]
    values: Floats
    lines: Ints | None = None
    """The line of each row if it is not its index + 2, because of empty lines."""

    def line(self, row: int) -> int:
        """Return the number of the line that a row was read from."""
        return row + 2 if self.lines is None else int(self.lines[row])

    def place(self, row: int, column: int) -> str:
        """Return file, line and column of a cell in words."""
        return f"{self.path}, line {self.line(row)}, column {column + 1} ({self.header[column]})"

    def column(self, name: str) -> Floats:
        """Return the numbers under a name of the first line."""
        values: Floats = self.values[:, self.header.index(name)]
        return values


def read_table(path: Path, *, empty: bool = False) -> Table:
    """Return the numbers of a CSV file. If `empty`, cells may be empty and are NaN then."""
    text = _text(path)
    first, _, body = text.partition("\n")
    header = cells_of(first)
    _check_header(path, header)
    if not body.strip():
        raise DataError(f"{path}: it has no rows after its first line. Give it one row per client or edge.")
    values = _quickly(body, len(header), empty=empty)
    return _carefully(path, header, body, empty=empty) if values is None else Table(path, header, values)


def read_rows(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Return the names in the first line of a CSV file, and line number and cells of every row, as text."""
    first, _, body = _text(path).partition("\n")
    header = cells_of(first)
    _check_header(path, header)
    rows = []
    for line, row in _filled_lines(body):
        cells = cells_of(row)
        _check_width(path, line, cells, header)
        rows.append((line, cells))
    return header, rows


def cells_of(row: str) -> list[str]:
    """Return the cells of a line, without the spaces and quotation marks around them."""
    cells = [cell.strip() for cell in row.split(",")]
    return [c[1:-1].strip() if len(c) >= 2 and c[0] == c[-1] == '"' else c for c in cells]


def ids(table: Table, name: str, count: int | None = None) -> Ints:
    """Return a column of ids, whole numbers from 0 on, and below `count` if that is given."""
    values = table.column(name)
    most = MOST_CELLS if count is None else count
    bad = np.flatnonzero(~((values >= 0) & (values < most) & (values == np.floor(values))))
    if len(bad):
        row = int(bad[0])
        known = "" if count is None else f" below {count}"
        raise DataError(
            f"{table.place(row, table.header.index(name))}: {name} must be a whole number from 0 on{known}, "
            f"got {shown(values[row])}."
        )
    return values.astype(np.int64)


def shown(number: float) -> str:
    """Return a number as one would write it: 3 and not 3.0, an empty cell as nothing."""
    if np.isnan(number):
        return "nothing"
    return str(int(number)) if abs(number) < WHOLE and number == int(number) else repr(float(number))


def regular_file(path: Path, most_bytes: int) -> None:
    """Raise if a path is not a file, or one with more bytes than `most_bytes`."""
    try:
        about = path.stat()
    except OSError as error:
        raise DataError(f"{path}: it cannot be read ({error.strerror}).") from error
    if not stat.S_ISREG(about.st_mode):
        raise DataError(f"{path}: it is not a file. Put a file there, or remove it.")
    if about.st_size > most_bytes:
        raise DataError(
            f"{path}: it has {about.st_size:,} bytes, and at most {most_bytes:,} are read. Large matrices "
            "take less as arrays of federation.npz."
        )


def _text(path: Path) -> str:
    """Return the text of a file with lines that end in a newline character alone."""
    regular_file(path, MOST_BYTES)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: it cannot be read ({error.strerror}).") from error
    try:
        text = content.decode("utf-8-sig")  # spreadsheets write a byte order mark
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DataError(
            f"{path}, line {line}: byte {error.object[error.start]:#04x} is not UTF-8. Save the file as "
            "UTF-8 text."
        ) from None
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise DataError(f"{path}: it is empty. Give it a first line with names and a row per client or edge.")
    return text


def _check_header(path: Path, header: list[str]) -> None:
    if len(header) == 1 and ";" in header[0]:
        raise DataError(f"{path}, line 1: its cells are separated by semicolons. Save it with commas.")
    seen: set[str] = set()
    for column, name in enumerate(header, 1):
        if not name or name in seen:
            what = f"the name {name} is there twice" if name else "a column has no name"
            raise DataError(f"{path}, line 1, column {column}: {what}. Give every column a name of its own.")
        seen.add(name)


def _quickly(body: str, columns: int, *, empty: bool) -> Floats | None:
    """Return the numbers of a table without oddities, None for one that needs a careful look."""
    if "\n\n" in body or body.startswith("\n"):
        return None  # rows would not tell their lines
    gaps = ",," in body or ",\n" in body or body.endswith(",")
    if gaps:
        if not empty or re.search("na", body, re.IGNORECASE):
            return None  # an error, or a "nan" that must not pass for an empty cell
        body = re.sub(r",(?=[,\n]|\Z)", ",nan", body)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of a table without rows
            values: Floats = np.loadtxt(io.StringIO(body), delimiter=",", comments=None, ndmin=2)
    except (ValueError, UserWarning):
        return None
    fits = values.shape[1] == columns and values.size <= MOST_CELLS
    return values if fits and (gaps or not np.isnan(values).any()) else None


def _carefully(path: Path, header: list[str], body: str, *, empty: bool) -> Table:
    """Return the numbers of a table, cell by cell, or say which cell is wrong."""
    lines: list[int] = []
    values: list[list[float]] = []
    for line, row in _filled_lines(body):
        cells = cells_of(row)
        _check_width(path, line, cells, header)
        numbers = []
        for column, cell in enumerate(cells):
            number = np.nan if not cell and empty and column else _number(cell)
            if number is None:
                raise DataError(
                    f"{path}, line {line}, column {column + 1} ({header[column]}): it must be a number, got "
                    f"{_cut(cell) or 'nothing'}."
                )
            numbers.append(number)
        lines.append(line)
        values.append(numbers)
    return Table(path, header, np.array(values, np.float64), np.array(lines, np.int64))


def _filled_lines(body: str) -> list[tuple[int, str]]:
    """Return number and text of every line after the first that is not blank."""
    return [(line, row) for line, row in enumerate(body.split("\n"), 2) if row.strip()]


def _check_width(path: Path, line: int, cells: list[str], header: list[str]) -> None:
    if len(cells) != len(header):
        raise DataError(
            f"{path}, line {line}: it has {len(cells)} columns, and the first line names {len(header)} "
            f"({_cut(', '.join(header))}). Give every line as many."
        )


def _number(cell: str) -> float | None:
    """Return the number that a cell holds, None if it holds none."""
    if not cell.isascii() or "_" in cell:  # Python reads those, other programs do not
        return None
    try:
        number = float(cell)
    except ValueError:
        return None
    return None if np.isnan(number) else number


def _cut(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."
