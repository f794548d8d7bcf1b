"""Writes the pages of docs/results about the paper from finished items.

`python -m benchmarks.paper_pages runs/paper docs/results [--scale full]`: a page, figures and a JSON file for
every item that was run at the scale, and the table of all claims in `paper.md`, between its two marks.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from hiflash.report.paper_pages import as_written, item_page, overview
from hiflash.study.paper.items import NAMES, load_item

START, END = "<!-- claims -->", "<!-- end of claims -->"


def main() -> None:
    """Write all pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--scale", default="full")
    given = parser.parse_args()
    pages = given.results / "paper"
    pages.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        folder = given.runs / name / given.scale
        if (folder / "paper.json").is_file():
            write_item(name, folder, pages)
    told = [
        json.loads((pages / f"{name}.json").read_text())
        for name in NAMES
        if (pages / f"{name}.json").is_file()
    ]
    write_claims(told, given.results / "paper.md")
    print(f"{len(told)} of {len(NAMES)} items in {given.results}/paper.md")


def write_item(name: str, folder: Path, pages: Path) -> None:
    """Write the page of an item with its figures, and its JSON."""
    told: dict[str, Any] = json.loads((folder / "paper.json").read_text())
    figures = [path for stem in load_item(name).figures for path in sorted(folder.rglob(f"{stem}.png"))]
    names = ["-".join([name, *path.relative_to(folder).with_suffix("").parts]) + ".png" for path in figures]
    for path in pages.glob(f"{name}-*.png"):  # of an item that had other figures
        if path.name not in names and not any(path.name.startswith(f"{other}-") for other in _longer(name)):
            path.unlink()
    for path, new in zip(figures, names, strict=True):
        shutil.copyfile(path, pages / new)
    page = item_page(told, names).replace("`paper.json`", f"[{name}.json]({name}.json)")
    (pages / f"{name}.md").write_text(page)
    (pages / f"{name}.json").write_text(json.dumps(told) + "\n")


def _longer(name: str) -> list[str]:
    """Return the items whose names begin with this one: their figures do too."""
    return [other for other in NAMES if other.startswith(f"{name}-")]


def write_claims(items: list[dict[str, Any]], path: Path) -> None:
    """Put the table of all claims between the marks of the page."""
    before, _, rest = path.read_text().partition(START)
    _, _, after = rest.partition(END)
    claims = [claim for told in items for claim in as_written(told) if claim["whose"] == "paper"]
    hold, differ = (sum(claim["holds"] is holds for claim in claims) for holds in (True, False))
    unknown = len(claims) - hold - differ
    words = f"{len(claims)} claims, as written: {hold} hold, {differ} do not, {unknown} cannot be told."
    table = "\n".join(overview(items, "paper/{item}.md"))
    path.write_text(f"{before}{START}\n\n{words}\n\n{table}\n\n{END}{after}")


if __name__ == "__main__":
    main()
