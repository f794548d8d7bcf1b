"""Forecasts of several methods side by side, from one constant per task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from hiflash.config import Config
from hiflash.config.settings import flatten
from hiflash.data import Dataset
from hiflash.errors import ConfigError
from hiflash.store.files import check_writable
from hiflash.study.arguments import check_arguments
from hiflash.study.cells import Cell, saved, split_own, target_metric
from hiflash.study.compare import Variants, comparison_cells
from hiflash.study.forecast.cell import forecast_cell
from hiflash.study.forecast.constants import Constant, find_constant, same_task
from hiflash.study.forecast.expected import expected_error, regime_of
from hiflash.study.forecast.outline import ForecastError, outline_cell
from hiflash.study.forecast.scope import beyond_scope

if TYPE_CHECKING:
    from hiflash.config.typed import Settings

__all__ = ["Forecast", "find_constants", "forecast", "forecast_cells"]

DEFAULT_SEEDS = 3
LARGE = 10_000
DEALT = ("data.partition",)
MEASURES = ("communications", "client_steps", "virtual_s", "wan_bytes", "total_cost", "staleness")


@dataclass(frozen=True)
class Forecast:
    """What methods will need, seed by seed; the constants behind it, and the methods that it leaves out.

    `constants` are by partition, or by `partition/label` where labels of a partition are of several tasks.
    `left_out` has reasons by label. `files` are in its directory, if any.
    """

    cells: list[Cell]
    numbers: list[dict[str, Any]]
    constants: dict[str, Constant]
    left_out: dict[str, str] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per partition and label, with means over the seeds and the expected error."""
        groups: dict[tuple[str, str], list[int]] = {}
        for place, cell in enumerate(self.cells):
            groups.setdefault((cell.config.data.partition, cell.tags["label"]), []).append(place)
        return [self._row(*key, places) for key, places in groups.items()]

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            "constants": {name: constant.to_dict() for name, constant in self.constants.items()},
            "rows": self.rows(),
            "cells": [
                {"name": cell.name, "label": cell.tags["label"], "seed": cell.config.seed, **numbers}
                for cell, numbers in zip(self.cells, self.numbers, strict=True)
            ],
            "left_out": self.left_out,
        }

    def save(self, directory: Path) -> list[Path]:
        """Write `forecast.csv` and `forecast.json` and return the paths."""
        from hiflash.report.rows import write_csv, write_json

        rows = [{k: v for k, v in row.items() if not isinstance(v, list | dict)} for row in self.rows()]
        return [
            write_csv(rows, directory / "forecast.csv"),
            write_json(self.to_dict(), directory / "forecast.json"),
        ]

    def _row(self, partition: str, label: str, places: Sequence[int]) -> dict[str, Any]:
        from hiflash.report.summary import statistics

        cell, runs = self.cells[places[0]], [self.numbers[place] for place in places]
        config, metric = cell.config, target_metric(cell.config)
        row: dict[str, Any] = {
            "label": label,
            "method": config.method,
            "data": config.data.name,
            "partition": partition,
            "target": config.stop.target,
            "metric": metric.name,
            "metric_better": metric.better,
            "metric_unit": metric.unit,
            "rounds": _constant_of(cell, self.constants).rounds,
            "seeds": len(runs),
            "reached": sum(run["reached"] for run in runs),
        }
        for name in (*MEASURES, "accepted", "edge_rounds", "closed_form", "mean_js", "local_steps"):
            told = statistics(name, [run[name] for run in runs])
            row[name] = told[f"{name}_mean"]
            if name in MEASURES:
                row |= {f"{name}_{kind}": told[f"{name}_{kind}"] for kind in ("std", "min", "max")}
        row["over_budget"] = sorted({budget for run in runs for budget in run["over_budget"]})
        row["notes"] = sorted({note for run in runs for note in run["notes"]})
        regime = regime_of(row["local_steps"], row["mean_js"], config.cloud.momentum)
        row["expected_error"] = expected_error(regime)
        return row


def forecast(
    config: str | Path | None = None,
    *,
    methods: Sequence[str] | None = None,
    variants: Variants | None = None,
    partitions: Sequence[str] | None = None,
    seeds: int | Sequence[int] | None = None,
    rounds: float | None = None,
    measured: str | Path | Sequence[str | Path] | None = None,
    directory: str | Path | None = None,
    progress: Callable[[str], None] | None = None,
    data: Any = None,
    model: Any = None,
    federation: Any = None,
    indices: Sequence[Any] | None = None,
    **settings: Unpack[Settings],
) -> Forecast:
    """Return what every method and variant will need to reach its target, without training.

    `rounds` is FedAvg's rounds to the target; instead, `measured` names the folders of finished FedAvg runs.
    Without both, the constant must be a known one (docs/forecast.md). The other arguments are those of
    `compare`; `progress` is told the name of every forecast before it begins.
    """
    check_arguments(
        file=config,
        methods=methods,
        variants=variants,
        partitions=partitions,
        seeds=seeds,
        rounds=rounds,
        measured=measured,
        directory=directory,
        progress=progress,
        data=data,
        model=model,
        federation=federation,
        indices=indices,
    )
    given, own = split_own({**settings}, data, model, federation, indices)
    given = flatten(given)
    if methods is None and variants is None and "method" in given:
        methods = [given.pop("method")]
    if seeds is None and "seed" in given:
        seeds = [given.pop("seed")]
    folders = [measured] if isinstance(measured, str | Path) else measured or []
    if rounds is not None and folders:
        raise ConfigError("rounds and measured runs both give the constant; leave one of them out")
    wanted = partial(
        comparison_cells,
        config,
        methods=methods,
        variants=variants,
        partitions=partitions,
        settings=given,
    )
    cells = wanted(seeds=DEFAULT_SEEDS if seeds is None else seeds)
    if seeds is None and max(cell.config.federation.clients for cell in cells) >= LARGE:
        cells = wanted(seeds=1)  # large federations are much alike
    constants = find_constants(cells, rounds, [Path(folder) for folder in folders])
    if directory is not None:
        check_writable(Path(directory))
    return saved(forecast_cells(cells, constants, own, progress), directory)


def forecast_cells(
    cells: Sequence[Cell],
    constants: Mapping[str, Constant],
    own: dict[str, Any] | None = None,
    progress: Callable[[str], None] | None = None,
    *,
    by_class: bool = True,
) -> Forecast:
    """Return the forecast of every cell, from the constants of `find_constants`; each has a tag `label`.

    Without `by_class` there is one number for all classes, to see what the others are worth.
    """
    kept: list[Cell] = []
    numbers: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    loaded: dict[str, Dataset | None] = {}
    for cell in cells:
        label = cell.tags["label"]
        if label in left_out:
            continue
        if progress is not None:
            progress(cell.name)
        source = _source_of(cell.config)
        try:
            outline = outline_cell(cell.config, own or {}, loaded.get(source))
        except ForecastError as error:
            left_out[label] = "; ".join(error.problems)
            continue
        loaded[source] = outline.federation.data
        kept.append(cell)
        numbers.append(forecast_cell(outline, _constant_of(cell, constants).rounds, by_class=by_class))
    if not kept:
        raise ConfigError([f"{label} cannot be forecast: {reason}" for label, reason in left_out.items()])
    return Forecast(kept, numbers, dict(constants), left_out)


def find_constants(
    cells: Sequence[Cell], rounds: float | None = None, measured: Sequence[Path] = ()
) -> dict[str, Constant]:
    """Return the constant of every partition, or of `partition/label` where labels are of several tasks."""
    tasks = _tasks(cells)
    if rounds is not None and len(tasks) > 1:
        raise ConfigError(
            f"one number of rounds for {', '.join(tasks)}: these are several tasks, each with a constant of "
            "its own; forecast them one by one, or measure the constants"
        )
    found, problems = {}, []
    for name, config in tasks.items():
        try:
            found[name] = find_constant(config, rounds, measured)
        except ConfigError as error:
            problems += [f"{name}: {problem}" if "/" in name else problem for problem in error.problems]
    if problems:
        raise ConfigError(problems)
    return found


def _tasks(cells: Sequence[Cell]) -> dict[str, Config]:
    """Return a configuration of every task, under the name of its constant."""
    labels: dict[str, dict[str, Config]] = {}
    for cell in cells:
        if not beyond_scope(cell.config):  # what is left out needs no constant
            own = labels.setdefault(cell.config.data.partition, {})
            own.setdefault(cell.tags["label"], cell.config)
    tasks: dict[str, Config] = {}
    for partition, configs in labels.items():
        first, *others = configs.values()
        if all(same_task(first, other) for other in others):
            tasks[partition] = first
        else:
            tasks |= {f"{partition}/{label}": config for label, config in configs.items()}
    return tasks


def _constant_of(cell: Cell, constants: Mapping[str, Constant]) -> Constant:
    partition = cell.config.data.partition
    own = constants.get(f"{partition}/{cell.tags['label']}")
    return constants[partition] if own is None else own


def _source_of(config: Config) -> str:
    """Return what tells the samples of a configuration from those of others; they are dealt afterwards."""
    settings = config.settings().items()
    return repr([(key, value) for key, value in settings if key.startswith("data.") and key not in DEALT])
