"""Several methods over several partitions and seeds with the same data and budget, side by side."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from hiflash.config import Config
from hiflash.config.settings import flatten, merged, read_plan, read_settings
from hiflash.config.tree import inapplicable
from hiflash.data.partition import parse_name
from hiflash.errors import ConfigError
from hiflash.methods.recipes import METHODS
from hiflash.sim.result import Result
from hiflash.study.arguments import check_arguments
from hiflash.study.cells import Cell, check_count, listed, make_cells, saved, seed_numbers, split_own
from hiflash.study.observers import Observers
from hiflash.study.run_cells import run_cells

if TYPE_CHECKING:
    from hiflash.config.typed import Settings

__all__ = ["Comparison", "compare", "comparison_cells"]

DEFAULT_METHODS = ("fedavg", "hierfavg", "hifl")
DEFAULT_SEEDS = 2
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,39}")

Variants = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Comparison:
    """The results of a comparison, label by label, partition by partition and seed by seed.

    `files` are the tables and figures in its directory, if it has one.
    """

    cells: list[Cell]
    results: list[Result]
    files: list[Path] = field(default_factory=list)

    def numbers(self) -> list[dict[str, Any]]:
        """Return the contents of every cell's `result.json`, with its `label`."""
        return [
            {**cell.tags, **result.to_dict()} for cell, result in zip(self.cells, self.results, strict=True)
        ]

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per partition, label and target with means and deviations over the seeds.

        If nothing was trained there are no targets: the rows have what a client round takes.
        """
        from hiflash.report.summary import target_rows
        from hiflash.report.work import is_untrained, work_rows

        numbers = self.numbers()
        return work_rows(numbers) if is_untrained(numbers) else target_rows(numbers)

    def save(self, directory: Path) -> list[Path]:
        """Write cells and rows as CSV and JSON and draw the figures, and return the paths."""
        from hiflash.report.compare_figures import draw_compare
        from hiflash.report.rows import flat, write_csv, write_json
        from hiflash.report.work import is_untrained
        from hiflash.report.work_figures import draw_work

        numbers, rows = self.numbers(), self.rows()
        draw = draw_work if is_untrained(numbers) else draw_compare
        return [
            write_csv([flat(cell) for cell in numbers], directory / "cells.csv"),
            write_csv(rows, directory / "compare.csv"),
            write_json({"cells": numbers, "rows": rows}, directory / "compare.json"),
            *draw(numbers, directory),
        ]


def compare(
    config: str | Path | None = None,
    *,
    methods: Sequence[str] | None = None,
    variants: Variants | None = None,
    partitions: Sequence[str] | None = None,
    seeds: int | Sequence[int] | None = None,
    directory: str | Path | None = None,
    processes: int = 1,
    observers: Observers | None = None,
    pause: Callable[[], bool] | None = None,
    data: Any = None,
    model: Any = None,
    federation: Any = None,
    indices: Sequence[Any] | None = None,
    **settings: Unpack[Settings],
) -> Comparison:
    """Run every method and variant on every partition with every seed and return all results.

    A variant is a method with settings of its own under a label: `variants={"delta": {"method": "hifl",
    "cloud.mixing": "delta"}}`. Missing arguments come from the file's section `[compare]`. A method is run
    without the settings that do not apply to it. `run_cells` explains `directory` and `processes`; tables and
    figures go into the directory too.
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
        methods=methods,
        variants=variants,
        partitions=partitions,
    )
    given, own = split_own({**settings}, data, model, federation, indices)
    if indices is not None and partitions is not None:
        raise ConfigError("partitions and indices both assign samples to clients; leave one of them out")
    cells = comparison_cells(
        config, methods=methods, variants=variants, partitions=partitions, seeds=seeds, settings=given
    )
    results = run_cells(
        cells, directory=directory, processes=processes, observers=observers, pause=pause, own=own
    )
    return saved(Comparison(cells, results), directory)


def comparison_cells(
    config: str | Path | None = None,
    *,
    methods: Sequence[str] | None = None,
    variants: Variants | None = None,
    partitions: Sequence[str] | None = None,
    seeds: int | Sequence[int] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> list[Cell]:
    """Return the cells of a comparison, or raise an error with all its problems."""
    file = read_plan(config, "compare", ("methods", "variants", "partitions", "seeds"))
    methods = file.get("methods") if methods is None else methods
    variants = file.get("variants") if variants is None else variants
    partitions = file.get("partitions") if partitions is None else partitions
    seeds = file.get("seeds", DEFAULT_SEEDS) if seeds is None else seeds
    below, above = read_settings(config), flatten(settings or {})
    # The method of a file is for `hiflash run`; here it joins the default methods if none are listed.
    of_file = below.pop("method", None)
    given = merged(below, above)
    for name in ("method", "seed"):
        if name in given:
            raise ConfigError(f"{name} is not for a comparison; use methods and seeds")
    if partitions is not None:
        if "data.partition" in above:
            raise ConfigError("data.partition and partitions are both given; leave one of them out")
        partitions = listed("partitions", partitions)
        if not partitions:
            raise ConfigError("partitions must be a list like iid,noniid2,noniid1, got none")
        for partition in partitions:
            parse_name(str(partition))
    if methods is None and not variants:
        methods = [*DEFAULT_METHODS]
        if of_file not in (None, *DEFAULT_METHODS):
            methods.append(str(of_file))
    recipes = _recipes(methods, variants)
    _check_useful(given, recipes)
    numbers = seed_numbers(seeds)
    check_count(len(recipes) * len(numbers) * len(partitions or [None]))
    wanted = product([None] if partitions is None else partitions, recipes, numbers)
    cells = make_cells(wanted, lambda each: _cell(each[1], recipes[each[1]], given, each[0], each[2]))
    # A run on pooled data is the same for every partition.
    return list({cell.name: cell for cell in cells}.values())


def _recipes(methods: Sequence[str] | None, variants: Variants | None) -> dict[str, dict[str, Any]]:
    """Return the settings of every label: a method alone, or a variant of one."""
    methods = listed("methods", methods) if methods else []
    methods = [name for method in methods for name in (METHODS if method == "all" else (method,))]
    unknown = [method for method in methods if method not in METHODS]
    if unknown or not (methods or variants):
        raise ConfigError(
            f"methods must be all or some of {', '.join(METHODS)}, got {', '.join(unknown) or 'none'}"
        )
    recipes: dict[str, dict[str, Any]] = {name: {"method": name} for name in listed("methods", methods)}
    if not isinstance(variants or {}, Mapping) or not all(
        isinstance(v, Mapping) for v in (variants or {}).values()
    ):
        raise ConfigError("variants must be sections: [compare.variants.LABEL] with a method and settings")
    for label, variant in (variants or {}).items():
        recipe = flatten(variant)
        # A label that is a method's name gives that method settings of its own.
        other = label in METHODS and recipe.get("method") != label
        if not LABEL.fullmatch(label) or other or label == "all":
            raise ConfigError(
                f"the label of a variant has up to 40 letters, digits, '.', '_', '+' and '-' and is not the "
                f"name of another method, got {label[:60]!r}"
            )
        recipes[label] = recipe
        method = recipes[label].get("method")
        if method not in METHODS:
            raise ConfigError(f"variant {label} needs a method, one of {', '.join(METHODS)}, got {method}")
        for key in ("seed", "data.partition"):
            if key in recipes[label]:
                raise ConfigError(f"variant {label} cannot have {key}: all variants share it; leave it out")
    return recipes


def _check_useful(given: Mapping[str, Any], recipes: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse settings that apply to no method of the comparison."""
    left_out = [inapplicable(recipe["method"], {**given, **recipe}) for recipe in recipes.values()]
    useless = set(given).intersection(*left_out)
    if useless:
        labels = ", ".join(recipes)
        raise ConfigError([f"{key} applies to none of {labels}; leave it out" for key in sorted(useless)])


def _cell(
    label: str, recipe: Mapping[str, Any], given: Mapping[str, Any], partition: str | None, seed: int
) -> Cell:
    left_out = inapplicable(recipe["method"], {**given, **recipe})
    kept = {key: value for key, value in given.items() if key not in left_out}
    if partition is not None:
        kept["data.partition"] = partition
    config = Config.load(None, {**kept, **recipe, "seed": seed})
    if config.cloud.schedule != "centralized":
        return Cell(f"{label}-{config.data.partition}-s{seed}", config, {"label": label})
    kept.pop("data.partition", None)
    config = Config.load(None, {**kept, **recipe, "seed": seed})
    return Cell(f"{label}-s{seed}", config, {"label": label})
