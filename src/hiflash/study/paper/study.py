"""Reproduces an item of the paper, for `hiflash paper`: from its plan to saved verdicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Unpack

from hiflash.config.settings import flatten
from hiflash.sim.made_by import made_by
from hiflash.sim.result import Result
from hiflash.store.files import check_writable, write_atomic
from hiflash.store.run_directory import check_name
from hiflash.study.arguments import check_arguments
from hiflash.study.cells import Cell
from hiflash.study.observers import Observers
from hiflash.study.paper.changes import changes, command_of
from hiflash.study.paper.claims import Judgement
from hiflash.study.paper.items import NAMES, Item, Plan, load_item
from hiflash.study.paper.job import Job
from hiflash.study.paper.rows import numbers_digest
from hiflash.study.paper.work import work
from hiflash.study.run_cells import run_cells

if TYPE_CHECKING:
    from hiflash.config.typed import AllSettings

__all__ = ["Reproduction", "paper_items", "reproduce", "reproduced"]


@dataclass(frozen=True)
class Reproduction:
    """An item of the paper: a verdict on every claim, and the rows and files behind them.

    `wall_s` and `made_by` are the seconds and the versions of its runs or trainings, whenever they ran;
    `wall_s` is None if a training is from before its seconds were kept.
    """

    item: Item
    plan: Plan
    verdicts: list[Judgement]
    rows: list[dict[str, Any]]
    changed: Mapping[str, Any] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)
    wall_s: float | None = 0.0
    made_by: list[dict[str, Any]] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)

    @property
    def holds(self) -> dict[str, bool | None]:
        """Return the verdict on every claim; None if the results cannot tell."""
        return {verdict.name: verdict.holds for verdict in self.verdicts}

    def to_json(self) -> dict[str, Any]:
        """Return everything as one object."""
        return {
            "item": self.item.name,
            "title": self.item.title,
            "source": self.item.source,
            "command": command_of(self.item, self.plan.scale, self.changed),
            "scale": self.plan.scale,
            "changed": dict(self.changed),
            "differences": self.item.differences_at(self.plan.scale),
            "holds": self.holds,
            "claims": [verdict.to_dict() for verdict in self.verdicts],
            "rows": self.rows,
            "digest": numbers_digest(self.rows),
            "runs": self.runs,
            "wall_s": self.wall_s,
            "made_by": self.made_by,
        }


def paper_items() -> list[str]:
    """Return the names of the paper's items that `reproduce` takes."""
    return list(NAMES)


def reproduce(
    item: str,
    *,
    directory: str | Path = "runs/paper",
    scale: str = "small",
    name: str | None = None,
    seeds: int | Sequence[int] | None = None,
    processes: int = 1,
    observers: Observers | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    pause: Callable[[], bool] | None = None,
    **settings: Unpack[AllSettings],
) -> Reproduction:
    """Run an item of the paper, save it in `directory/ITEM/SCALE` and return the verdicts.

    `hiflash.reproduce("models").holds`. A second call goes on with interrupted runs and does not repeat
    finished ones. `progress` gets what is done, how much of it and the total, where no observer does.
    """
    check_arguments(
        folder=directory,
        seeds=seeds,
        processes=processes,
        observers=observers,
        progress=progress,
        pause=pause,
    )

    def run(cells: Sequence[Cell], folder: Path) -> list[Result]:
        return run_cells(cells, directory=folder, processes=processes, observers=observers, pause=pause)

    return reproduced(
        item, Path(directory), scale, run, name=name, seeds=seeds, progress=progress, pause=pause,
        settings=settings,
    )  # fmt: skip


def reproduced(
    name_of_item: str,
    base: Path,
    scale: str,
    run: Callable[[Sequence[Cell], Path], list[Result]],
    *,
    name: str | None = None,
    seeds: int | Sequence[int] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    pause: Callable[[], bool] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Reproduction:
    """Return an item with its cells run by `run`, and save its verdicts."""
    from hiflash.report.paper_pages import item_page
    from hiflash.report.rows import write_json

    item = load_item(name_of_item)
    plan = item.plan(scale)
    changed = changes(item, scale, seeds, settings or {})
    job = Job(
        item,
        plan,
        base,
        check_name(name or scale),
        run,
        progress or (lambda what, done, total: None),
        pause or (lambda: False),
        seeds,
        flatten(settings or {}),
    )
    check_writable(job.folder)
    start = monotonic()
    studied = work(job)
    runs, wall_s, makers = studied.runs, studied.wall_s, studied.made_by
    if not runs:  # nothing is kept: all of it was made just now
        wall_s, makers = monotonic() - start, [made_by()]
    found = Reproduction(item, plan, studied.verdicts, studied.rows, changed, runs, wall_s, makers)
    told = found.to_json()
    write_json(told, job.folder / "paper.json")
    names = (path.relative_to(job.folder).as_posix() for path in studied.files if path.stem in item.figures)
    shown = dict.fromkeys(name for name in names if name.endswith(".png"))
    write_atomic(job.folder / "paper.md", item_page(told, list(shown)))
    return replace(found, files=[job.folder / "paper.json", job.folder / "paper.md", *studied.files])
