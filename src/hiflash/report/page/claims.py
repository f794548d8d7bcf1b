"""Claims beside what runs show: the part of a report that answers a paper."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hiflash.report.page.blocks import Block, Cell, Heading, Row, Sheet, Words
from hiflash.report.paper import claim_number, claim_words
from hiflash.report.paper_words import in_words

__all__ = ["Claim", "claim_blocks", "claim_sheet", "counted", "read_claims"]

ANCHOR = "claims"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim and what our runs say about it: `holds` is None if they cannot tell.

    `item` names the figure or table with the claim, `reading` the reading of the paper that it is about. `of`
    names the claim that a reading repeats, `whose` is "ours" if the paper does not make it: such claims are
    shown, and do not count as claims of the paper.
    """

    claim: str
    ours: str
    holds: bool | None
    why: str
    item: str = ""
    reading: str = ""
    of: str = ""
    whose: Literal["paper", "ours"] = "paper"

    @property
    def verdict(self) -> str:
        """Return the verdict in words."""
        return {True: "agrees", False: "does not agree", None: "cannot be told"}[self.holds]


def read_claims(told: Mapping[str, Any]) -> list[Claim]:
    """Return the claims of an item of the paper from its `paper.json`, each before its readings."""
    claims = sorted(told["claims"], key=_after([str(claim["name"]) for claim in told["claims"]]))
    return [
        Claim(
            item=f"{told['item']} ({told['source']})",
            claim=claim_words(claim),
            ours=_ours(claim),
            holds={True: True, False: False, None: None}[claim["holds"]],
            reading=in_words(claim["reading"]),
            why="" if claim["holds"] else in_words(claim["why"]),
            of=str(claim["of"]),
            whose=claim["whose"],
        )
        for claim in claims
    ]


def claim_blocks(claims: Sequence[Claim], of_items: Sequence[Block] = ()) -> list[Block]:
    """Return the part of a page about claims: how many hold, and their table; empty without any.

    `of_items` says how many claims of the paper's items hold; their tables follow.
    """
    if not claims and not of_items:
        return []
    told: list[Block] = [Words(counted(claims))] if claims else []
    return [Heading("Claims", ANCHOR), *told, *claim_sheet(claims, "Claims and our results"), *of_items]


def counted(claims: Sequence[Claim], how: str = "") -> str:
    """Return how many claims of a paper hold, in words; their readings do not count, nor claims of ours.

    >>> one = Claim(claim="a", ours="1", holds=True, why="")
    >>> counted([one, Claim(claim="b", ours="2", holds=None, why="", of="a")], "as written")
    '1 claim as written: our runs agree with 1 and do not agree with 0. 1 other reading stands beside it.'
    """
    written = [claim for claim in claims if not claim.of]
    own = [claim for claim in written if claim.whose == "paper"]
    agree, differ = (sum(claim.holds is holds for claim in own) for holds in (True, False))
    open_, readings, beside = len(own) - agree - differ, len(claims) - len(written), len(written) - len(own)
    what = f"{len(own)} {'claim' if len(own) == 1 else 'claims'}{f' {how}' if how else ''}"
    told = f"{what}: our runs agree with {agree} and do not agree with {differ}."
    told += f" They cannot tell for {open_}." if open_ else ""
    if readings:
        told += f" {readings} other {'reading stands' if readings == 1 else 'readings stand'} beside "
        told += "it." if len(own) == 1 else "them."
    if beside:
        told += f" {beside} {'claim is' if beside == 1 else 'claims are'} not in the paper, and not counted."
    return told


def claim_sheet(claims: Sequence[Claim], title: str, with_items: bool = True) -> list[Block]:
    """Return a table with a row per claim; none without claims."""
    if not claims:
        return []
    # A column that no claim fills is left out.
    columns = {
        "item": [claim.item if with_items else "" for claim in claims],
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
    return [Sheet(title, list(shown), rows, words=frozenset(range(len(shown))))]


def _after(names: Sequence[str]) -> Callable[[Mapping[str, Any]], int]:
    """Return the place of a claim: a reading stands with its claim, one of another item's claim last."""

    def place(claim: Mapping[str, Any]) -> int:
        home = str(claim["of"] or claim["name"])
        return names.index(home) if home in names else len(names)

    return place


def _ours(claim: Mapping[str, Any]) -> str:
    """Return what was found, with our number and the paper's where there are such numbers."""
    paper = "" if claim["paper"] is None else f" (paper: {claim_number(claim, 'paper')})"
    if claim["ours"] is None:
        return f"{in_words(claim['found'])}{paper}"
    return f"{claim_number(claim, 'ours')}{paper}: {in_words(claim['found'])}"
