"""FedAvg in our simulation and in Flower's: the same clients, model and batch on the same two cores."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import hiflash
from benchmarks.flower import measure
from benchmarks.loop import mnist

__all__ = ["flower_epochs_ratio", "flower_steps_ratio"]

WORK = Path("runs") / "bench-flower"


def flower_epochs_ratio() -> dict[str, Any]:
    """Return our steps per second over Flower's steady state at 3 local epochs, and both with start-up."""
    return _ratio("epochs", rounds=8, ours={"local_epochs": 3}, communications=300)


def flower_steps_ratio() -> dict[str, Any]:
    """Return our steps per second over Flower's steady state at 3 local steps, and both with start-up."""
    return _ratio("steps", rounds=22, ours={"local_steps": 3}, communications=1500)


def _ratio(kind: str, rounds: int, ours: dict[str, int], communications: int) -> dict[str, Any]:
    before = _measure_ours(ours, communications)
    flower = measure(kind, rounds, WORK)
    name = f"flower_{kind}_ratio"
    if flower["skipped"]:
        return {name: None, f"{name}_skipped": flower["skipped"]}
    after = _measure_ours(ours, communications)
    rate, startup_s = (statistics.mean(pair) for pair in zip(before, after, strict=True))
    return {
        name: rate / flower["steps_per_s"],
        f"{name}_with_startup": ratio_with_startup(rate, startup_s, flower),
    }


def ratio_with_startup(steps_per_s: float, startup_s: float, flower: Mapping[str, float]) -> float:
    """Return the time of Flower's whole process over the time of ours, for the same number of steps."""
    steps = flower["steps_per_s_with_startup"] * flower["total_s"]
    return flower["total_s"] / (startup_s + steps / steps_per_s)


def _measure_ours(client: dict[str, int], communications: int) -> tuple[float, float]:
    """Return our steps per second, and the start-up seconds of a new process: imports, data, set-up."""
    command = [sys.executable, "-m", "benchmarks.peers", json.dumps(client), str(communications)]
    begun = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    total_s = time.perf_counter() - begun
    ours = json.loads(done.stdout)
    return ours["client_steps"] / ours["wall_s"], total_s - ours["wall_s"]


def _run_ours(client: dict[str, int], communications: int) -> dict[str, float]:
    """Return steps and seconds of our FedAvg: 100 clients, 600 images each, 10 a round."""
    own: dict[str, Any] = {"data": {"name": "mnist", "partition": "iid"}}
    if mnist() != "mnist":
        x = np.random.default_rng(0).integers(256, size=(60_000, 28, 28), dtype=np.uint8)
        y = np.arange(60_000) % 10
        own = {"data": hiflash.Dataset.from_arrays(x, y, x[:1000], y[:1000]), "model": {"name": "lenet"}}
    result = hiflash.run(
        method="fedavg",
        workers=2,
        client=client,
        evaluate={"every": 1_000_000},
        stop={"target": "none", "communications": communications, "client_steps": "none"},
        **own,
    )
    return {"client_steps": result.client_steps, "wall_s": result.wall_s}


if __name__ == "__main__":
    print(json.dumps(_run_ours(json.loads(sys.argv[1]), int(sys.argv[2]))))
