"""Does the work of an item, by its kind: runs here, and what is no set of runs in `other_work`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from hiflash.sim.result import Result
from hiflash.study.cells import Cell, saved
from hiflash.study.compare import Comparison, comparison_cells
from hiflash.study.paper.figures import draw_more
from hiflash.study.paper.job import Job, Studied, makers
from hiflash.study.paper.other_work import (
    study_associate,
    study_example,
    study_models,
    study_theory,
    study_train,
)
from hiflash.study.paper.parameter_rules import point_label
from hiflash.study.paper.rows import numbers_digest, pooled, rows_of, with_forecast
from hiflash.study.paper.runs import Runs
from hiflash.study.sweep import Sweep, sweep_cells

__all__ = ["run_digest", "work"]

NOT_DECIDED = ("name", "digest", "wall_s", "made_by", "warnings")
"""Numbers of a run that another machine, or another folder, may change."""


def work(job: Job) -> Studied:
    """Return what came out of an item; finished runs and trainings are not repeated."""
    return WORK[job.item.kind](job)


def run_digest(result: Result) -> str:
    """Return the digest of a run's model, or of configuration and numbers where nothing was trained."""
    if result.trainer != "none":
        return result.digest
    return numbers_digest({name: each for name, each in result.to_dict().items() if name not in NOT_DECIDED})


def _compare(job: Job) -> Studied:
    source = _source(job)
    cells = comparison_cells(
        methods=source.plan.get("methods"),
        variants=source.plan.variants,
        partitions=source.plan.get("partitions"),
        seeds=source.seed_numbers,
        settings=source.settings,
    )
    only = job.plan.get("partitions")
    cells = [cell for cell in cells if only is None or cell.config.data.partition in only or pooled(cell)]
    comparison = saved(Comparison(cells, job.run(cells, source.folder)), job.folder)
    runs = Runs(comparison.numbers(), job.plan.get("target"), job.plan.get("targets", ()))
    rows = rows_of(runs)
    if job.plan.get("forecast"):
        rows = with_forecast(rows, cells, job.plan["target"])
    files = [*comparison.files, *draw_more(job.item, job.plan, runs, rows, job.folder)]
    return Studied(job.judged(runs), rows, files, *_made(cells, comparison.results))


def _sweep(job: Job) -> Studied:
    cells = sweep_cells(grid=job.plan["grid"], seeds=job.seed_numbers, settings=job.settings)
    sweep = saved(Sweep(cells, job.run(cells, job.folder), job.plan["by"]), job.folder)
    numbers = [{**number, "label": point_label(number["point"])} for number in sweep.numbers()]
    runs = Runs(numbers, job.plan.get("target"))
    rows = rows_of(runs)
    files = [*sweep.files, *draw_more(job.item, job.plan, runs, rows, job.folder)]
    return Studied(job.judged(runs), rows, files, *_made(cells, sweep.results))


def _made(cells: Sequence[Cell], results: Sequence[Result]) -> tuple[Any, ...]:
    """Return the digest of every run, to tell whether one elsewhere is the same, their seconds and makers."""
    made = zip(cells, results, strict=True)
    runs = [{"name": cell.name, "digest": run_digest(result)} for cell, result in made]
    return runs, sum(result.wall_s for result in results), makers(result.made_by for result in results)


def _source(job: Job) -> Job:
    """Return the job whose runs an item reads: its own, or that of another item at the same scale."""
    other = job.item.runs_from
    return replace(job, item=other, plan=other.plan(job.plan.scale))


WORK: dict[str, Callable[[Job], Studied]] = {
    "compare": _compare,
    "sweep": _sweep,
    "associate": study_associate,
    "example": study_example,
    "training": study_train,
    "models": study_models,
    "theory": study_theory,
}
