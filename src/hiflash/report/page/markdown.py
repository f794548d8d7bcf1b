"""A page as Markdown, for GitHub and for papers' repositories; figures are files beside it."""

import re
from functools import singledispatch
from html import escape

from hiflash.report.page.blocks import (
    Block,
    Cell,
    Drawing,
    Heading,
    Items,
    Listing,
    Page,
    Picture,
    Sheet,
    Words,
)

__all__ = ["FIGURES", "to_markdown"]

FIGURES = "figures"
"""The folder of the figures, beside the Markdown."""

_SPECIAL = re.compile(r"([\\`*_\[\]|<>#])")


def to_markdown(page: Page) -> str:
    """Return a page as Markdown."""
    blocks = [_written(block) for block in page.blocks]
    footer = [_plain(line) for line in page.footer]
    return "\n\n".join([f"# {_plain(page.title)}", _plain(page.about), *blocks, "---", *footer]) + "\n"


@singledispatch
def _written(block: Block) -> str:
    raise TypeError(f"no Markdown for {type(block).__name__}")


@_written.register
def _(block: Heading) -> str:
    return f"{'#' * block.level} {_plain(block.text)}"


@_written.register
def _(block: Words) -> str:
    return _plain(block.text)


@_written.register
def _(block: Items) -> str:
    return "\n".join([f"**{_plain(block.title)}**", "", *(f"- {_plain(item)}" for item in block.items)])


@_written.register
def _(block: Listing) -> str:
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", block.text)), default=0))
    text = f"{fence}{block.language}\n{block.text.rstrip()}\n{fence}"
    if not block.folded:
        return f"{_plain(block.title)}\n\n{text}"
    return f"<details>\n<summary>{escape(block.title)}</summary>\n\n{text}\n\n</details>"


@_written.register
def _(block: Drawing) -> str:
    return f"![{_plain(block.about)}]({FIGURES}/{block.name}.svg)\n\n{_plain(block.caption)}"


@_written.register
def _(block: Picture) -> str:
    return f"![{_plain(block.about)}]({FIGURES}/{block.name}.png)\n\n{_plain(block.caption)}"


@_written.register
def _(block: Sheet) -> str:
    width = len(block.heads) or max((len(row.cells) for row in block.rows), default=1)
    heads = [_plain(head) for head in block.heads] or [""] * width
    rules = [":--" if column == 0 or column in block.words else "--:" for column in range(width)]
    lines = [f"**{_plain(block.title)}**", "", _line(heads), _line(rules)]
    for row in block.rows:
        texts = [_text(cell) for cell in row.cells]
        lines.append(_line([f"*{texts[0]}*", *texts[1:]] if row.heads else texts))
    return "\n".join([*lines, "", _plain(block.note)] if block.note else lines)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _text(cell: Cell) -> str:
    if cell.code and "`" not in cell.text and "|" not in cell.text:
        return f"`{cell.text}`"
    return f"**{_plain(cell.text)}**" if cell.strong else _plain(cell.text)


def _plain(text: str) -> str:
    """Return a text that Markdown shows as it is, in one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))
