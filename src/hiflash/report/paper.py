"""An item of the paper as a table for the terminal: claim, paper, ours, verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from rich.table import Table
from rich.text import Text

from hiflash.report.grid import new_table
from hiflash.report.paper_words import in_words

__all__ = ["caption", "claim_number", "claim_words", "item_table", "verdict_words"]

CAPTIONS = {
    "methods": "The paper's methods: the test metric of the cloud's model. Dashed: pooled training, its end.",
    "compare": "Every label: the test metric of the cloud's model.",
    "needs": "Communications until targets were reached; a target without a dot was not.",
    "tradeoff": "Accuracies, and the communications until they were reached.",
    "latency": "Response latency and waiting time of every method.",
    "zoom": "Every label in the upper range of accuracy, with its seeds.",
    "curves": "Accuracy over communications for every alpha and upsilon.",
    "maps": "What the claims about alpha and upsilon are about.",
    "shards": "What runs needed on random and on balanced shards.",
    "costs": "System cost until the target: computing, sending and time.",
    "settings": "What runs needed under other settings (filled), and their forecasts (open).",
    "js": "Accuracy over the total JS divergence of the edges.",
    "lambda": "Total JS divergence and response latency over lambda, means over seeds.",
    "weights": "Agents that were trained for other weights of the cost.",
    "thresholds": "What the agent grants and refuses while it learns.",
    "theory": "The loss of runs, and the bounds of the theory.",
}
"""What the figures of items show, by the end of their names."""
STYLES = {True: "green", False: "red", None: "yellow"}


def verdict_words(holds: bool | None) -> str:
    """Return a verdict in words.

    >>> [verdict_words(holds) for holds in (True, False, None)]
    ['holds', 'does not', 'cannot tell']
    """
    return {True: "holds", False: "does not", None: "cannot tell"}[holds]


def claim_words(claim: Mapping[str, Any]) -> str:
    """Return what a claim says in words, and whether it is not the paper's.

    >>> claim_words({"says": "hifl is above hierfavg", "whose": "ours"})
    'HiFL is above HierFAVG (not in the paper)'
    """
    return in_words(claim["says"]) + (" (not in the paper)" if claim["whose"] == "ours" else "")


def caption(figure: str, title: str) -> str:
    """Return what a figure of an item shows; the item's title if its name is not known.

    >>> caption("runs/edge-iid-zoom.png", "Edge-IID"), caption("mine.png", "Edge-IID")
    ('Every label in the upper range of accuracy, with its seeds.', 'Edge-IID.')
    """
    stem = figure.removesuffix(".png").replace("/", "-").rpartition("-")[2]
    return CAPTIONS.get(stem, f"{title}.")


def item_table(item: Mapping[str, Any]) -> Table:
    """Return a table with a row per claim of an item (`Reproduction.to_json`)."""
    table = new_table(f"{item['title']} ({item['source']}), {item['scale']}", " ".join(item["differences"]))
    for head in ("claim", "paper", "ours", "verdict", "found"):
        side: Literal["left", "right"] = "right" if head in ("paper", "ours") else "left"
        table.add_column(head, justify=side, overflow="fold")
    for claim in item["claims"]:
        verdict = Text(verdict_words(claim["holds"]), style=STYLES[claim["holds"]])
        told = (claim_words(claim), claim_number(claim, "paper"), claim_number(claim, "ours"))
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
