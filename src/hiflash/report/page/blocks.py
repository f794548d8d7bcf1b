"""What a page is made of: headings, words, tables, figures and listings, without a format."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.table import Table
from rich.text import Text

__all__ = [
    "Block",
    "Cell",
    "Drawing",
    "Heading",
    "Items",
    "Listing",
    "Page",
    "Picture",
    "Row",
    "Sheet",
    "Words",
    "sheet_of",
]


@dataclass(frozen=True)
class Heading:
    """A heading; level 2 is that of a part of the page. Its anchor is what links lead to."""

    text: str
    anchor: str
    level: int = 2


@dataclass(frozen=True)
class Words:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Items:
    """A list with a title; a warning stands out."""

    title: str
    items: Sequence[str]
    warning: bool = False


@dataclass(frozen=True)
class Cell:
    """A text in a table: `strong` for the best of a column, `code` for what a machine reads."""

    text: str
    strong: bool = False
    code: bool = False


@dataclass(frozen=True)
class Row:
    """A row of a table, its name first; one with a name alone heads the rows below it."""

    cells: Sequence[Cell]
    heads: bool = False


@dataclass(frozen=True)
class Sheet:
    """A table; without heads each row is a name and its value. `words` are columns to read, not numbers."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Row]
    note: str = ""
    words: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Drawing:
    """A figure as SVG, with the name of its file, its alternative text and its caption."""

    name: str
    svg: str
    about: str
    caption: str

    @property
    def kind(self) -> str:
        """Return what is drawn: the name without the anchor of its study, study-1-compare."""
        return self.name.rpartition("-")[2]


@dataclass(frozen=True)
class Picture:
    """A figure as PNG, which is there already, with the name of its file, alternative text and caption."""

    name: str
    png: bytes
    about: str
    caption: str


@dataclass(frozen=True)
class Listing:
    """A text as a machine wrote it; a folded one opens on demand."""

    title: str
    text: str
    language: str = ""
    folded: bool = True


Block = Heading | Words | Items | Sheet | Drawing | Picture | Listing


@dataclass(frozen=True)
class Page:
    """A whole page: its title, a line below it, and its blocks."""

    title: str
    about: str
    blocks: Sequence[Block]
    footer: Sequence[str] = field(default_factory=tuple)

    @property
    def drawings(self) -> list[Drawing]:
        """Return the figures that were drawn for the page."""
        return [block for block in self.blocks if isinstance(block, Drawing)]

    @property
    def pictures(self) -> list[Picture]:
        """Return the figures that were there already."""
        return [block for block in self.blocks if isinstance(block, Picture)]


def sheet_of(table: Table) -> Sheet:
    """Return a table for the terminal as one for a page."""
    heads = [" ".join(str(column.header).split()) for column in table.columns] if table.show_header else []
    columns = [[_cell(cell) for cell in column.cells] for column in table.columns]
    rows = [_row(cells) for cells in zip(*columns, strict=True)]
    words = frozenset() if heads else frozenset(range(len(columns)))
    return Sheet(_plain(table.title), heads, rows, _plain(table.caption), words)


def _row(cells: Sequence[Cell]) -> Row:
    return Row(cells, heads=len(cells) > 1 and not any(cell.text for cell in cells[1:]))


def _cell(content: object) -> Cell:
    return Cell(_plain(content), strong=isinstance(content, Text) and content.style == "bold")


def _plain(content: object) -> str:
    if content is None:
        return ""
    return content.plain if isinstance(content, Text) else str(content)
