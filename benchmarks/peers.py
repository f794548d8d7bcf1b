"""FedAvg in our simulation and in Flower's: the same clients, model and batch on the same two cores."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np

import hiflash
from benchmarks.flower import measure
from benchmarks.loop import mnist

__all__ = ["flower_epochs_ratio", "flower_steps_ratio"]

WORK = Path("runs") / "bench-flower"


def flower_epochs_ratio() -> dict[str, Any]:
    """Return our steps per second over Flower's steady state at 3 local epochs, and with its start-up."""
    return _ratio("epochs", rounds=8, ours={"local_epochs": 3}, communications=300)


def flower_steps_ratio() -> dict[str, Any]:
    """Return our steps per second over Flower's steady state at 3 local steps, and with its start-up."""
    return _ratio("steps", rounds=22, ours={"local_steps": 3}, communications=1500)


def _ratio(kind: str, rounds: int, ours: dict[str, int], communications: int) -> dict[str, Any]:
    before = _steps_per_s(ours, communications)
    flower = measure(kind, rounds, WORK)
    name = f"flower_{kind}_ratio"
    if flower["skipped"]:
        return {name: None, f"{name}_skipped": flower["skipped"]}
    rate = statistics.mean([before, _steps_per_s(ours, communications)])
    return {
        name: rate / flower["steps_per_s"],
        f"{name}_with_startup": rate / flower["steps_per_s_with_startup"],
    }


def _steps_per_s(client: dict[str, int], communications: int) -> float:
    """Return the client steps per second of our FedAvg: 100 clients, 600 images each, 10 a round."""
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
    return result.client_steps / result.wall_s
