"""Writes the pages of docs/results about the paper from finished items.

`python -m benchmarks.paper_pages runs/paper docs/results [--scale full]`: a page, figures and a JSON file for
every item that was run at the scale, and the table of all claims in `paper.md`, between its two marks. Items
that were not run here keep their numbers and get the words that the code has now.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hiflash.errors import ConfigError, HiFlashError
from hiflash.report.paper_pages import as_written, item_page, overview
from hiflash.store.files import write_atomic
from hiflash.study.paper.items import NAMES, load_item
from hiflash.study.paper.rows import numbers_digest
from hiflash.study.paper.rules import CLAIMS

WORDS = ("says", "why", "of", "reading", "whose")
START, END = "<!-- claims -->", "<!-- end of claims -->"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write all pages; nothing is written if one of them cannot be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--scale", default="full")
    given = parser.parse_args(arguments)
    try:
        found = write_pages(given.runs, given.results, given.scale)
    except HiFlashError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{found} of {len(NAMES)} items in {given.results}/paper.md")
    return 0


def write_pages(runs: Path, results: Path, scale: str) -> int:
    """Write the pages of all items that were run at a scale, and the table of all; return how many it has."""
    pages = results / "paper"
    split_page(results / "paper.md")
    new = {name: read_item(runs / name / scale / "paper.json") for name in NAMES}
    old = {name: reworded(read_item(pages / f"{name}.json")) for name in NAMES if not new[name]}
    old = {name: told if told.get("scale") == scale else {} for name, told in old.items()}
    shown = [told for name in NAMES if (told := new[name] or old[name])]
    for name, told in new.items():
        if told:
            write_item(told, runs / name / scale, pages)
    for name, told in old.items():
        if told:
            write_page(told, _figures_there(name, pages), pages)
    write_claims(shown, results / "paper.md")
    return len(shown)


def read_item(path: Path) -> dict[str, Any]:
    """Return a finished item from its JSON, empty if there is none; refuse one that is not as it ships."""
    if not path.is_file():
        return {}
    try:
        told: dict[str, Any] = json.loads(path.read_text())
        changed = told["changed"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read ({error!r}); run the item again") from error
    if changed:
        raise ConfigError(
            f"{path} is not of the item as it ships, it has {changed}; run it into another folder (--name)"
        )
    return told


def reworded(told: dict[str, Any]) -> dict[str, Any]:
    """Return a finished item with its numbers and the words that the code has now.

    A rule that changes gets a new name, so that no verdict stands beside the words of another rule. Claims
    that the code has no more are left out, and those that are new wait until the item is run again.
    """
    if not told:
        return told
    item = load_item(told["item"])
    now = {claim.name: claim for claim in CLAIMS.get(item.name, [])}
    claims = [
        {**claim, **{word: getattr(now[claim["name"]], word) for word in WORDS}} if now else claim
        for claim in told["claims"]
        if not now or claim["name"] in now
    ]
    judged = {claim["name"]: claim["holds"] for claim in claims}
    waiting = [claim.says for claim in now.values() if claim.name not in judged]
    return {
        **{key: value for key, value in told.items() if key != "waiting"},
        "title": item.title,
        "source": item.source,
        "differences": item.differences_at(told["scale"]),
        "holds": judged,
        "claims": claims,
        "digest": numbers_digest(told["rows"]),
        **({"waiting": waiting} if waiting else {}),
    }


def write_item(told: dict[str, Any], folder: Path, pages: Path) -> None:
    """Write the page of an item with its figures, and its JSON."""
    name = str(told["item"])
    figures = {}
    for path in load_item(name).figures_in(folder, told["scale"]):
        figures["-".join([name, *path.relative_to(folder).with_suffix("").parts]) + ".png"] = path
    for old in _figures_there(name, pages):
        if old not in figures:  # the item had other figures
            (pages / old).unlink()
    for new, path in figures.items():
        write_atomic(pages / new, path.read_bytes())
    write_page(told, list(figures), pages)


def write_page(told: dict[str, Any], figures: Sequence[str], pages: Path) -> None:
    """Write the page and the JSON of an item whose figures are there."""
    name = told["item"]
    page = item_page(told, figures).replace("`paper.json`", f"[{name}.json]({name}.json)")
    write_atomic(pages / f"{name}.md", page)
    write_atomic(pages / f"{name}.json", json.dumps(told) + "\n")


def split_page(path: Path) -> tuple[str, str]:
    """Return what stands before and after the table of claims; refuse a page without both marks."""
    text = path.read_text() if path.is_file() else ""
    if text.count(START) != 1 or text.count(END) != 1 or text.index(START) > text.index(END):
        raise ConfigError(f"{path} must have {START} and, after it, {END}, each once: the table goes between")
    return text[: text.index(START)], text[text.index(END) + len(END) :]


def _figures_there(name: str, pages: Path) -> list[str]:
    """Return the committed figures of an item, in its order."""
    order = load_item(name).figures
    others = tuple(f"{other}-" for other in _longer(name))
    own = [path for path in sorted(pages.glob(f"{name}-*.png")) if not path.name.startswith(others)]
    places = {
        path: [at for at, figure in enumerate(order) if path.stem.endswith(f"-{figure}")] for path in own
    }
    return [path.name for path in sorted(own, key=lambda path: places[path] or [len(order)])]


def _longer(name: str) -> list[str]:
    """Return the items whose names begin with this one: their figures do too."""
    return [other for other in NAMES if other.startswith(f"{name}-")]


def write_claims(items: list[dict[str, Any]], path: Path) -> None:
    """Put the table of all claims between the marks of the page."""
    before, after = split_page(path)
    claims = [claim for told in items for claim in as_written(told) if claim["whose"] == "paper"]
    hold, differ = (sum(claim["holds"] is holds for claim in claims) for holds in (True, False))
    unknown = len(claims) - hold - differ
    words = f"{len(claims)} claims, as written: {hold} hold, {differ} do not, {unknown} cannot be told."
    if missing := [name for name in NAMES if name not in {told["item"] for told in items}]:
        words += f" Not run yet at this scale, and not counted: {', '.join(missing)}."
    if waiting := {told["item"]: len(told["waiting"]) for told in items if told.get("waiting")}:
        told_of = ", ".join(f"{count} of {name}" for name, count in waiting.items())
        words += f" Newer than their runs, and not counted: {told_of}."
    table = "\n".join(overview(items, "paper/{item}.md"))
    write_atomic(path, f"{before}{START}\n\n{words}\n\n{table}\n\n{END}{after}")


if __name__ == "__main__":
    sys.exit(main())
