"""The rows behind the verdicts: what every label needed to the targets, where it ended, what was forecast."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from hiflash.errors import ConfigError
from hiflash.study.cells import Cell
from hiflash.study.paper.runs import Runs

__all__ = ["numbers_digest", "pooled", "rows_of", "with_forecast"]

MEASURES = ("communications", "client_steps", "virtual_s", "total_cost")


def rows_of(runs: Runs) -> list[dict[str, Any]]:
    """Return a row per partition and label: the end of its runs, and what it took to the targets."""
    pairs = dict.fromkeys((str(cell["partition"]), str(cell["label"])) for cell in runs.cells)
    return [
        {
            "partition": partition,
            "label": label,
            "seeds": len(runs.of(label, partition)),
            "target": runs.target,
            **_needs(runs, label, partition, runs.target),
            "to": [{"target": each, **_needs(runs, label, partition, each)} for each in runs.targets],
            "spent": runs.mean(label, "communications", partition),
            "accuracy": runs.mean(label, "accuracy", partition),
            "best_accuracy": runs.mean(label, "best_accuracy", partition),
            "total_js": runs.mean(label, "total_js", partition),
            "response_latency_ms": runs.mean(label, "response_latency_ms", partition),
            "waiting_ms": runs.mean(label, "waiting_ms", partition),
        }
        for partition, label in pairs
    ]


def numbers_digest(numbers: object) -> str:
    """Return the digest of numbers as JSON has them, to tell whether those made elsewhere are the same."""
    read_back = json.loads(json.dumps(numbers))
    return hashlib.sha256(json.dumps(read_back, sort_keys=True).encode()).hexdigest()


def with_forecast(
    rows: Sequence[dict[str, Any]], cells: Sequence[Cell], target: float
) -> list[dict[str, Any]]:
    """Return the rows with `forecast`: communications and virtual seconds of the law, made without runs.

    It is None where the law does not say, as on a partition whose constant is not known.
    """
    from hiflash.study.forecast.study import find_constants, forecast_cells

    told: list[dict[str, Any]] = []
    for partition in dict.fromkeys(cell.config.data.partition for cell in cells if not pooled(cell)):
        own = [_aimed(cell, target) for cell in cells if cell.config.data.partition == partition]
        own = [cell for cell in own if not pooled(cell)]
        with suppress(ConfigError):
            told += forecast_cells(own, find_constants(own)).rows()
    known = {
        (row["partition"], row["label"]): {name: row[name] for name in ("communications", "virtual_s")}
        for row in told
    }
    return [{**row, "forecast": known.get((row["partition"], row["label"]))} for row in rows]


def pooled(cell: Cell) -> bool:
    """Return whether a cell trains on pooled data, so that it has no partition."""
    return cell.config.cloud.schedule == "centralized"


def _aimed(cell: Cell, target: float) -> Cell:
    """Return a cell that stops at the target, which is what a forecast is about."""
    return replace(cell, config=cell.config.with_settings({"stop.target": target}))


def _needs(runs: Runs, label: str, partition: str, target: float | None) -> dict[str, Any]:
    taken = {name: runs.to_target(label, partition, name, target) for name in MEASURES}
    return {
        **taken,
        "communications_range": runs.range_to_target(label, partition, target),
        "stable_communications": runs.stable(label, partition, target),
    }
