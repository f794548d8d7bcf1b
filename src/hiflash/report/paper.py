"""An item of the paper as a table for the terminal and as Markdown: claim, paper, ours, verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from rich.table import Table
from rich.text import Text

from hiflash.report.grid import new_table

__all__ = ["item_markdown", "item_table", "verdict_words"]

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
        table.add_row(claim["says"], _number(claim, "paper"), _number(claim, "ours"), verdict, claim["found"])
    return table


def item_markdown(told: Mapping[str, Any]) -> str:
    """Return the same as Markdown, with what differs from the paper and why claims may not hold."""
    lines = [f"# {told['title']}", "", f"`{told['command']}`; {told['source']} of the paper.", ""]
    if told["changed"]:
        lines += [f"**Changed settings:** {told['changed']}. This is not the item as it ships.", ""]
    lines += [f"- {difference}" for difference in told["differences"]]
    lines += [
        "",
        "| Claim | Paper | Ours | Verdict | Found | Why |",
        "| --- | ---: | ---: | --- | --- | --- |",
    ]
    for claim in told["claims"]:
        cells = (claim["says"], _number(claim, "paper"), _number(claim, "ours"),
                 verdict_words(claim["holds"]), claim["found"],
                 "" if claim["holds"] else claim["why"])  # fmt: skip
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _number(claim: Mapping[str, Any], name: str) -> str:
    value, unit = claim[name], claim["unit"]
    if value is None:
        return "-"
    if unit == "percent":
        return f"{value:+.1f} %"
    if unit == "points":
        return f"{value:+.1f}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
