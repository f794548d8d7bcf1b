"""The work of items that are no sets of runs: associations, the example, trainings, models and the theory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hiflash.config import Config
from hiflash.config.settings import flatten
from hiflash.errors import ConfigError
from hiflash.study.cells import saved
from hiflash.study.paper.claims import Judgement
from hiflash.study.paper.example import associate_example
from hiflash.study.paper.job import Job, Studied, makers
from hiflash.study.paper.other_rules import BOUNDS_NOTES, BOUNDS_READINGS, BOUNDS_WHY, best_check
from hiflash.study.theory.claims import Claim as TheoryClaim

__all__ = ["study_associate", "study_example", "study_models", "study_theory", "study_train"]


def study_associate(job: Job) -> Studied:
    """Return associations by lambda on every partition and seed."""
    from hiflash.report.paper_figures import draw_lambda
    from hiflash.study.associate import associate

    wanted = [(partition, seed) for partition in job.plan["partitions"] for seed in job.seed_numbers]
    sweeps: dict[str, list[dict[str, Any]]] = {}
    files: list[Path] = []
    for done, (partition, seed) in enumerate(wanted):
        job.progress(f"{partition}, seed {seed}", done, len(wanted))
        config = Config.load(None, {**job.settings, "data.partition": partition, "seed": seed})
        study = associate(config, sweep=job.plan["lambdas"], directory=job.folder / f"{partition}-s{seed}")
        rows = [{"partition": partition, "seed": seed, **_repeatable(row.to_dict())} for row in study.rows]
        sweeps.setdefault(partition, []).extend(rows)
        files += study.files
    rows = [row for rows in sweeps.values() for row in rows]
    data = Config.load(None, job.settings).data.name
    return Studied(job.judged(sweeps), rows, [*files, *draw_lambda(rows, data, job.folder / "lambda")])


def _repeatable(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of an association without the seconds that it took: those differ every time."""
    return {name: value for name, value in row.items() if name != "seconds"}


def study_example(job: Job) -> Studied:
    """Return the worked example of the association."""
    _takes_nothing(job)
    rows = associate_example(*(job.plan[key] for key in ("classes", "latency_ms", "capacity", "lambdas")))
    return Studied(job.judged(rows), rows, [])


def study_train(job: Job) -> Studied:
    """Return the trainings of agents; finished ones are read back."""
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
        {
            "label": label,
            **{key: check[key] for key in ("policy", "episode", "cost", "parallelism")},
            "thresholds": dict(sorted(Counter(check["thresholds"]).items())),
        }
        for label, record in records.items()
        for check in record["checks"]
    ]
    return Studied(job.judged(records), rows, files, *_trained(records))


def study_models(job: Job) -> Studied:
    """Return the numbers of parameters of models and networks."""
    from hiflash.control.networks import q_network
    from hiflash.methods.models import MODELS
    from hiflash.train.models import build_model

    _takes_nothing(job)
    sizes = {}
    for name, (shape, classes) in job.plan["models"].items():
        model = build_model(MODELS[name], None, tuple(shape), classes)
        sizes[name] = sum(each.numel() for each in model.parameters())
    for name, (edges, threshold_max) in job.plan["networks"].items():
        network = q_network("paper", edges, threshold_max, 0)
        sizes[name] = sum(each.numel() for each in network.parameters())
    rows = [{"model": name, "parameters": size} for name, size in sizes.items()]
    return Studied(job.judged(sizes), rows, [])


def study_theory(job: Job) -> Studied:
    """Return the check of the theory, and that of Theorem 2 where clients hardly move."""
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
    slow = theory_plan(
        taus=[0],
        updates=job.plan["slow"]["updates"],
        settings={**job.settings, "client.lr": job.plan["slow"]["lr"]},
    )
    (hardly,) = (claim for claim in check_theory(slow).claims if claim.name == "theorem2")
    verdicts = [
        _of_theory(claim)
        for claim in study.claims
        if claim.source != "here"  # our own bounds: `hiflash theory` has them
    ]
    reading = f"a learning rate of {job.plan['slow']['lr']:g}"
    verdicts.append(replace(_of_theory(hardly), name="theorem2_slow", of="theorem2", reading=reading))
    return Studied(verdicts, [setting.to_dict() for setting in study.settings], study.files)


def _trained(records: Mapping[str, Mapping[str, Any]]) -> tuple[Any, ...]:
    """Return the digest of every trained agent, the seconds of all, if all are known, and what made them."""
    runs = [{"name": label, "digest": record["digest"]} for label, record in records.items()]
    seconds = [record["wall_s"] for record in records.values()]
    known = None if None in seconds else sum(seconds)
    return runs, known, makers(record["made_by"] for record in records.values())


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


def _takes_nothing(job: Job) -> None:
    """Raise an error if settings were given."""
    if job.changed:
        raise ConfigError(f"{job.item.name} takes no settings; leave out {next(iter(flatten(job.changed)))}")


def _of_theory(claim: TheoryClaim) -> Judgement:
    says, why = f"{claim.source}: {claim.says}", BOUNDS_WHY.get(claim.name, "")
    found = "; ".join(filter(None, (claim.found, BOUNDS_NOTES.get(claim.name))))
    of = BOUNDS_READINGS.get(claim.name, ("", ""))
    return Judgement(claim.name, says, claim.holds, None, None, "", found, why, *of)
