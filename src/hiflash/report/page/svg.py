"""Figures as SVG: equal figures are equal bytes, and several can stand in one page."""

import re
from io import StringIO
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from hiflash.report.page.blocks import Drawing

__all__ = ["drawing"]

# Letters as outlines: the figure looks the same with any fonts. The salt replaces random identifiers.
_STYLE: Any = {"svg.fonttype": "path", "svg.hashsalt": "hiflash"}
_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))

_OUTSIDE = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->|<metadata>.*?</metadata>", re.DOTALL)
_NAMED = re.compile(r"""(\bid="|xlink:href="\#|url\(\#)""")
_BLANK = re.compile(r"\n\s*")
_PATH = re.compile(r"""(?<=\sd=")[^"]*""")
_FINE = re.compile(r"(\.\d\d)\d+")


def drawing(name: str, figure: Figure, caption: str) -> Drawing:
    """Return a figure for a page; its name must be the only such name there, because ids begin with it."""
    text = StringIO()
    with rc_context(_STYLE):
        figure.savefig(text, format="svg", metadata=_NO_METADATA)
    svg = _BLANK.sub("\n", _OUTSIDE.sub("", text.getvalue())).strip()
    # Ids are those of a whole HTML page: two figures would draw with each other's letters.
    svg = _NAMED.sub(rf"\g<1>{name}-", svg)
    # A hundredth of a point is not seen, and long runs have many thousands of points.
    svg = _PATH.sub(lambda path: _FINE.sub(r"\1", path[0]), svg)
    return Drawing(name, svg + "\n", figure.get_suptitle(), caption)
