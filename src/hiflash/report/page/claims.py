"""Claims beside what runs show: the part of a report that answers a paper."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hiflash.report.page.blocks import Block, Cell, Heading, Row, Sheet, Words
from hiflash.report.paper import claim_number

__all__ = ["Claim", "claim_blocks", "read_claims"]

ANCHOR = "claims"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim and what our runs say about it: `holds` is None if they cannot tell.

    `item` names the figure or table with the claim, `reading` the reading of the paper that it is about.
    """

    claim: str
    ours: str
    holds: bool | None
    why: str
    item: str = ""
    reading: str = ""

    @property
    def verdict(self) -> str:
        """Return the verdict in words."""
        return {True: "agrees", False: "does not agree", None: "cannot be told"}[self.holds]


def read_claims(told: Mapping[str, Any]) -> list[Claim]:
    """Return the claims of an item of the paper from its `paper.json`."""
    return [
        Claim(
            item=f"{told['item']} ({told['source']})",
            claim=str(claim["says"]),
            ours=f"{claim_number(claim, 'ours')} (paper: {claim_number(claim, 'paper')}): {claim['found']}",
            holds={True: True, False: False, None: None}[claim["holds"]],
            reading=str(claim["reading"]),
            why="" if claim["holds"] else str(claim["why"]),
        )
        for claim in told["claims"]
    ]


def claim_blocks(claims: Sequence[Claim]) -> list[Block]:
    """Return the part of a page about claims; empty without any."""
    if not claims:
        return []
    # A column that no claim fills is left out.
    columns = {
        "item": [claim.item for claim in claims],
        "claim": [claim.claim for claim in claims],
        "ours": [claim.ours for claim in claims],
        "verdict": [claim.verdict for claim in claims],
        "reading": [claim.reading for claim in claims],
        "why": [claim.why for claim in claims],
    }
    shown = {head: texts for head, texts in columns.items() if any(texts)}
    rows = [
        Row([Cell(text, strong=head == "verdict") for head, text in zip(shown, texts, strict=True)])
        for texts in zip(*shown.values(), strict=True)
    ]
    agree = sum(claim.holds is True for claim in claims)
    differ = sum(claim.holds is False for claim in claims)
    open_ = len(claims) - agree - differ
    told = f"{len(claims)} claims: our runs agree with {agree} and do not agree with {differ}."
    told += f" They cannot tell for {open_}." if open_ else ""
    sheet = Sheet("Claims and our results", list(shown), rows, words=frozenset(range(len(shown))))
    return [Heading("Claims", ANCHOR), Words(told), sheet]
