"""Results and means as CSV and JSON, for other programs."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hiflash.report.measures import COSTS
from hiflash.report.summary import Result
from hiflash.store.files import replacing, write_atomic

__all__ = ["flat", "write_csv", "write_json"]


def write_csv(rows: Sequence[Mapping[str, Any]], path: Path) -> Path:
    """Write flat rows with the union of their columns and return the path."""
    columns = dict.fromkeys(name for row in rows for name in row)
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(columns), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_json(content: Mapping[str, Any], path: Path) -> Path:
    """Write an object as JSON and return the path."""
    write_atomic(path, json.dumps(content) + "\n")
    return path


def flat(result: Result) -> dict[str, Any]:
    """Return a result as one row: its scalars, its staleness and the measures at every target."""
    row = {
        name: value for name, value in result.items() if value is None or isinstance(value, str | int | float)
    }
    row |= {name: value for name, value in result.get("scores", {}).items() if name not in row}
    row |= {
        f"clients_{name}": result["clients"][name]
        for name in ("mean", "std", "worst_tenth")
        if result.get("clients")
    }
    row |= {f"validation_{name}": value for name, value in _validation(result).items()}
    row |= {f"staleness_{name}": result["staleness"][name] for name in ("mean", "max")}
    kinds = {
        "targets": "target",
        "targets_stable": "stable_target",
        "targets_interpolated": "interpolated_target",
    }
    for kind, prefix in kinds.items():
        for target, state in result.get(kind, {}).items():
            row |= {f"{prefix}_{target}_{name}": state[name] if state else None for name in COSTS}
    return row


def _validation(result: Result) -> Mapping[str, Any]:
    """Return the scalars and the last metrics on the validation set, if there is one."""
    told = result.get("validation") or {}
    numbers = {name: told[name] for name in ("samples", "best", "test_at_best") if told}
    return {**numbers, **told.get("scores", {})}
