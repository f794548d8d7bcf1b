"""An item of the paper at a scale as a job, and what comes out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hiflash.config.settings import flatten
from hiflash.sim.result import Result
from hiflash.study.cells import Cell, seed_numbers
from hiflash.study.paper.claims import Judgement, judge
from hiflash.study.paper.items import Item, Plan
from hiflash.study.paper.rules import CLAIMS

__all__ = ["Job", "Studied", "makers"]

Seeds = int | Sequence[int]


@dataclass(frozen=True)
class Studied:
    """What came out: a verdict on every claim, the rows behind them, the files, and the runs that are kept.

    Seconds and makers are those of the runs or trainings, whenever they ran; seconds may be unknown. Without
    runs everything was made just now.
    """

    verdicts: list[Judgement]
    rows: list[dict[str, Any]]
    files: list[Path]
    runs: list[dict[str, Any]] = field(default_factory=list)
    wall_s: float | None = None
    made_by: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Job:
    """An item at a scale: its folder, the folder of all items, and how to run cells and tell of progress."""

    item: Item
    plan: Plan
    base: Path
    folder_name: str
    run: Callable[[Sequence[Cell], Path], list[Result]]
    progress: Callable[[str, int, int], None] = lambda what, done, total: None
    pause: Callable[[], bool] = lambda: False
    seeds: Seeds | None = None
    changed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Return the folder of its tables, and of its runs if they are its own."""
        return self.base / self.item.name / self.folder_name

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings of the plan with changed ones on top."""
        return {**self.plan.settings, **flatten(self.changed)}

    @property
    def seed_numbers(self) -> list[int]:
        """Return the seeds that were asked for, or those of the plan."""
        return seed_numbers(self.plan.get("seeds", 1) if self.seeds is None else self.seeds)

    def judged(self, results: Any) -> list[Judgement]:
        """Return the verdicts of the item's rules."""
        return judge(CLAIMS[self.item.name], results)


def makers(of_runs: Iterable[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return everything that made some of the runs, once; a run from before this was kept gives {}."""
    found: list[dict[str, Any]] = []
    for makers in of_runs:
        found += [maker for maker in makers or [{}] if maker not in found]
    return found
