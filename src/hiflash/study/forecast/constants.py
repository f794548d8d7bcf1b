"""The one measured constant of a forecast: S, the rounds of FedAvg to the target of a task.

It is given by the user, measured by finished runs of FedAvg, or known for a few tasks (`constants.json`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from hiflash.config import Config
from hiflash.core.metrics import ACCURACY, Metric
from hiflash.errors import ConfigError, RunError
from hiflash.methods.registry import usual_model
from hiflash.sim.result import Result
from hiflash.store.run_directory import is_finished
from hiflash.study.cells import target_metric
from hiflash.study.saved import read_result

__all__ = ["Constant", "find_constant", "is_fedavg", "rounds_of", "same_task", "task_of"]

FILE = Path(__file__).with_name("constants.json")
TASK = ("data.", "model.", "client.")
# A proximal term and a known algorithm belong to the method, and folders to nobody.
METHOD_OR_PLACE = ("client.algorithm", "client.mu", "client.feddyn_alpha", "data.dir")


@dataclass(frozen=True)
class Constant:
    """FedAvg's rounds to a target, their origin in words, and the rounds of every measured run."""

    rounds: float
    origin: str
    measured: tuple[float, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the constant for JSON."""
        return {"rounds": self.rounds, "origin": self.origin, "measured": list(self.measured)}


def find_constant(config: Config, rounds: float | None, measured: Sequence[Path]) -> Constant:
    """Return the constant of a configuration's task: given, from run directories, or a known one."""
    if rounds is not None:
        return Constant(float(rounds), "given")
    if measured:
        return _from_runs(config, measured)
    for known in _known():
        if task_of(known["config"]) != task_of(config):
            continue
        for target, found in known["targets"].items():
            if config.stop.target == float(target) and target_metric(config) == ACCURACY:
                seeds = ", ".join(map(str, known["seeds"]))
                origin = f"FedAvg, mean of seeds {seeds}: {known['command']}"
                return Constant(fmean(found), origin, tuple(found))
    raise ConfigError(_how_to_measure(config))


def rounds_of(result: Result, target: float, metric: Metric) -> float | None:
    """Return the rounds that a synchronous run took to a target, None if it did not reach it."""
    rows = (row for row in result.evaluations if metric.reached(row.get(metric.name), target))
    return next((float(row["version"]) for row in rows), None)


def task_of(config: Config) -> dict[str, Any]:
    """Return the settings that a constant belongs to: data, model and client, whatever the method."""
    task = {
        key: value
        for key, value in config.settings().items()
        if key.startswith(TASK) and key not in METHOD_OR_PLACE
    }
    if config.client.algorithm == "function":
        task["client.algorithm"] = "function"  # what it does in a round is part of the task
    if task.get("model.name") == "auto":
        task["model.name"] = usual_model(config.data.name)
    return {**task, "federation.clients": config.federation.clients}


def same_task(one: Config, other: Config) -> bool:
    """Return whether one constant serves two configurations: the same task to the same target."""
    goals = [(config.stop.target, target_metric(config)) for config in (one, other)]
    return goals[0] == goals[1] and task_of(one) == task_of(other)


def is_fedavg(config: Config) -> bool:
    """Return whether every round of a run moves the number by 1."""
    cloud = config.cloud
    plain = cloud.schedule == "sync" and cloud.optimizer == "none" and cloud.selection == "uniform"
    own = config.client.algorithm in ("sgd", "function") and not config.client.mu
    return plain and own and config.federation.flat


def _from_runs(config: Config, folders: Sequence[Path]) -> Constant:
    if config.stop.target == "none":
        raise ConfigError("a constant from runs is about a target, and stop.target is none; set it")
    runs, others, metric = {}, [], target_metric(config)
    for path in [run for folder in folders for run in _finished(folder)]:
        found = Config.load(path / "config.toml")
        if not is_fedavg(found):
            continue
        differing = _differences(task_of(found), task_of(config))
        if differing:
            others.append(f"{path} is another task: {differing}")
            continue
        rounds = rounds_of(read_result(path), config.stop.target, metric)
        if rounds is None:
            raise RunError(
                f"{path} did not reach {metric.name} {config.stop.target:g}, so it has no rounds to the "
                "target; use an easier stop.target, or a run with a larger budget"
            )
        runs[path] = rounds
    if not runs:
        where = ", ".join(map(str, folders))
        none = f"{where} has no finished run of FedAvg; make one with hiflash run --method fedavg"
        raise RunError("\n".join([*others, "give a finished run of FedAvg on this task"]) if others else none)
    return Constant(fmean(runs.values()), "FedAvg: " + ", ".join(map(str, runs)), tuple(runs.values()))


def _finished(folder: Path) -> list[Path]:
    """Return a run directory, or those in the directory of a comparison."""
    if is_finished(folder):
        return [folder]
    if not folder.is_dir():
        raise RunError(f"{folder} is no run directory; give the folder of a finished run of FedAvg")
    return sorted(path for path in folder.iterdir() if path.is_dir() and is_finished(path))


def _differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    keys = [key for key in {**there, **here} if there.get(key) != here.get(key)]
    return "; ".join(f"{key} is {there.get(key)} there and {here.get(key)} here" for key in keys)


def _how_to_measure(config: Config) -> str:
    usual = task_of(Config(method="fedavg"))
    task = {key: value for key, value in task_of(config).items() if usual.get(key) != value}
    if config.stop.target != "none":
        task["stop.target"] = config.stop.target
    if config.stop.metric != "auto":
        task["stop.metric"] = config.stop.metric
    words = " ".join(f"--{key} {_word(value)}" for key, value in task.items())
    return (
        f"no constant is known for {config.data.name}, {config.data.partition}, target {config.stop.target}: "
        f"give FedAvg's rounds to the target with --rounds N, or measure them once with `hiflash run "
        f"--method fedavg {words} --name fedavg` and give --from runs/fedavg"
    )


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@cache
def _known() -> list[dict[str, Any]]:
    """Return the shipped constants, each with its configuration."""
    known: list[dict[str, Any]] = json.loads(FILE.read_text())["constants"]
    return [{**each, "config": Config(method="fedavg", **each["settings"])} for each in known]
