"""Forecasts beside the committed results of the paper's items (`docs/results/paper/*.json`).

An item without FedAvg takes its constant from one that has it, or a known one. FedAvg's rows do not count.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.committed_tables import RESULTS, Measured
from hiflash.config import Config
from hiflash.errors import ConfigError
from hiflash.study.cells import Cell
from hiflash.study.compare import comparison_cells
from hiflash.study.forecast.constants import Constant, find_constant, is_fedavg, same_task
from hiflash.study.forecast.scope import beyond_scope
from hiflash.study.forecast.study import forecast_cells
from hiflash.study.paper.items import Item, Plan, load_item
from hiflash.study.paper.parameter_rules import point_label
from hiflash.study.paper.rows import pooled
from hiflash.study.sweep import sweep_cells

__all__ = ["Committed", "committed_items", "forecast_item"]

PAPER = RESULTS / "paper"


@dataclass(frozen=True)
class Committed:
    """An item with its committed rows, and the cells that they are the means of, aimed at its target."""

    name: str
    measured: Mapping[tuple[str, str], Measured]
    cells: Sequence[Cell]

    def constants(self) -> Iterator[tuple[Config, Constant]]:
        """Yield the constants that FedAvg's rows are, each with a configuration of its task."""
        for cell in self.cells:
            row = self.measured.get(_key(cell))
            if row is not None and row.communications is not None and is_fedavg(cell.config):
                rounds = row.communications / cell.config.cloud.participants
                yield cell.config, Constant(rounds, f"FedAvg in {self.name}")


def committed_items(folder: Path = PAPER) -> list[Committed]:
    """Return the items with rows to a target. One that only reads the runs of another has none of its own."""
    found = []
    for file in sorted(folder.glob("*.json")):
        told = json.loads(file.read_text())
        item = load_item(told["item"])
        plan = item.plan(told["scale"])
        if item.kind not in ("compare", "sweep") or item.runs_of or plan.get("target") is None:
            continue
        if told["changed"]:
            raise ValueError(f"{file.name} was made with changed settings: {told['changed']}")
        measured = {(row["partition"], row["label"]): _measured(row) for row in told["rows"]}
        found.append(Committed(item.name, measured, _cells(item, plan)))
    return found


def forecast_item(
    item: Committed, items: Sequence[Committed]
) -> Iterator[tuple[Measured, dict[str, Any], str]]:
    """Yield every row of an item but FedAvg's: as measured, as forecast, and its partition."""
    wanted = [
        cell
        for cell in item.cells
        if _key(cell) in item.measured and not is_fedavg(cell.config) and not beyond_scope(cell.config)
    ]
    constants = {}
    for cell in wanted:
        with suppress(ConfigError):  # a task that nobody has measured has no forecast
            constants["/".join(_key(cell))] = _constant(cell.config, item, items)
    cells = [cell for cell in wanted if "/".join(_key(cell)) in constants]
    for row in forecast_cells(cells, constants).rows() if cells else ():
        yield item.measured[row["partition"], row["label"]], row, row["partition"]


def _constant(config: Config, item: Committed, items: Sequence[Committed]) -> Constant:
    """Return the item's own constant, or one of runs evaluated as often: rare tests make needs larger."""
    own = [constant for other, constant in item.constants() if same_task(config, other)]
    others = [
        constant
        for each in items
        for other, constant in each.constants()
        if same_task(config, other) and other.evaluate.every == config.evaluate.every
    ]
    return next(iter([*own, *others]), None) or find_constant(config, None, [])


def _key(cell: Cell) -> tuple[str, str]:
    return cell.config.data.partition, cell.tags["label"]


def _measured(row: Mapping[str, Any]) -> Measured:
    """Return a committed row; its means are there only if every seed reached the target."""
    reached = 0 if row["communications"] is None else row["seeds"]
    return Measured(row["label"], row["seeds"], reached, row["communications"], row["virtual_s"])


def _cells(item: Item, plan: Plan) -> list[Cell]:
    """Return the cells of an item, as its study makes them, which stop at its target."""
    if item.kind == "sweep":
        made = sweep_cells(grid=plan["grid"], seeds=plan["seeds"], settings=plan.settings)
        cells = [replace(cell, tags={"label": point_label(cell.tags["point"])}) for cell in made]
    else:
        cells = comparison_cells(
            methods=plan.get("methods"), variants=plan.variants, partitions=plan.get("partitions"),
            seeds=plan["seeds"], settings=plan.settings,
        )  # fmt: skip
    aim = {"stop.target": plan["target"]}
    return [replace(cell, config=cell.config.with_settings(aim)) for cell in cells if not pooled(cell)]
