"""Checks the paper's convergence analysis on regularised logistic regression, for `hiflash theory`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from hiflash.config import Config
from hiflash.core.weighting import weighting
from hiflash.data import Dataset
from hiflash.data.federation import FederationData
from hiflash.errors import ConfigError
from hiflash.methods.registry import make
from hiflash.sim.made_by import made_by
from hiflash.sim.population import Population, populate
from hiflash.study.arguments import check_arguments
from hiflash.study.cells import saved, split_own
from hiflash.study.theory.bounds import Constants, Schedule
from hiflash.study.theory.claims import Claim, judge
from hiflash.study.theory.constants import Visited, certified_constants, smoothness
from hiflash.study.theory.logistic import LogisticTask, Optimum, find_optimum, logistic_task, product
from hiflash.study.theory.plan import LR_SHARE, Plan, check_data, theory_plan
from hiflash.study.theory.settings import Setting, check_setting
from hiflash.study.theory.trial import Trial, run_trial

if TYPE_CHECKING:
    from hiflash.config.typed import DataSettings, FederationSettings, Settings

__all__ = ["FederationConstants", "TheoryStudy", "check_theory", "theory"]

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class FederationConstants:
    """The constants of one association: measured where its runs went, and certified for every run.

    `gradient` is the largest |grad F| at an edge model; the tighter bound takes it in place of rho.
    """

    association: str
    visited: Constants
    gradient: float
    certified: Constants


@dataclass(frozen=True, eq=False)
class TheoryStudy:
    """The constants, settings and claims of a check of the paper's convergence analysis."""

    title: str
    task: dict[str, Any]
    federations: list[FederationConstants]
    settings: list[Setting]
    claims: list[Claim]
    files: list[Path] = field(default_factory=list)

    @property
    def holds(self) -> dict[str, bool | None]:
        """Return the verdict on every claim; None if the settings cannot tell."""
        return {claim.name: claim.holds for claim in self.claims}

    def to_json(self) -> dict[str, Any]:
        """Return everything but the curves as one object, and what made it."""
        return {
            "title": self.title,
            "task": self.task,
            "federations": [asdict(federation) for federation in self.federations],
            "settings": [setting.to_dict() for setting in self.settings],
            "claims": [claim.to_dict() for claim in self.claims],
            "holds": self.holds,
            "made_by": made_by(),
        }

    def save(self, directory: Path) -> list[Path]:
        """Write all numbers as JSON and CSV and the figure as PNG and PDF, and return the paths."""
        from hiflash.report.rows import write_csv, write_json
        from hiflash.report.theory_figures import draw_theory

        return [
            write_json(self.to_json(), directory / "theory.json"),
            write_csv(self.curve_rows(), directory / "curves.csv"),
            write_csv(self.round_rows(), directory / "rounds.csv"),
            *draw_theory(self, directory / "theory"),
        ]

    def curve_rows(self) -> list[dict[str, Any]]:
        """Return gap and bounds after every update of every setting."""
        return [
            {
                "association": setting.association,
                "tau": setting.tau,
                "version": version,
                "staleness": None if version == 0 else setting.trial.staleness[version - 1],
                "gap": float(gap),
                **{name: bound.after(version) for name, bound in setting.bounds().items()},
            }
            for setting in self.settings
            for version, gap in enumerate(setting.gap)
        ]

    def round_rows(self) -> list[dict[str, Any]]:
        """Return every edge round of every setting: delta, distance at the end, difference of losses."""
        return [
            {
                "association": setting.association,
                "tau": setting.tau,
                "round": number,
                "edge": done.edge,
                "delta": done.delta,
                "distance": float(done.distances[-1]),
                "loss_gap": done.loss_gap,
            }
            for setting in self.settings
            for number, done in enumerate(setting.trial.rounds)
        ]


def theory(
    config: str | Path | None = None,
    *,
    taus: Sequence[int] | None = None,
    associations: Sequence[str] | None = None,
    updates: int | None = None,
    directory: str | Path | None = None,
    progress: Progress | None = None,
    data: Dataset | DataSettings | Mapping[str, Any] | None = None,
    federation: FederationData | FederationSettings | Mapping[str, Any] | None = None,
    **settings: Unpack[Settings],
) -> TheoryStudy:
    """Check the paper's convergence analysis on logistic regression; return constants, bounds and verdicts.

    `hiflash.theory(taus=[0, 4]).holds["lemma2"]`. Missing arguments come from the file's section `[theory]`.
    `client.weight_decay` is mu (0.01), `client.lr` is eta (0.1 / beta). `progress` gets the name of the
    current run, the updates so far and their total.
    """
    check_arguments(
        file=config,
        associations=associations,
        directory=directory,
        progress=progress,
        data=data,
        federation=federation,
    )
    given, own = split_own({**settings}, data, None, federation, None)
    plan = theory_plan(config, taus=taus, associations=associations, updates=updates, settings=given)
    return saved(check_theory(plan, own["data"], progress), directory)


def check_theory(plan: Plan, data: Dataset | None = None, progress: Progress | None = None) -> TheoryStudy:
    """Run all settings of a plan and return them with the verdicts."""
    samples = check_data(make("dataset", plan.config) if data is None else data)
    told = progress or (lambda what, done, total: None)
    told("constants and optimum", 0, 1)
    task, populations = _task(plan, samples)
    beta, optimum = smoothness(task), find_optimum(task)
    eta = LR_SHARE / beta if plan.lr is None else plan.lr
    if not eta * beta < 1:
        raise ConfigError(
            f"Theorem 1 needs client.lr < 1 / beta = {1 / beta:.4g}, got {eta:g}; leave it out for "
            f"{LR_SHARE:g} / beta"
        )
    rounds = plan.config.edge.edge_rounds
    schedule = Schedule(eta, plan.config.client.local_steps, min(rounds), max(rounds))
    federations, settings = [], []
    for name, population in populations.items():
        visited = Visited(task, population.clusters, beta)
        trials = _trials(plan, name, population, task, schedule, visited, told)
        constants = visited.constants()
        certified = certified_constants(task, population.clusters, beta)
        federations.append(FederationConstants(name, constants, visited.gradient, certified))
        settings += [
            check_setting(
                trial, constants, visited.gradient, schedule, _weight(plan.config, trial.tau), optimum.loss
            )
            for trial in trials
        ]
    title = f"{samples.name}, {next(iter(populations.values())).split.name}"
    described = _described(plan, task, schedule, beta, optimum)
    return TheoryStudy(title, described, federations, settings, judge(settings))


def _task(plan: Plan, data: Dataset) -> tuple[LogisticTask, dict[str, Population]]:
    """Return the task, and the clients of every association: they hold the same samples in all of them."""
    first = populate(plan.config, data, None, 1)  # for the samples; the size of the model is not known yet
    if first.measured is not None and first.measured.availability is not None:
        raise ConfigError("the theory assumes clients that stay, and the federation has an availability file")
    x, _ = data.normalised("none")
    l2 = float(plan.config.client.weight_decay)
    task = logistic_task(x, data.y, first.split.indices, data.classes, l2)
    return task, {name: populate(config, data, None, task.size) for name, config in plan.configs.items()}


def _trials(
    plan: Plan,
    name: str,
    population: Population,
    task: LogisticTask,
    schedule: Schedule,
    visited: Visited,
    told: Progress,
) -> list[Trial]:
    trials = []
    for config in plan.trials(name):
        what = f"{name}, tau {config.cloud.threshold}"

        def done(updates: int, what: str = what) -> None:
            told(what, updates, plan.updates)

        trials.append(run_trial(config, population, task, schedule, plan.updates, visited, done))
    return trials


def _weight(config: Config, tau: int) -> float:
    """Return alpha_tau (Eq. 9)."""
    return float(config.cloud.alpha * weighting(config)(tau))


def _described(
    plan: Plan, task: LogisticTask, schedule: Schedule, beta: float, optimum: Optimum
) -> dict[str, Any]:
    """Return the task in numbers."""
    predicted = product(task.x, optimum.model.reshape(task.classes, -1).T).argmax(axis=1)
    return {
        "samples": len(task.y),
        "features": task.x.shape[1],
        "classes": task.classes,
        "clients": len(task.examples),
        "edges": plan.config.federation.edges,
        "seed": plan.config.seed,
        "updates": plan.updates,
        "alpha": plan.config.cloud.alpha,
        "beta": beta,
        "mu": task.l2,
        **asdict(schedule),
        "loss_start": float(np.log(task.classes)),
        "loss_best": optimum.loss,
        "loss_best_error": optimum.error,
        "accuracy_best": float((predicted == task.y).mean()),
    }
