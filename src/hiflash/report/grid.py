"""The look that all tables share, and wide tables split to fit the terminal."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

__all__ = ["Grid", "cut", "new_table"]

_GAP = 2


@dataclass
class Grid:
    """A table with a name per row, which splits into several tables if it is too wide."""

    title: str
    head: str
    names: Sequence[Text]
    columns: Sequence[tuple[str, Sequence[Text]]]
    caption: str | None = None
    sections: frozenset[int] = frozenset()  # rows with a gap above them
    shortest: int = 14  # names are cut to this length before columns move to another table

    def tables(self, width: int) -> list[Table]:
        """Return tables no wider than the width: names are cut first, then columns move to another table."""
        longest = max(len(text) for text in (self.head, *(name.plain for name in self.names)))
        for parts in range(1, max(len(self.columns), 1) + 1):
            chunks = _split(self.columns, parts)
            room = width - 2 - max(sum(map(_width, chunk)) for chunk in chunks)
            if room >= min(longest, self.shortest):
                break
        names = [Text(cut(name.plain, max(room, self.shortest)), style=name.style) for name in self.names]
        tables = []
        for number, chunk in enumerate(chunks, 1):
            table = new_table(
                self.title if number == 1 else None, self.caption if number == len(chunks) else None
            )
            table.min_width = min(len(self.title), width) if number == 1 else None  # a title in one line
            self._fill(table, names, chunk)
            tables.append(table)
        return tables

    def _fill(
        self, table: Table, names: Sequence[Text], columns: Sequence[tuple[str, Sequence[Text]]]
    ) -> None:
        table.add_column(self.head, no_wrap=True, vertical="bottom")
        for head, _ in columns:
            table.add_column(head, justify="right", no_wrap=True, vertical="bottom")
        for row, name in enumerate(names):
            if row in self.sections:
                table.add_section()
            table.add_row(name, *(cells[row] for _, cells in columns))


def cut(name: str, width: int, mark: str = "…") -> str:
    """Cut a long name in the middle: the ends tell names apart."""
    if len(name) <= width:
        return name
    tail = (width - 1) // 2
    return name[: width - 1 - tail] + mark + name[len(name) - tail :]


def _width(column: tuple[str, Sequence[Text]]) -> int:
    head, cells = column
    return _GAP + max([len(line) for line in head.splitlines()] + [len(cell) for cell in cells])


def _split(columns: Sequence[Any], count: int) -> list[Sequence[Any]]:
    """Split the columns into `count` parts of nearly equal size."""
    small, more = divmod(len(columns), count)
    ends = [small * part + min(part, more) for part in range(count + 1)]
    return [columns[start:end] for start, end in pairwise(ends)]


def new_table(title: str | None, caption: str | None = None) -> Table:
    """Return an empty table with the shared look."""
    return Table(
        box=box.SIMPLE_HEAD,
        title=None if title is None else Text(title),
        title_style="bold",
        title_justify="left",
        caption=caption,
        caption_justify="left",
        pad_edge=False,
        collapse_padding=True,  # to fit more columns into 80 characters
    )
