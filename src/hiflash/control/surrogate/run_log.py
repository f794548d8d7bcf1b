"""Reads the run log that a surrogate is fitted to from a run directory."""

from __future__ import annotations

import json
from pathlib import Path

from hiflash.config import Config
from hiflash.control.surrogate.fit import RunLog
from hiflash.control.surrogate.stand_in import check_representable, edge_labels
from hiflash.data import Dataset
from hiflash.errors import RunError
from hiflash.methods.registry import make
from hiflash.sim.population import populate
from hiflash.sim.record import VALIDATION
from hiflash.store.checksums import check_file
from hiflash.weights import Spec

__all__ = ["read_log"]


def read_log(path: Path, data: Dataset | None, spec: Spec) -> RunLog:
    """Return the applied updates and the evaluations of a run."""
    for name in ("config.toml", "events.jsonl"):
        check_file(path, name, "remove its folder and run it again")
    config = Config.load(path / "config.toml")
    check_representable(config)
    shares, overall = edge_labels(populate(config, data, None, spec.size))
    watched = f"{VALIDATION}accuracy" if config.evaluate.validation else "accuracy"
    granted: dict[int, tuple[int, int]] = {}
    updates: list[tuple[int, int, int]] = []
    evaluations: list[tuple[int, float]] = []
    try:
        for line in (path / "events.jsonl").read_bytes().splitlines():
            row = json.loads(line)
            if row["event"] == "grant":
                granted[row["lease"]] = (row["version"], row["rounds"])
            elif row["event"] == "upload" and row["status"] == "applied":
                updates.append((row["edge"], *granted[row["lease"]]))
            elif row["event"] == "evaluate":
                # A surrogate stands for the set on which runs stop.
                evaluations.append((row["version"], row[watched]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunError(f"{path}/events.jsonl is not the log of a run ({error}); run it again") from None
    # A model of the surrogate has two numbers for every edge, all of them learned.
    return RunLog(
        shares,
        overall,
        updates,
        evaluations,
        make("mixing", config, 2 * len(shares)),
        config.seed,
    )
