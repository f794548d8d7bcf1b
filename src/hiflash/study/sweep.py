"""One method over a grid of settings and seeds: the paper's search for alpha and upsilon in one command."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from hiflash.config import Config
from hiflash.config.settings import flatten, given_settings, read_plan
from hiflash.data.partition import parse_name
from hiflash.errors import ConfigError
from hiflash.sim.result import Result
from hiflash.study.arguments import check_arguments
from hiflash.study.cells import (
    Cell,
    check_count,
    listed,
    make_cells,
    saved,
    seed_numbers,
    split_own,
    target_metric,
)
from hiflash.study.observers import Observers
from hiflash.study.run_cells import run_cells

if TYPE_CHECKING:
    from hiflash.config.typed import Settings

__all__ = ["Sweep", "chosen_metric", "sweep", "sweep_cells"]

DEFAULT_SEEDS = 1
LONG_NAME = 70

COSTS = ("communications", "client_steps", "virtual_s", "wan_bytes", "total_cost")
"""The sort keys of every sweep: the cost to reach the target. Besides there is the outcome at the end."""


@dataclass(frozen=True)
class Sweep:
    """The results of a sweep, point by point and seed by seed.

    `files` are the tables and figures in its directory, if it has one.
    """

    cells: list[Cell]
    results: list[Result]
    by: str
    files: list[Path] = field(default_factory=list)

    @property
    def keys(self) -> list[str]:
        """Return the settings that were varied."""
        return list(self.cells[0].tags["point"])

    def numbers(self) -> list[dict[str, Any]]:
        """Return the contents of every cell's `result.json`, with its `point`: the varied settings."""
        return [
            {**cell.tags, **result.to_dict()} for cell, result in zip(self.cells, self.results, strict=True)
        ]

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per point with means and deviations over the seeds, the best first."""
        from hiflash.report.sweep import sweep_rows

        return sweep_rows(self.numbers(), self.by)

    def save(self, directory: Path) -> list[Path]:
        """Write cells and rows as CSV and JSON and draw the figure, and return the paths."""
        from hiflash.report.rows import flat, write_csv, write_json
        from hiflash.report.sweep_figures import draw_sweep

        numbers, rows = self.numbers(), self.rows()
        cells = [{**number["point"], **flat(number)} for number in numbers]
        return [
            write_csv(cells, directory / "cells.csv"),
            write_csv([{**row["point"], **_without_point(row)} for row in rows], directory / "sweep.csv"),
            write_json({"by": self.by, "cells": numbers, "rows": rows}, directory / "sweep.json"),
            *draw_sweep(numbers, self.by, directory / "sweep"),
        ]


def sweep(
    config: str | Path | None = None,
    *,
    grid: Mapping[str, Sequence[Any]] | None = None,
    seeds: int | Sequence[int] | None = None,
    by: str | None = None,
    directory: str | Path | None = None,
    processes: int = 1,
    observers: Observers | None = None,
    pause: Callable[[], bool] | None = None,
    data: Any = None,
    model: Any = None,
    federation: Any = None,
    indices: Sequence[Any] | None = None,
    **settings: Unpack[Settings],
) -> Sweep:
    """Run every combination of the values in `grid` with every seed and return all results.

    `grid={"cloud.alpha": [0.5, 0.7], "cloud.penalty": [0.9, 1.0]}` makes four points. Missing
    arguments come from the file's section `[sweep]`. `run_cells` explains `directory` and `processes`; table
    and figure go into the directory too.
    """
    check_arguments(
        file=config,
        seeds=seeds,
        directory=directory,
        processes=processes,
        observers=observers,
        pause=pause,
        data=data,
        model=model,
        federation=federation,
        indices=indices,
        grid=grid,
        by=by,
    )
    given, own = split_own({**settings}, data, model, federation, indices)
    cells = sweep_cells(config, grid=grid, seeds=seeds, settings=given)
    by = chosen_metric(config, by, cells)
    results = run_cells(
        cells, directory=directory, processes=processes, observers=observers, pause=pause, own=own
    )
    return saved(Sweep(cells, results, by), directory)


def sweep_cells(
    config: str | Path | None = None,
    *,
    grid: Mapping[str, Sequence[Any]] | None = None,
    seeds: int | Sequence[int] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> list[Cell]:
    """Return the cells of a sweep, or raise an error with all its problems."""
    file = read_plan(config, "sweep", ("grid", "seeds", "by"))
    above = flatten(settings or {})
    given = given_settings(config, above)
    axes = _axes(flatten(file.get("grid", {})) if grid is None else grid)
    numbers = seed_numbers(file.get("seeds", DEFAULT_SEEDS) if seeds is None else seeds)
    if "seed" in given:
        raise ConfigError("seed is not for a sweep; use seeds")
    for key in axes:
        if key in above:
            raise ConfigError(f"{key} is given and swept over; leave one of them out")
    check_count(math.prod(len(values) for values in axes.values()) * len(numbers))

    def make(wanted: tuple[Any, ...]) -> Cell:
        *values, seed = wanted
        point = dict(zip(axes, values, strict=True))
        own = Config.load(None, {**given, **point, "seed": seed})
        return Cell(_name(point, own), own, {"point": point})

    return make_cells(product(*axes.values(), numbers), make)


def chosen_metric(config: str | Path | None, by: str | None, cells: Sequence[Cell]) -> str:
    """Return the sort key of a sweep; the default without a target is the best of the task's metric."""
    by, first = by or read_plan(config, "sweep", ("grid", "seeds", "by")).get("by"), cells[0].config
    metric = target_metric(first).name
    known = tuple(dict.fromkeys((*COSTS, metric, f"best_{metric}", "loss")))
    if by is None:
        return f"best_{metric}" if first.stop.target == "none" else "communications"
    if by not in known:
        raise ConfigError(f"a sweep can be sorted by {', '.join(known)}, got {by}")
    return by


def _axes(grid: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """Return the values of every key, or raise an error for a key that cannot be swept over."""
    if not grid:
        raise ConfigError("a sweep needs settings to vary, e.g. --set cloud.alpha=0.5,0.7,0.9")
    for key, instead in (("method", "hiflash compare --methods"), ("seed", "seeds")):
        if key in grid:
            raise ConfigError(f"{key} cannot be swept over; use {instead}")
    axes = {}
    for key, values in grid.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise ConfigError(f"{key} needs a list of values to be swept over, got {values!r}")
        axes[key] = listed(key, values)
    for partition in axes.get("data.partition", ()):
        parse_name(str(partition))
    return axes


def _name(point: Mapping[str, Any], config: Config) -> str:
    """Return a folder name that tells the point and the seed: alpha0.5-penalty0.99-s0."""
    leaves = [key.rpartition(".")[2] for key in point]
    told = []
    for key, leaf, value in zip(point, leaves, point.values(), strict=True):
        text = value if isinstance(value, str) else json.dumps(value)
        name = leaf if leaves.count(leaf) == 1 else key
        told.append(name + re.sub(r"[^A-Za-z0-9.+-]+", "_", text).strip("_"))
    name = f"{'-'.join(told)}-s{config.seed}"
    return name if len(name) <= LONG_NAME else f"{name[:40]}-{config.digest()}"


def _without_point(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "point"}
