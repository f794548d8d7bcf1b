"""Compares the forecasts of a surrogate with real runs: `python -m benchmarks.surrogate_forecast`.

Takes the finished runs of an evaluation (`hiflash evaluate-agent --name evaluation`), rehearses the same
policies and seeds with the shipped surrogate, and compares the cost of every policy with the first one's.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import fmean
from typing import Any

from hiflash.control.surrogate.file import load_surrogate
from hiflash.control.surrogate.rehearsal import rehearse
from hiflash.errors import ConfigError, RunError
from hiflash.sim.federation import outline
from hiflash.study.cells import Cell
from hiflash.study.policies import plan
from hiflash.study.policies.summary import describe, paired
from hiflash.study.run_cells import check_agent, read_cells

__all__ = ["beside", "forecast", "main"]

KINDS = ("real", "surrogate")
LISTS = ("policies", "associations", "enforce", "dynamics")


def forecast(folder: Path, rehearsals: int, **wanted: Any) -> dict[str, Any]:
    """Return by condition and policy the mean total cost of real runs and of the same runs rehearsed."""
    cells = [cell for cell in plan(**wanted).cells if (folder / cell.name / "result.json").is_file()]
    if not cells:
        raise RunError(f"{folder} has no finished run of this evaluation; give another --folder")
    groups: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for cell, result in zip(cells, read_cells(cells, folder), strict=True):
        check_agent(folder / cell.name, cell)
        policies = groups.setdefault(f"{cell.tags['condition']}-{cell.tags['dynamics']}", {})
        costs = {"real": result.total_cost, "surrogate": _expected(cell, rehearsals)}
        policies.setdefault(cell.tags["policy"], []).append({"seed": result.seed, **costs})
    return {
        name: {policy: beside(runs, next(iter(policies.values()))) for policy, runs in policies.items()}
        for name, policies in groups.items()
    }


def beside(runs: list[dict[str, Any]], first: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean costs of a policy, and its cost relative to the first policy's seed by seed."""
    told: dict[str, Any] = {kind: fmean(run[kind] for run in runs) for kind in KINDS}
    told["seeds"] = len(runs)
    others = {run["seed"]: run for run in first}
    both = [(run, others[run["seed"]]) for run in runs if run["seed"] in others]
    if runs is not first and both:
        for kind in KINDS:
            difference = paired(runs, first, kind)
            told[f"{kind}_percent"] = [
                difference[name] for name in ("percent", "percent_low", "percent_high")
            ]
        ratios = [{kind: run[kind] / other[kind] for kind in KINDS} for run, other in both]
        missed = describe([100 * (ratio["surrogate"] - ratio["real"]) for ratio in ratios])
        told["surrogate_off_by_points"] = [missed[name] for name in ("mean", "low", "high")]
    return told


def main() -> None:
    """Print the findings as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.surrogate_forecast", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/evaluation"))
    parser.add_argument("--policies", default="fixed-0,agent", help="the others are compared with the first")
    parser.add_argument("--associations", default="noniid")
    parser.add_argument("--enforce", default="admit")
    parser.add_argument("--dynamics", default="static,fluctuating")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--rehearsals", type=int, default=8)
    options = vars(parser.parse_args())
    lists = {name: options.pop(name).split(",") for name in LISTS}
    if options["rehearsals"] < 1:
        parser.error(f"--rehearsals must be >= 1, got {options['rehearsals']}")
    try:
        found = forecast(**options, **lists, choice_seeds=())
    except (ConfigError, RunError) as error:
        parser.error(str(error))
    print(json.dumps(found, indent=1))


def _expected(cell: Cell, rehearsals: int) -> float:
    surrogate, (data, spec) = load_surrogate("auto", cell.config), outline(cell.config)
    runs = [rehearse(cell.config, data, spec, surrogate, number) for number in range(rehearsals)]
    return fmean(run.total_cost for run in runs)


if __name__ == "__main__":
    main()
