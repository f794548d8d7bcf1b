"""A report of finished runs: one HTML page that needs nothing else, and the same as Markdown."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hiflash import __version__
from hiflash.errors import ConfigError
from hiflash.report.page.blocks import Block, Drawing, Items, Page
from hiflash.report.page.claims import Claim, claim_blocks
from hiflash.report.page.html import to_html
from hiflash.report.page.items import ShownItem, item_blocks, items_words
from hiflash.report.page.markdown import FIGURES, to_markdown
from hiflash.report.page.sections import study_blocks
from hiflash.report.page.shown import ShownStudy, rows_of
from hiflash.report.units import duration
from hiflash.sim.made_by import versions_of
from hiflash.store.files import write_atomic
from hiflash.study.shown_runs import find_runs

__all__ = ["Report", "make_report"]

PACKAGES = ("numpy", "torch", "matplotlib")
MOST_TITLE = 200


@dataclass(frozen=True)
class Report:
    """A report: its page, the studies and items on it, what was left out, and the files, if written."""

    page: Page
    studies: list[ShownStudy]
    left_out: list[str]
    claims: list[Claim]
    items: list[ShownItem] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)

    def html(self) -> str:
        """Return the page as HTML with everything inside."""
        return to_html(self.page)

    def markdown(self) -> str:
        """Return the page as Markdown; its figures are files in `figures/`."""
        return to_markdown(self.page)

    def to_dict(self) -> dict[str, Any]:
        """Return what the command prints as JSON: studies with their rows, claims, files."""
        return {
            "title": self.page.title,
            "studies": [
                {
                    "path": study.path,
                    "kind": study.kind,
                    "runs": [
                        {
                            "path": run.path,
                            **{name: run.result[name] for name in ("method", "seed", "digest", "wall_s")},
                            "made_by": run.result.get("made_by", []),
                        }
                        for run in study.runs
                    ],
                    "rows": rows_of(study),
                }
                for study in self.studies
            ],
            "claims": [
                {
                    "item": c.item,
                    "claim": c.claim,
                    "ours": c.ours,
                    "holds": c.holds,
                    "reading": c.reading,
                    "of": c.of,
                    "why": c.why,
                }
                for c in self.claims
            ],
            "items": [item.to_dict() for item in self.items],
            "left_out": self.left_out,
            "files": [str(path) for path in self.files],
        }

    def save(self, directory: Path) -> list[Path]:
        """Write figures, Markdown and, last, the HTML page; return the paths, the page first."""
        contents: dict[str, str | bytes]
        contents = {f"{FIGURES}/{each.name}.svg": each.svg for each in self.page.drawings}
        contents |= {f"{FIGURES}/{each.name}.png": each.png for each in self.page.pictures}
        contents |= {
            "report.md": self.markdown(),
            "report.html": self.html(),
        }  # all made before one is written
        for name, text in contents.items():
            write_atomic(directory / name, text)
        return [directory / name for name in reversed(contents)]


def make_report(
    runs: str | Path | Sequence[str | Path],
    *,
    out: str | Path | None = None,
    title: str | None = None,
    claims: Sequence[Claim] = (),
) -> Report:
    """Return a report of finished runs, comparisons, sweeps and deployments; `out` is its folder, if any.

    `hiflash.make_report("runs/demo", out="report")`. A folder that holds runs stands for all of them. Damaged
    and unfinished runs are named on the page and left out. `claims`, and those of the paper's items among the
    folders, put a table of verdicts first.
    """
    folders, title = _folders(runs), _title(title)
    claims = _claims(claims)
    if out is not None:
        _check_out(out)
    found = find_runs(folders)
    studies = [(study.path, study_blocks(study, number)) for number, study in enumerate(found.studies, 1)]
    blocks: list[Block] = []
    if found.left_out:
        blocks.append(Items("Left out", found.left_out, warning=True))
    blocks += claim_blocks(claims, items_words(found.items))
    for number, item in enumerate(found.items, 1):
        drawn = [block for path, of_study in studies if path == item.path for block in of_study]
        blocks += item_blocks(item, number, [each.kind for each in drawn if isinstance(each, Drawing)])
    blocks += [block for _, of_study in studies for block in of_study]
    page = Page(title, _about(found.studies, len(found.items)), blocks, _versions())
    claims = [*claims, *(claim for item in found.items for claim in item.claims)]
    report = Report(page, found.studies, found.left_out, claims, found.items)
    return report if out is None else replace(report, files=report.save(Path(out)))


def _folders(runs: object) -> list[Path]:
    several = [runs] if isinstance(runs, str | os.PathLike) else runs
    if not isinstance(several, Sequence) or not all(isinstance(each, str | os.PathLike) for each in several):
        raise ConfigError(f'runs must be folders, like "runs/demo" or a list of them, got {str(runs)[:60]!r}')
    if not several or not all(str(each) for each in several):
        raise ConfigError('runs must name at least one folder, like "runs/demo"')
    return [Path(each) for each in several]


def _title(title: object) -> str:
    if title is None:
        return "HiFlash report"
    if not isinstance(title, str) or not 0 < len(title.strip()) <= MOST_TITLE:
        raise ConfigError(f"title must be a text of 1 to {MOST_TITLE} characters, got {str(title)[:60]!r}")
    return title.strip()


def _claims(claims: object) -> list[Claim]:
    if not isinstance(claims, Sequence) or not all(isinstance(each, Claim) for each in claims):
        raise ConfigError("claims must be a list of hiflash.Claim")
    return list(claims)


def _check_out(out: object) -> None:
    """Refuse a place that cannot be written, before anything is drawn."""
    if not isinstance(out, str | os.PathLike) or not str(out):
        raise ConfigError(f'out must be the path of a folder, like "report", got {str(out)[:60]!r}')
    folder = Path(out)
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not there.is_dir():
        raise ConfigError(f"{there} is a file, and the report needs a folder; choose another --out")
    if not os.access(there, os.W_OK):
        raise ConfigError(f"{folder} cannot be written; make {there} writable, or choose another --out")


def _about(studies: Sequence[ShownStudy], items: int) -> str:
    of_paper = "1 item of the paper. " if items == 1 else f"{items} items of the paper. "
    if items and not studies:
        return of_paper.strip()
    runs = [run for study in studies for run in study.runs]
    wall = duration(sum(float(run.result["wall_s"]) for run in runs))
    count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    return f"{of_paper if items else ''}{count} in {_counted(len(studies))}, {wall} of wall time in all."


def _counted(studies: int) -> str:
    return "1 study" if studies == 1 else f"{studies} studies"


def _versions() -> list[str]:
    """Return what made the page; a page has no date, so the same runs give the same bytes."""
    found = [f"{name} {version}" for name, version in versions_of(PACKAGES).items()]
    python = f"Python {platform.python_version()}"
    machine = f"{platform.system()} {platform.machine()}"
    return [f"Made by HiFlash {__version__} with {', '.join([python, *found])} on {machine}."]
