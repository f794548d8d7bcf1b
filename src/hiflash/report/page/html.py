"""A page as one HTML file: style and figures inside, no script, nothing from the network."""

import re
from base64 import b64encode
from collections.abc import Sequence
from functools import singledispatch
from html import escape
from importlib.resources import files

from hiflash.report.page.blocks import (
    Block,
    Cell,
    Drawing,
    Heading,
    Items,
    Listing,
    Page,
    Picture,
    Row,
    Sheet,
    Words,
)
from hiflash.report.page.png import shown_size

__all__ = ["to_html"]

_SIZE = re.compile(r'<svg\b[^>]*?\bwidth="([0-9.]+)pt"[^>]*>')
_BOX = re.compile(r'\bviewBox="[^"]*"')
_PX_PER_PT = 96 / 72
_LEAST = 0.68
"""On a narrow screen a figure shrinks to this share of its size and then scrolls: letters stay readable."""


def to_html(page: Page) -> str:
    """Return a page as HTML; the same page gives the same bytes."""
    style = files("hiflash.report.page").joinpath("page.css").read_text("utf-8")
    body = "\n".join(_written(block) for block in page.blocks)
    footer = "\n".join(f"<p>{escape(line)}</p>" for line in page.footer)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(page.title)}</title>
<style>
{style}</style>
</head>
<body>
<header>
<h1>{escape(page.title)}</h1>
<p>{escape(page.about)}</p>
</header>
{_contents(page.blocks)}<main>
{body}
</main>
<footer>
{footer}
</footer>
</body>
</html>
"""


def _contents(blocks: Sequence[Block]) -> str:
    """Return links to the parts of the page, if there are several."""
    heads = [block for block in blocks if isinstance(block, Heading) and block.level == 2]
    if len(heads) < 2:
        return ""
    links = "\n".join(f'<li><a href="#{head.anchor}">{escape(head.text)}</a></li>' for head in heads)
    return f'<nav aria-label="Contents">\n<ul>\n{links}\n</ul>\n</nav>\n'


@singledispatch
def _written(block: Block) -> str:
    raise TypeError(f"no HTML for {type(block).__name__}")


@_written.register
def _(block: Heading) -> str:
    return f'<h{block.level} id="{block.anchor}">{escape(block.text)}</h{block.level}>'


@_written.register
def _(block: Words) -> str:
    return f"<p>{escape(block.text)}</p>"


@_written.register
def _(block: Items) -> str:
    items = "\n".join(f"<li>{escape(item)}</li>" for item in block.items)
    kind = ' class="warning" role="note"' if block.warning else ""
    return f"<div{kind}>\n<p><strong>{escape(block.title)}</strong></p>\n<ul>\n{items}\n</ul>\n</div>"


@_written.register
def _(block: Listing) -> str:
    # A box that scrolls must be in the order of the Tab key.
    text = f'<pre tabindex="0" role="group" aria-label="{escape(block.title)}">{escape(block.text)}</pre>'
    if not block.folded:
        return f"<p>{escape(block.title)}</p>\n{text}"
    return f"<details>\n<summary>{escape(block.title)}</summary>\n{text}\n</details>"


@_written.register
def _(block: Drawing) -> str:
    size = _SIZE.search(block.svg)
    if size is None:
        raise ValueError(f"the figure {block.name} has no width in points")
    width, box = float(size[1]) * _PX_PER_PT, _BOX.search(size[0])
    start = (
        f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" {box[0] if box else ""} role="img" '
        f'aria-label="{escape(block.about)}" '
        f'style="width:100%;max-width:{width:.0f}px;min-width:{_LEAST * width:.0f}px">'
    )
    return _figure(f"{start}{block.svg[size.end() :]}", block)


@_written.register
def _(block: Picture) -> str:
    width, height = shown_size(block.png)
    source = f"data:image/png;base64,{b64encode(block.png).decode()}"
    return _figure(
        f'<img src="{source}" alt="{escape(block.about)}" width="{width:.0f}" height="{height:.0f}" '
        f'style="width:100%;max-width:{width:.0f}px;min-width:{_LEAST * width:.0f}px">\n',
        block,
    )


def _figure(inside: str, block: Drawing | Picture) -> str:
    caption = f"<figcaption>{escape(block.caption)}</figcaption>"
    about = escape(f"Figure: {block.about}")
    card = f'<div class="card" tabindex="0" role="group" aria-label="{about}">'
    return f"<figure>\n{card}\n{inside}</div>\n{caption}\n</figure>"


@_written.register
def _(block: Sheet) -> str:
    head = ""
    if block.heads:
        names = (
            f'<th scope="col"{_kind(n, block)}>{escape(name)}</th>' for n, name in enumerate(block.heads)
        )
        head = f"<thead>\n<tr>{''.join(names)}</tr>\n</thead>\n"
    rows = "\n".join(_row(row, block) for row in block.rows)
    note = f'\n<p class="note">{escape(block.note)}</p>' if block.note else ""
    title = escape(block.title)
    # The title is outside of the box that scrolls: a caption would scroll out of sight.
    return (
        f'<p class="title">{title}</p>\n<div class="scroll" tabindex="0" role="group" aria-label="{title}">\n'
        f'<table aria-label="{title}">\n{head}<tbody>\n{rows}\n</tbody>\n</table>\n</div>{note}'
    )


def _row(row: Row, sheet: Sheet) -> str:
    if row.heads:
        name = escape(row.cells[0].text)
        return f'<tr class="heads"><th scope="row" colspan="{len(row.cells)}">{name}</th></tr>'
    first, *others = row.cells
    name = f'<th scope="row"{_kind(0, sheet)}>{_text(first)}</th>'
    cells = "".join(f"<td{_kind(n, sheet)}>{_text(cell)}</td>" for n, cell in enumerate(others, 1))
    return f"<tr>{name}{cells}</tr>"


def _kind(column: int, sheet: Sheet) -> str:
    return ' class="words"' if column in sheet.words else ""


def _text(cell: Cell) -> str:
    text = escape(cell.text)
    text = f"<code>{text}</code>" if cell.code else text
    return f"<strong>{text}</strong>" if cell.strong else text
