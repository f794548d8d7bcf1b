"""Items of the paper as Markdown: a page for each, and one table with every claim and its readings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hiflash.report.measures import MEASURES
from hiflash.report.page.makers import maker_words
from hiflash.report.paper import caption, claim_number, claim_words, verdict_words
from hiflash.report.paper_words import in_words, label_words, part_title
from hiflash.report.units import duration, goal

__all__ = ["as_written", "item_page", "overview"]

Told = Mapping[str, Any]
TAKEN = ("communications", "client_steps", "virtual_s", "total_cost")
HEADS = ("Paper", "Ours", "Verdict", "Found", "Why")
LAST_FIVE = (
    "In claims, an accuracy is the mean of the last five evaluations up to there, unless it is the best of a "
    "run; a final accuracy in a table is that of the last evaluation."
)


def item_page(told: Told, figures: Sequence[str] = ()) -> str:
    """Return the page of an item (`Reproduction.to_json`): claims, figures, numbers, and how it was made."""
    lines = [f"# {told['title']}", "", f"`{told['command']}`; {told['source']} of the paper.", ""]
    if told["changed"]:
        lines += [f"**Changed settings:** {told['changed']}. This is not the item as it ships.", ""]
    lines += [f"- {difference}" for difference in told["differences"]]
    written = as_written(told)
    if written:
        lines += [
            "",
            *_sheet(["Claim", *HEADS], [(claim_words(each), *_claim_cells(each)) for each in written], 1),
        ]
    if waiting := told.get("waiting"):
        lines += ["", f"Newer than these runs, and not judged yet: {'; '.join(map(in_words, waiting))}."]
    for figure in figures:
        lines += ["", f"![{caption(figure, told['title'])}]({figure})"]
    lines += _readings(told)
    lines += _numbers(told)
    if any(claim["unit"] == "points" for claim in told["claims"]):
        lines += ["", LAST_FIVE]
    lines += ["", _made(told)]
    return "\n".join(lines) + "\n"


def overview(items: Sequence[Told], page: str = "{item}.md") -> list[str]:
    """Return the lines of a table with a row per claim of the paper: ours as written, and other readings.

    A reading is a claim that repeats another one; `page` is where an item's page is. What the paper does not
    claim, and we looked at, is in a table of its own below.
    """
    readings: dict[str, list[Mapping[str, Any]]] = {}
    for told in items:
        for claim in told["claims"]:
            if claim["of"]:
                home = claim["of"] if "/" in claim["of"] else f"{told['item']}/{claim['of']}"
                readings.setdefault(home, []).append(claim)
    rows: dict[str, list[tuple[str, ...]]] = {"paper": [], "ours": []}
    for told in items:
        for claim in as_written(told):
            rows[claim["whose"]].append(
                (
                    f"[{told['item']}]({page.format(item=told['item'])})",
                    in_words(claim["says"]),
                    claim_number(claim, "paper"),
                    verdict_words(claim["holds"]),
                    _ours(claim),
                    _under(readings.get(f"{told['item']}/{claim['name']}", [])),
                    _why(claim),
                )
            )
    heads = ["Item", "Claim", "Paper", "As written", "Ours", "Other readings", "Why"]
    beside = [(*row[:2], *row[3:]) for row in rows["ours"]]
    own = [
        "",
        "Not claims of the paper, but worth a look:",
        "",
        *_sheet([*heads[:2], *heads[3:]], beside, 0, 0),
    ]
    return [*_sheet(heads, rows["paper"], 2, 1), *(own if beside else [])]


def as_written(told: Told) -> list[Mapping[str, Any]]:
    """Return the claims of an item that repeat no other one."""
    return [claim for claim in told["claims"] if not claim["of"]]


def _ours(claim: Mapping[str, Any]) -> str:
    """Return our number and what is behind it, and the number once if the words have it too."""
    number, found = claim_number(claim, "ours"), in_words(claim["found"])
    told = " " in number and re.search(rf"(?<![\d.,+-]){re.escape(number)}(?!\w)", found)
    return found if claim["ours"] is None or told else f"{number} ({found})"


def _under(readings: Sequence[Mapping[str, Any]]) -> str:
    """Return in which readings a claim holds, and in which not."""
    told = []
    for words, holds in (("holds", True), ("does not", False), ("cannot tell", None)):
        own = [reading for reading in readings if reading["holds"] is holds]
        names = [f"{in_words(each['reading'])}{_number(each)}" for each in own]
        told += [f"{words}: {', '.join(dict.fromkeys(names))}"] if names else []
    return "; ".join(told)


def _number(reading: Mapping[str, Any]) -> str:
    return "" if reading["ours"] is None else f" ({claim_number(reading, 'ours')})"


def _readings(told: Told) -> list[str]:
    """Return a table of the claims under other readings. "The same" is what they repeat, in its words."""
    homes = {claim["name"]: claim for claim in told["claims"]}
    rows = [
        (
            claim_words(homes.get(claim["of"], claim) if claim["says"].startswith("the same") else claim),
            in_words(claim["reading"]),
            *_claim_cells(claim),
        )
        for claim in told["claims"]
        if claim["of"]
    ]
    if not rows:
        return []
    return [
        "",
        "## Other readings of what the paper leaves open",
        "",
        *_sheet(["Claim", "Reading", *HEADS], rows, 2),
    ]


def _claim_cells(claim: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        claim_number(claim, "paper"), claim_number(claim, "ours"), verdict_words(claim["holds"]),
        in_words(claim["found"]), _why(claim),
    )  # fmt: skip


def _why(claim: Mapping[str, Any]) -> str:
    return "" if claim["holds"] else in_words(claim["why"])


def _numbers(told: Told) -> list[str]:
    """Return a table per partition of what the labels took and where they ended; nothing without runs."""
    parts = dict.fromkeys(row["partition"] for row in told["rows"] if "best_accuracy" in row)
    lines: list[str] = []
    for part in parts:
        rows = [row for row in told["rows"] if row["partition"] == part]
        columns = {head: [show(row) for row in rows] for head, show in _columns(rows).items()}
        known = {head: cells for head, cells in columns.items() if set(cells) != {"-"}}
        cells = zip((label_words(row["label"]) for row in rows), *known.values(), strict=True)
        lines += ["", f"## {part_title(part)}", "", *_sheet(["Method", *known], cells, 1, len(known))]
    return lines


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the columns: what a cell has, by its head."""
    heads: dict[str, Any] = {}
    for place, each in enumerate(rows[0]["to"]):
        heads[f"comms to {goal(each['target'])}"] = lambda row, at=place: _count(row["to"][at])
    if rows[0]["target"] is not None and not rows[0]["to"]:
        heads[f"comms to {goal(rows[0]['target'])}"] = _count
    if rows[0]["target"] is not None:
        heads[f"stable at {goal(rows[0]['target'])}"] = lambda row: _value(row["stable_communications"])
        for name in TAKEN[1:]:
            heads[f"{MEASURES[name].words} to {goal(rows[0]['target'])}"] = lambda row, name=name: _value(
                row[name], name
            )
    if any(row.get("forecast") for row in rows):
        heads["comms, forecast"] = lambda row: _value((row["forecast"] or {}).get("communications"))
    for name, head in (("accuracy", "final accuracy"), ("best_accuracy", "best")):
        heads[head] = lambda row, name=name: "-" if row[name] is None else f"{100 * row[name]:.1f} %"
    if rows[0]["target"] is None and not rows[0]["to"] and all(row["total_js"] is not None for row in rows):
        heads["total JS"] = lambda row: f"{row['total_js']:.2f}"
    if all(row["accuracy"] is None for row in rows):  # nothing was trained
        heads["response latency"] = lambda row: f"{row['response_latency_ms']:.1f} ms"
        heads["waiting"] = lambda row: f"{row['waiting_ms']:.1f} ms"
    heads["seeds"] = lambda row: str(row["seeds"])
    return heads


def _count(found: Mapping[str, Any]) -> str:
    """Return communications with their range over seeds."""
    value, spread = found["communications"], found["communications_range"]
    if value is None:
        return "not reached"
    return f"{value:,.0f}" if spread[0] == spread[1] else f"{value:,.0f} ({spread[0]:,.0f}-{spread[1]:,.0f})"


def _value(value: float | None, name: str = "") -> str:
    if value is None:
        return "-"
    return f"{value:,.0f} s" if name == "virtual_s" else f"{value:,.0f}"


def _made(told: Told) -> str:
    """Return how the numbers were made, in a sentence or two. Seconds that nobody kept are not told."""
    runs, took = len(told["runs"]), told["wall_s"]
    with_what = f"with {maker_words(told['made_by'])}"
    digest = f"The digest of these numbers is `{told['digest']}`"
    if not runs:
        return f"Made in {duration(took)} {with_what}. {digest}."
    kind = "training" if any("episode" in row for row in told["rows"]) else "run"
    made = f"one {kind}" if runs == 1 else f"{runs} {kind}s"
    time = "" if took is None else f"{duration(took)} in all, "
    return f"Made by {made}, {time}{with_what}. {digest}; `paper.json` has those of all {kind}s."


def _sheet(heads: Sequence[str], rows: Any, first: int, numbers: int = 2) -> list[str]:
    """Return a Markdown table; so many columns from `first` on are numbers, aligned right."""
    marks = ["---:" if first <= at < first + numbers else "---" for at in range(len(heads))]
    lines = [_line(heads), _line(marks)]
    return [*lines, *(_line([str(cell).replace("|", "\\|") for cell in row]) for row in rows)]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
