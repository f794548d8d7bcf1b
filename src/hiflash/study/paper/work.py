"""Does the work of an item, by its kind: runs, associations, trainings, models or the theory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hiflash.config import Config
from hiflash.config.settings import flatten
from hiflash.errors import ConfigError
from hiflash.sim.result import Result
from hiflash.study.cells import Cell, saved, seed_numbers
from hiflash.study.compare import Comparison, comparison_cells
from hiflash.study.paper.claims import Judgement, judge
from hiflash.study.paper.figures import draw_more
from hiflash.study.paper.items import Item, Plan
from hiflash.study.paper.other_rules import BOUNDS_WHY, best_check
from hiflash.study.paper.rows import pooled, rows_of, with_forecast
from hiflash.study.paper.rules import CLAIMS
from hiflash.study.paper.run_rules import point_label
from hiflash.study.paper.runs import Runs
from hiflash.study.sweep import Sweep, sweep_cells

__all__ = ["Job", "Studied", "run_digest", "work"]

Seeds = int | Sequence[int]
NOT_DECIDED = ("name", "digest", "wall_s", "made_by", "warnings")
"""Numbers of a run that another machine, or another folder, may change."""


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


def work(job: Job) -> Studied:
    """Return what came out of an item; finished runs and trainings are not repeated."""
    return WORK[job.item.kind](job)


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


def _made(cells: Sequence[Cell], results: Sequence[Result]) -> tuple[Any, ...]:
    """Return the digest of every run, to tell whether one elsewhere is the same, their seconds and makers."""
    made = zip(cells, results, strict=True)
    runs = [{"name": cell.name, "digest": run_digest(result)} for cell, result in made]
    return runs, sum(result.wall_s for result in results), _makers(result.made_by for result in results)


def run_digest(result: Result) -> str:
    """Return the digest of a run's model, or of configuration and numbers where nothing was trained."""
    if result.trainer != "none":
        return result.digest
    numbers = {name: value for name, value in result.to_dict().items() if name not in NOT_DECIDED}
    return hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest()


def _makers(of_runs: Iterable[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return everything that made some of the runs, once; a run from before this was kept gives {}."""
    found: list[dict[str, Any]] = []
    for makers in of_runs:
        found += [maker for maker in makers or [{}] if maker not in found]
    return found


def _source(job: Job) -> Job:
    """Return the job whose runs an item reads: its own, or that of another item at the same scale."""
    other = job.item.runs_from
    return replace(job, item=other, plan=other.plan(job.plan.scale))


def _sweep(job: Job) -> Studied:
    cells = sweep_cells(grid=job.plan["grid"], seeds=job.seed_numbers, settings=job.settings)
    sweep = saved(Sweep(cells, job.run(cells, job.folder), job.plan["by"]), job.folder)
    numbers = [{**number, "label": point_label(number["point"])} for number in sweep.numbers()]
    runs = Runs(numbers, job.plan.get("target"))
    return Studied(job.judged(runs), rows_of(runs), sweep.files, *_made(cells, sweep.results))


def _associate(job: Job) -> Studied:
    from hiflash.report.paper_figures import draw_lambda
    from hiflash.study.associate import associate

    wanted = [(partition, seed) for partition in job.plan["partitions"] for seed in job.seed_numbers]
    sweeps: dict[str, list[dict[str, Any]]] = {}
    files: list[Path] = []
    for done, (partition, seed) in enumerate(wanted):
        job.progress(f"{partition}, seed {seed}", done, len(wanted))
        config = Config.load(None, {**job.settings, "data.partition": partition, "seed": seed})
        study = associate(config, sweep=job.plan["lambdas"], directory=job.folder / f"{partition}-s{seed}")
        rows = [{"partition": partition, "seed": seed, **row.to_dict()} for row in study.rows]
        sweeps.setdefault(partition, []).extend(rows)
        files += study.files
    rows = [row for rows in sweeps.values() for row in rows]
    return Studied(job.judged(sweeps), rows, [*files, *draw_lambda(rows, job.folder / "lambda")])


def _train(job: Job) -> Studied:
    from hiflash.study.train_agent import train_agent

    episodes, trainings = job.plan["episodes"], job.plan["trainings"]
    records: dict[str, dict[str, Any]] = {}
    files: list[Path] = []
    for number, (label, own) in enumerate(trainings.items()):
        before, told = number * episodes, f"training of {label}"

        def tell(row: Mapping[str, Any], before: int = before, told: str = told) -> None:
            job.progress(told, before + row["episode"], len(trainings) * episodes)

        settings: Any = {**job.settings, **flatten(own)}
        trained = train_agent(
            directory=job.folder / label, episodes=episodes, progress=tell, pause=job.pause, **settings
        )
        records[label] = trained.record
        files += trained.files
    if len(records) > 1:
        files += _weight_figure(job, records)
    rows = [
        {"label": label, **{key: check[key] for key in ("policy", "episode", "cost", "parallelism")}}
        for label, record in records.items()
        for check in record["checks"]
    ]
    return Studied(job.judged(records), rows, files, *_trained(records))


def _trained(records: Mapping[str, Mapping[str, Any]]) -> tuple[Any, ...]:
    """Return the digest of every trained agent, the seconds of all, if all are known, and what made them."""
    runs = [{"name": label, "digest": record["digest"]} for label, record in records.items()]
    seconds = [record["wall_s"] for record in records.values()]
    known = None if None in seconds else sum(seconds)
    return runs, known, _makers(record["made_by"] for record in records.values())


def _weight_figure(job: Job, records: Mapping[str, Mapping[str, Any]]) -> list[Path]:
    """Draw the agents of several weights of the cost side by side."""
    from hiflash.report.agent_figures import draw_sigma

    rows = [
        {
            "label": label,
            "sigma": [record["about"]["compute_weight"], record["about"]["send_weight"]],
            **best_check(record),
        }
        for label, record in records.items()
    ]
    return draw_sigma(rows, job.folder / "weights")


def _models(job: Job) -> Studied:
    from hiflash.control.networks import q_network
    from hiflash.methods.models import MODELS
    from hiflash.train.models import build_model

    if job.changed:
        raise ConfigError(f"{job.item.name} takes no settings; leave out {next(iter(flatten(job.changed)))}")
    sizes = {}
    for name, (shape, classes) in job.plan["models"].items():
        model = build_model(MODELS[name], None, tuple(shape), classes)
        sizes[name] = sum(each.numel() for each in model.parameters())
    for name, (edges, threshold_max) in job.plan["networks"].items():
        network = q_network("paper", edges, threshold_max, 0)
        sizes[name] = sum(each.numel() for each in network.parameters())
    rows = [{"model": name, "parameters": size} for name, size in sizes.items()]
    return Studied(job.judged(sizes), rows, [])


def _theory(job: Job) -> Studied:
    from hiflash.study.theory.plan import theory_plan
    from hiflash.study.theory.study import check_theory

    plan = theory_plan(taus=job.plan["taus"], updates=job.plan["updates"], settings=job.settings)
    runs = len(plan.taus) * len(plan.configs)
    finished = 0

    def told(what: str, done: int, total: int) -> None:
        nonlocal finished
        finished += done > 0  # every call after the first is one update more
        job.progress(what, finished, runs * plan.updates)

    study = saved(check_theory(plan, progress=told), job.folder)
    verdicts = [
        Judgement(
            claim.name,
            f"{claim.source}: {claim.says}",
            claim.holds,
            None,
            None,
            "",
            claim.found,
            BOUNDS_WHY.get(claim.name, ""),
        )
        for claim in study.claims
        if claim.source != "here"  # our own bounds: `hiflash theory` has them
    ]
    return Studied(verdicts, [setting.to_dict() for setting in study.settings], study.files)


WORK: dict[str, Callable[[Job], Studied]] = {
    "compare": _compare,
    "sweep": _sweep,
    "associate": _associate,
    "training": _train,
    "models": _models,
    "theory": _theory,
}
