"""Finished runs as a report takes them: their numbers, their configuration, and the study they belong to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hiflash.report.summary import Result, group, name_of, target_rows
from hiflash.report.sweep import sweep_rows
from hiflash.report.work import is_untrained, work_rows

__all__ = ["Kind", "ShownRun", "ShownStudy", "rows_of"]

Kind = Literal["run", "comparison", "collection", "sweep"]
"""A collection is runs of one folder that no comparison planned."""


@dataclass(frozen=True)
class ShownRun:
    """A finished run: the path to show, its numbers with its label or point, and its configuration."""

    path: str
    result: Result
    config: str
    settings: Mapping[str, Any]
    deployed: bool = False


@dataclass(frozen=True)
class ShownStudy:
    """Runs that belong together; `by` is the measure that ranks the points of a sweep."""

    path: str
    kind: Kind
    runs: Sequence[ShownRun]
    by: str = ""

    @property
    def results(self) -> list[Result]:
        """Return the numbers of the runs."""
        return [run.result for run in self.runs]

    @property
    def labelled(self) -> dict[str, list[ShownRun]]:
        """Return the runs by label."""
        names = group(self.results, name_of)
        return {name: [run for run in self.runs if name_of(run.result) == name] for name in names}


def rows_of(study: ShownStudy) -> list[dict[str, Any]]:
    """Return means and deviations over the seeds, as the study's own command gives them."""
    if study.kind == "sweep":
        return sweep_rows(study.results, study.by)
    return work_rows(study.results) if is_untrained(study.results) else target_rows(study.results)
