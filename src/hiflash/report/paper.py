"""An item of the paper as a table for the terminal: claim, paper, ours, verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from rich.table import Table
from rich.text import Text

from hiflash.report.grid import new_table
from hiflash.report.paper_words import in_words

__all__ = ["claim_number", "item_table", "verdict_words"]

STYLES = {True: "green", False: "red", None: "yellow"}


def verdict_words(holds: bool | None) -> str:
    """Return a verdict in words.

    >>> [verdict_words(holds) for holds in (True, False, None)]
    ['holds', 'does not', 'cannot tell']
    """
    return {True: "holds", False: "does not", None: "cannot tell"}[holds]


def item_table(item: Mapping[str, Any]) -> Table:
    """Return a table with a row per claim of an item (`Reproduction.to_json`)."""
    table = new_table(f"{item['title']} ({item['source']}), {item['scale']}", " ".join(item["differences"]))
    for head in ("claim", "paper", "ours", "verdict", "found"):
        side: Literal["left", "right"] = "right" if head in ("paper", "ours") else "left"
        table.add_column(head, justify=side, overflow="fold")
    for claim in item["claims"]:
        verdict = Text(verdict_words(claim["holds"]), style=STYLES[claim["holds"]])
        told = (in_words(claim["says"]), claim_number(claim, "paper"), claim_number(claim, "ours"))
        table.add_row(*told, verdict, in_words(claim["found"]))
    return table


def claim_number(claim: Mapping[str, Any], name: str) -> str:
    """Return the number of the paper (`paper`) or ours (`ours`) in the unit of the claim.

    >>> claim_number({"ours": -31.94, "unit": "percent"}, "ours"), claim_number({"ours": None}, "ours")
    ('-31.9 %', '-')
    >>> claim_number({"ours": 28.79, "unit": "ms"}, "ours")
    '28.8 ms'
    >>> [claim_number({"ours": 0.186, "unit": unit}, "ours") for unit in ("ratio", "edges", "correlation")]
    ['18.6 %', '+0.19 edges', 'rank correlation 0.19']
    """
    value = claim[name]
    if value is None:
        return "-"
    unit = claim["unit"]
    if unit in UNITS:
        return UNITS[unit](value)
    number = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{number} {unit}".rstrip()


def _signed(value: float, digits: int = 1) -> str:
    """Return a difference with its sign; what rounds to zero has none."""
    return f"{value:+.{digits}f}" if round(value, digits) else f"{0:.{digits}f}"


def _plain(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


UNITS: Mapping[str, Callable[[float], str]] = {
    "percent": lambda value: f"{_signed(value)} %",
    "points": lambda value: f"{_signed(value)} points",
    "ratio": lambda value: f"{100 * value:.1f} %",
    "thresholds": _plain,  # the claim says of what
    "edges": lambda value: f"{_signed(value, 2)} edges",
    "correlation": lambda value: f"rank correlation {_plain(value)}",
    "% in order": lambda value: "all in order" if value == 100 else f"{value:.0f} % in order",
    "% of them": lambda value: "all of them" if value == 100 else f"{value:.0f} % of them",
}
"""How a number with a unit reads; other units follow the number."""
