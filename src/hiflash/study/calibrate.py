"""Fits a surrogate to real runs, and checks it on other federations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from hiflash.config import Config
from hiflash.config.settings import hiflash_settings
from hiflash.control.surrogate.model import Surrogate
from hiflash.control.surrogate.rehearsal import Rehearsal
from hiflash.errors import ConfigError
from hiflash.sim.result import Result
from hiflash.study.arguments import check_arguments
from hiflash.study.cells import Cell, listed, make_cells, policy_settings, saved, seed_numbers
from hiflash.study.observers import Observers
from hiflash.study.run_cells import run_cells

if TYPE_CHECKING:
    from hiflash.config.typed import AllSettings

__all__ = ["CHECK_SEEDS", "FIT_SEEDS", "Calibration", "calibrate", "calibration_cells", "finish"]

FIT_SEEDS = (200, 201, 202, 203, 204, 205, 206, 207)
CHECK_SEEDS = (100, 101, 102)
REHEARSALS = 8  # of every checked run: their mean evens out the noise of the surrogate

FIXED = (0, 1, 2, 4, 8, 16)
SKIPPED = 5


@dataclass(frozen=True)
class Calibration:
    """A surrogate, the real runs that it was checked on, the rehearsals of each, and the files with all."""

    surrogate: Surrogate
    fitted: list[Cell]
    checked: list[Cell]
    results: list[Result]
    rehearsals: list[list[Rehearsal]]
    files: list[Path] = field(default_factory=list)

    def report(self) -> dict[str, Any]:
        """Return the errors of each policy, and whether real runs and rehearsals rank the policies alike."""
        from hiflash.report.calibration import calibration_report

        policies = [cell.tags["policy"] for cell in self.checked]
        return calibration_report(policies, self.results, self.rehearsals)

    def about(self) -> dict[str, Any]:
        """Return the federations that the surrogate was fitted on: it is valid for similar ones."""
        config = self.fitted[0].config
        return {
            "method": config.method,
            "data": config.data.name,
            "partition": config.data.partition,
            "association": config.federation.association,
            "clients": config.federation.clients,
            "edges": config.federation.edges,
            "local_steps": config.client.local_steps,
            "batch": config.client.batch,
            "lr": config.client.lr,
            "mixing": config.cloud.mixing,
            "alpha": config.cloud.alpha,
            "target": config.stop.target,
            "fitted_on": [cell.name for cell in self.fitted],
            "checked_on": [cell.name for cell in self.checked],
        }

    def numbers(self) -> dict[str, Any]:
        """Return everything as one object: `parameters`, `about` and `report`."""
        return {"parameters": self.surrogate.to_dict(), "about": self.about(), "report": self.report()}

    def save(self, directory: Path) -> list[Path]:
        """Write the surrogate, the report and the figure, and return the paths."""
        from hiflash.control.surrogate.file import save_surrogate
        from hiflash.report.calibration_figures import draw_calibration
        from hiflash.report.rows import write_json

        numbers = self.numbers()
        save_surrogate(
            directory / "surrogate.json", self.surrogate, {**self.about(), "report": numbers["report"]}
        )
        about, policies = numbers["about"], [cell.tags["policy"] for cell in self.checked]
        title = "Surrogate and real runs: {method} on {data}, {partition}, association {association}"
        stem = directory / "calibration"
        return [
            directory / "surrogate.json",
            write_json(numbers, directory / "calibration.json"),
            *draw_calibration(
                title.format(**about), numbers["report"], policies, self.results, self.rehearsals, stem
            ),
        ]


def calibrate(
    config: str | Path | None = None,
    *,
    directory: str | Path,
    fit_seeds: Sequence[int] = FIT_SEEDS,
    check_seeds: Sequence[int] = CHECK_SEEDS,
    check_policies: Sequence[str] | None = None,
    processes: int = 1,
    observers: Observers | None = None,
    pause: Callable[[], bool] | None = None,
    **settings: Unpack[AllSettings],
) -> Calibration:
    """Make the runs of a calibration, fit the surrogate, check it and return both.

    `hiflash.calibrate("mine.toml", directory="runs/surrogate-mine").surrogate`. Runs, surrogate, report and
    figure stay in `directory`. A second call resumes interrupted runs and does
    not repeat finished ones.
    """
    check_arguments(
        file=config,
        folder=directory,
        processes=processes,
        observers=observers,
        pause=pause,
        fit_seeds=fit_seeds,
        check_seeds=check_seeds,
        check_policies=check_policies,
    )
    cells = calibration_cells(
        config,
        fit_seeds=fit_seeds,
        check_seeds=check_seeds,
        check_policies=check_policies,
        settings=settings,
    )
    results = run_cells(cells, directory=directory, processes=processes, observers=observers, pause=pause)
    return saved(finish(cells, results), directory)


def calibration_cells(
    config: str | Path | None = None,
    *,
    fit_seeds: Sequence[int] = FIT_SEEDS,
    check_seeds: Sequence[int] = CHECK_SEEDS,
    check_policies: Sequence[str] | str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> list[Cell]:
    """Return the runs to fit a surrogate to and to check it on, or raise an error with all problems."""
    given = hiflash_settings(config, settings)
    for key, instead in (("seed", "fit_seeds and check_seeds"), ("cloud.threshold", "check_policies")):
        if key in given:
            raise ConfigError(f"a calibration varies {key} itself; leave it out, or use {instead}")
    base = Config.load(None, given)
    from hiflash.control.surrogate.stand_in import check_representable

    check_representable(base)
    fit, check = (
        seed_numbers(listed("fit_seeds", fit_seeds)),
        seed_numbers(listed("check_seeds", check_seeds)),
    )
    both = [seed for seed in fit if seed in check]
    if both:
        raise ConfigError(
            f"fit_seeds and check_seeds both have {both[0]}; check a surrogate on seeds outside the fit"
        )
    policies = list(_usual_policies(base)) if check_policies is None else listed("policies", check_policies)
    if not policies:
        raise ConfigError("policies must be a list like random,fixed-2,skip-5, got none")
    agent = {"cloud.agent": given.pop("cloud.agent", "auto")} if "agent" in policies else {}
    wanted = [("fit", "random", seed) for seed in fit]
    wanted += [("fit", "uneven", seed) for seed in fit[: -(-len(fit) // 4)]]
    wanted += [("check", policy, seed) for policy in policies for seed in check]

    def make(each: tuple[str, str, int]) -> Cell:
        use, policy, seed = each
        acting = agent if policy == "agent" else {}
        try:
            own = Config.load(None, {**given, **policy_settings(policy), **acting, "seed": seed})
        except ConfigError as error:
            raise ConfigError([f"{policy}: {problem}" for problem in error.problems]) from None
        return Cell(f"{policy}-s{seed}", own, {"use": use, "policy": policy})

    return make_cells(wanted, make)


def finish(
    cells: Sequence[Cell], results: Sequence[Result], told: Callable[[str], None] = lambda _: None
) -> Calibration:
    """Fit a surrogate to the runs with the tag `fit`, and rehearse the runs with the tag `check`.

    `told` is called with the name of each step.
    """
    from hiflash.control.surrogate.fit import fit_surrogate
    from hiflash.control.surrogate.rehearsal import rehearse
    from hiflash.control.surrogate.run_log import read_log
    from hiflash.sim.federation import outline

    data, spec = outline(cells[0].config)
    pairs = list(zip(cells, results, strict=True))
    fitted = [(cell, result) for cell, result in pairs if cell.tags["use"] == "fit"]
    checked = [(cell, result) for cell, result in pairs if cell.tags["use"] == "check"]
    told("fitting")
    surrogate = fit_surrogate([read_log(_saved(result), data, spec) for _, result in fitted])
    rehearsals = []
    for cell, _ in checked:
        told(f"checking {cell.name}")
        rehearsals.append(
            [rehearse(cell.config, data, spec, surrogate, number) for number in range(REHEARSALS)]
        )
    return Calibration(
        surrogate,
        [cell for cell, _ in fitted],
        [cell for cell, _ in checked],
        [result for _, result in checked],
        rehearsals,
    )


def _usual_policies(config: Config) -> Iterator[str]:
    """Yield the policies of the check: random thresholds as in the fit, and policies outside the fit."""
    yield "random"
    yield from (f"fixed-{threshold}" for threshold in FIXED if threshold <= config.cloud.threshold_max)
    if config.federation.edges > 1:
        yield f"skip-{min(SKIPPED, config.federation.edges // 2)}"


def _saved(result: Result) -> Path:
    if result.path is None:
        raise ConfigError("a surrogate is fitted to the logs of runs; give the runs a directory")
    return result.path
