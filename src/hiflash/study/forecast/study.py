"""Forecasts of several methods side by side, from one constant per task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from hiflash.config import Config
from hiflash.config.settings import flatten
from hiflash.errors import ConfigError
from hiflash.study.arguments import check_arguments
from hiflash.study.cells import Cell, saved, split_own
from hiflash.study.compare import Variants, comparison_cells
from hiflash.study.forecast.cell import forecast_cell
from hiflash.study.forecast.constants import Constant, find_constant
from hiflash.study.forecast.expected import expected_error, regime_of
from hiflash.study.forecast.outline import ForecastError, outline_cell

if TYPE_CHECKING:
    from hiflash.config.typed import Settings

__all__ = ["Forecast", "find_constants", "forecast", "forecast_cells"]

DEFAULT_SEEDS = 3
LARGE = 10_000
MEASURES = ("communications", "client_steps", "virtual_s", "wan_bytes", "total_cost", "staleness")


@dataclass(frozen=True)
class Forecast:
    """What methods will need, seed by seed; the constants behind it, and the methods that it leaves out.

    `constants` are by partition, `left_out` has reasons by label. `files` are in its directory, if any.
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

        config, runs = self.cells[places[0]].config, [self.numbers[place] for place in places]
        row: dict[str, Any] = {
            "label": label,
            "method": config.method,
            "data": config.data.name,
            "partition": partition,
            "target": config.stop.target,
            "rounds": self.constants[partition].rounds,
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
    return saved(forecast_cells(cells, constants, own, progress), directory)


def forecast_cells(
    cells: Sequence[Cell],
    constants: Mapping[str, Constant],
    own: dict[str, Any] | None = None,
    progress: Callable[[str], None] | None = None,
    *,
    by_class: bool = True,
) -> Forecast:
    """Return the forecast of every cell, with constants by partition; each has a tag `label`.

    Without `by_class` there is one number for all classes, to see what the others are worth.
    """
    kept: list[Cell] = []
    numbers: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    data = None
    for cell in cells:
        label = cell.tags["label"]
        if label in left_out:
            continue
        if progress is not None:
            progress(cell.name)
        try:
            outline = outline_cell(cell.config, own or {}, data)
        except ForecastError as error:
            left_out[label] = "; ".join(error.problems)
            continue
        data = outline.federation.data  # loaded once
        kept.append(cell)
        numbers.append(
            forecast_cell(outline, constants[cell.config.data.partition].rounds, by_class=by_class)
        )
    if not kept:
        raise ConfigError([f"{label} cannot be forecast: {reason}" for label, reason in left_out.items()])
    return Forecast(kept, numbers, dict(constants), left_out)


def find_constants(
    cells: Sequence[Cell], rounds: float | None = None, measured: Sequence[Path] = ()
) -> dict[str, Constant]:
    """Return the constant of every partition. All methods share a task, so any of them tells it."""
    tasks: dict[str, Config] = {}
    for cell in cells:
        if cell.config.cloud.schedule != "centralized":
            tasks.setdefault(cell.config.data.partition, cell.config)
    if rounds is not None and len(tasks) > 1:
        raise ConfigError(
            f"one number of rounds for {', '.join(tasks)}: every partition is a task with a constant of its "
            "own; forecast them one by one, or measure the constants"
        )
    return {name: find_constant(config, rounds, measured) for name, config in tasks.items()}
