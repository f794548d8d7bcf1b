"""An item of the paper as a table for the terminal: claim, paper, ours, verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from rich.table import Table
from rich.text import Text

from hiflash.report.grid import new_table

__all__ = ["claim_number", "item_table", "verdict_words"]

STYLES = {True: "green", False: "red", None: "yellow"}


def verdict_words(holds: bool | None) -> str:
    """Return a verdict in words.

    >>> [verdict_words(holds) for holds in (True, False, None)]
    ['holds', 'does not', 'cannot tell']
    """
    return {True: "holds", False: "does not", None: "cannot tell"}[holds]


def item_table(told: Mapping[str, Any]) -> Table:
    """Return a table with a row per claim of an item (`Reproduction.to_json`)."""
    table = new_table(f"{told['title']} ({told['source']}), {told['scale']}", " ".join(told["differences"]))
    for head in ("claim", "paper", "ours", "verdict", "found"):
        side: Literal["left", "right"] = "right" if head in ("paper", "ours") else "left"
        table.add_column(head, justify=side, overflow="fold")
    for claim in told["claims"]:
        verdict = Text(verdict_words(claim["holds"]), style=STYLES[claim["holds"]])
        table.add_row(
            claim["says"], claim_number(claim, "paper"), claim_number(claim, "ours"), verdict, claim["found"]
        )
    return table


def claim_number(claim: Mapping[str, Any], name: str) -> str:
    """Return the number of the paper (`paper`) or ours (`ours`) in the unit of the claim.

    >>> claim_number({"ours": -31.94, "unit": "percent"}, "ours"), claim_number({"ours": None}, "ours")
    ('-31.9 %', '-')
    >>> claim_number({"ours": 28.79, "unit": "ms"}, "ours")
    '28.8 ms'
    """
    value = claim[name]
    if value is None:
        return "-"
    unit = claim["unit"]
    if unit == "percent":
        return f"{value:+.1f} %"
    if unit == "points":
        return f"{value:+.1f} points"
    number = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{number} {unit}".rstrip()
