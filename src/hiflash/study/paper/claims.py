"""Claims of the paper: its words and number, and the rule that says from results whether they hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, Literal, TypeVar

__all__ = ["Claim", "Found", "Judgement", "judge", "on_balanced"]

Results = TypeVar("Results")
Whose = Literal["paper", "ours"]


@dataclass(frozen=True)
class Found:
    """What a rule found: the verdict, our number beside the paper's, and the numbers behind it in words.

    `holds` is None if the results cannot tell, such as a target that nobody reached within the budget.
    """

    holds: bool | None
    ours: float | None
    words: str


@dataclass(frozen=True)
class Claim(Generic[Results]):
    """A claim: a name, the paper's words and number (and its unit), the rule, and what is known about why.

    The rule is about the direction of a difference unless `says` names a bound; the size stands beside it.
    A claim `of` another one (`ITEM/NAME`) repeats it under another `reading` of what the paper leaves open.
    `whose` is "ours" if the paper does not make it, and we thought it worth a look.
    """

    name: str
    says: str
    rule: Callable[[Results], Found]
    paper: float | None = None
    unit: str = ""
    why: str = ""
    of: str = ""
    reading: str = ""
    whose: Whose = "paper"


@dataclass(frozen=True)
class Judgement:
    """A claim beside what was found."""

    name: str
    says: str
    holds: bool | None
    paper: float | None
    ours: float | None
    unit: str
    found: str
    why: str
    of: str = ""
    reading: str = ""
    whose: Whose = "paper"

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)


def on_balanced(name: str, partition: str) -> tuple[str, str]:
    """Return `of` and `reading` of a claim on a partition: on balanced shards it repeats that on random ones.

    >>> on_balanced("faster", "noniid1-balanced"), on_balanced("faster", "noniid1")
    (('faster_noniid1', 'balanced shards'), ('', ''))
    """
    plain = partition.removesuffix("-balanced")
    return ("", "") if plain == partition else (f"{name}_{plain}", "balanced shards")


def judge(claims: Sequence[Claim[Results]], results: Results) -> list[Judgement]:
    """Return the verdict on every claim."""
    return [_judged(claim, claim.rule(results)) for claim in claims]


def _judged(claim: Claim[Results], found: Found) -> Judgement:
    return Judgement(
        claim.name, claim.says, found.holds, claim.paper, found.ours, claim.unit, found.words, claim.why,
        claim.of, claim.reading, claim.whose,
    )  # fmt: skip
