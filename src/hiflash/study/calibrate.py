"""Fits a surrogate to real runs, and finds out on other federations how far it can be trusted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hiflash.config import Config
from hiflash.config.settings import hiflash_settings
from hiflash.control.surrogate.model import Surrogate
from hiflash.control.surrogate.rehearsal import Rehearsal
from hiflash.errors import ConfigError
from hiflash.sim.result import Result
from hiflash.study.arguments import check_arguments
from hiflash.study.cells import Cell, Watcher, listed, policy_settings, seed_numbers
from hiflash.study.run_cells import run_cells

__all__ = ["CHECK_SEEDS", "FIT_SEEDS", "Calibration", "calibrate", "calibration_cells", "finish"]

FIT_SEEDS = (200, 201, 202, 203, 204, 205, 206, 207)
CHECK_SEEDS = (100, 101, 102)
REHEARSALS = 8  # of every run that is checked: what is left to chance must not decide the comparison

FIXED = (0, 1, 2, 4, 8, 16)
SKIPPED = 5


@dataclass(frozen=True)
class Calibration:
    """A surrogate, and beside every real run that it was checked on what it expects of such a run."""

    surrogate: Surrogate
    fitted: list[Cell]
    checked: list[Cell]
    results: list[Result]
    rehearsals: list[list[Rehearsal]]

    def report(self) -> dict[str, Any]:
        """Return the errors policy by policy, and whether the policies rank alike."""
        from hiflash.report.calibration import calibration_report

        policies = [cell.tags["policy"] for cell in self.checked]
        return calibration_report(policies, self.results, self.rehearsals)

    def about(self) -> dict[str, Any]:
        """Return what the surrogate was fitted on: it is good for federations like these."""
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
    watcher: Watcher | None = None,
    pause: Callable[[], bool] | None = None,
    **settings: Any,
) -> Calibration:
    """Run what a surrogate needs, fit it, check it and return both.

    The runs are kept in `directory`: calling again goes on with what was interrupted and does not repeat
    what is finished.
    """
    check_arguments(file=config, folder=directory, processes=processes, watcher=watcher, pause=pause)
    check_arguments(fit_seeds=fit_seeds, check_seeds=check_seeds, check_policies=check_policies)
    cells = calibration_cells(
        config,
        fit_seeds=fit_seeds,
        check_seeds=check_seeds,
        check_policies=check_policies,
        settings=settings,
    )
    results = run_cells(cells, directory=directory, processes=processes, watcher=watcher, pause=pause)
    return finish(cells, results)


def calibration_cells(
    config: str | Path | None = None,
    *,
    fit_seeds: Sequence[int] = FIT_SEEDS,
    check_seeds: Sequence[int] = CHECK_SEEDS,
    check_policies: Sequence[str] | str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> list[Cell]:
    """Return the runs that a surrogate is fitted to and checked on, or everything that is wrong with them."""
    given = hiflash_settings(config, settings)
    for key, instead in (("seed", "fit_seeds and check_seeds"), ("cloud.threshold", "check_policies")):
        if key in given:
            raise ConfigError(
                f"{key} is not for a calibration, which has many; leave it out, or use {instead}"
            )
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
            f"seed {both[0]} is to fit and to check; a surrogate is checked on seeds of its own"
        )
    policies = list(_usual_policies(base)) if check_policies is None else listed("policies", check_policies)
    if not policies:
        raise ConfigError("policies must be a list like random,fixed-2,skip-5, got none")
    agent = {"cloud.agent": given.pop("cloud.agent", "auto")} if "agent" in policies else {}
    wanted = [("fit", "random", seed) for seed in fit]
    wanted += [("fit", "uneven", seed) for seed in fit[: -(-len(fit) // 4)]]
    wanted += [("check", policy, seed) for policy in policies for seed in check]
    cells, problems = [], {}
    for use, policy, seed in wanted:
        try:
            acting = agent if policy == "agent" else {}
            own = Config.load(None, {**given, **policy_settings(policy), **acting, "seed": seed})
        except ConfigError as error:
            problems.update(dict.fromkeys(f"{policy}: {problem}" for problem in error.problems))
        else:
            cells.append(Cell(f"{policy}-s{seed}", own, {"use": use, "policy": policy}))
    if problems:
        raise ConfigError(list(problems))
    return cells


def finish(
    cells: Sequence[Cell], results: Sequence[Result], told: Callable[[str], None] = lambda _: None
) -> Calibration:
    """Return the surrogate that fits the runs meant for that, and how it does on the others.

    `told` hears what is going on.
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
    """Yield what a surrogate is checked on: random thresholds as in the fit, and others that are not."""
    yield "random"
    yield from (f"fixed-{threshold}" for threshold in FIXED if threshold <= config.cloud.threshold_max)
    if config.federation.edges > 1:
        yield f"skip-{min(SKIPPED, config.federation.edges // 2)}"


def _saved(result: Result) -> Path:
    if result.path is None:
        raise ConfigError("a surrogate is fitted to what runs have logged; give them a directory")
    return result.path
