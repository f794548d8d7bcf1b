"""Items of the paper on a page: what was run, a verdict on every claim, figures and numbers."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hiflash.report.page.blocks import Block, Cell, Heading, Items, Listing, Picture, Row, Sheet, Words
from hiflash.report.page.claims import Claim, claim_sheet, counted, read_claims
from hiflash.report.page.makers import maker_words
from hiflash.report.paper import caption
from hiflash.report.units import duration

__all__ = ["ShownItem", "item_blocks", "items_words", "read_item"]

MOST_ROWS = 40
"""Rows of numbers that are shown as a table; more are in the figure alone."""


@dataclass(frozen=True)
class ShownItem:
    """An item of the paper from its `paper.json`, with its figures (PNG) by name."""

    path: str
    name: str
    title: str
    source: str
    scale: str
    command: str
    changed: Mapping[str, Any]
    differences: Sequence[str]
    claims: Sequence[Claim]
    rows: Sequence[Mapping[str, Any]]
    made: str
    figures: Mapping[str, bytes]

    def to_dict(self) -> dict[str, Any]:
        """Return what the command prints as JSON."""
        names = ("path", "title", "source", "scale", "command")
        return {
            "item": self.name,
            **{name: getattr(self, name) for name in names},
            "changed": dict(self.changed),
            "differences": list(self.differences),
        }


def read_item(told: Mapping[str, Any], path: str, figures: Mapping[str, bytes]) -> ShownItem:
    """Return an item from its `paper.json`; raise what is usual if that is none."""
    rows = [dict(row) for row in told["rows"]]
    wall_s, runs = told["wall_s"], len(told["runs"])
    by = f"Made by {runs} {'run' if runs == 1 else 'runs'}" if runs else "Made"
    took = "" if wall_s is None else f" in {duration(float(wall_s))}{' of wall time' * (runs > 0)}"
    return ShownItem(
        path,
        str(told["item"]),
        str(told["title"]),
        str(told["source"]),
        str(told["scale"]),
        str(told["command"]),
        dict(told["changed"]),
        [str(each) for each in told["differences"]],
        read_claims(told),
        rows,
        f"{by}{took} with {maker_words(told['made_by'])}. The digest of its numbers is {told['digest']}.",
        figures,
    )


def items_words(items: Sequence[ShownItem]) -> list[Block]:
    """Return how many claims hold: a sentence for every scale, and one for items with changed settings."""
    groups: dict[str, list[Claim]] = {}
    for item in items:
        how = "of items with changed settings" if item.changed else f"as written, at {item.scale} scale"
        groups.setdefault(how, []).extend(item.claims)
    return [Words(counted(claims, how)) for how, claims in groups.items()]


def item_blocks(item: ShownItem, number: int, drawn: Collection[str] = ()) -> list[Block]:
    """Return the part of a page about an item; figures that are `drawn` elsewhere on it are left out."""
    anchor = f"item-{number}"
    heading = Heading(f"{item.name} ({item.source}), {item.scale} scale", anchor, 3)
    blocks: list[Block] = [heading, Words(f"{item.title}. {item.made}")]
    blocks.append(Listing("The command:", f"{item.command}\n", "sh", folded=False))
    if item.changed:
        lines = [f"{key} = {value}" for key, value in item.changed.items()]
        blocks.append(Items("Changed: this is not the item as it ships", lines, warning=True))
    if item.differences:
        blocks.append(Items("Not as in the paper", item.differences))
    blocks += claim_sheet(item.claims, f"Claims of {item.name} and our results", with_items=False)
    for name, png in item.figures.items():
        if name not in drawn:
            told = caption(name, item.title)
            blocks.append(Picture(f"{anchor}-{name.replace('/', '-')}", png, f"{item.name}: {told}", told))
    return [*blocks, *_numbers(item)]


def _numbers(item: ShownItem) -> list[Block]:
    """Return the numbers of an item that has no runs; those of runs are in the part of their study."""
    if not item.rows or "best_accuracy" in item.rows[0]:
        return []
    if len(item.rows) > MOST_ROWS:
        return [Words(f"{item.path}/paper.json has {len(item.rows):,} rows of numbers.")]
    heads = [name for name, value in item.rows[0].items() if not isinstance(value, list | dict)]
    if len(heads) < 2:  # what it is about is in lists
        return []
    rows = [Row([Cell(_text(row.get(name))) for name in heads]) for row in item.rows]
    return [Sheet(f"Numbers of {item.name}", [head.replace("_", " ") for head in heads], rows)]


def _text(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
