"""A federation that runs in milliseconds, on data made here."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import hiflash

TINY = {
    "federation.clients": 12,
    "federation.edges": 4,
    "client.batch": 8,
    "client.lr": 0.05,
    "data.partition": "noniid2",
    "evaluate.every": 5,
    "stop.target": "none",
    "stop.communications": 60,
    "workers": 1,
}


def make_tiny_data() -> hiflash.Dataset:
    """Return 400 noisy 6x6 pictures of four classes, 100 of them for testing."""
    stream = np.random.default_rng(7)
    patterns = stream.normal(size=(4, 6, 6))
    y = np.arange(400) % 4
    x = (patterns[y] + 0.7 * stream.normal(size=(400, 6, 6))).astype(np.float32)
    return hiflash.Dataset.from_arrays(x[:300], y[:300], x[300:], y[300:], classes=4)


def make_tiny_model() -> nn.Module:
    """Return a network with 212 parameters."""
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 5), nn.ReLU(), nn.Linear(5, 4))


def make_norm_model() -> nn.Module:
    """Return one with BatchNorm, 219 parameters and 10 running statistics."""
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 4))


def train_named(model: nn.Module, data: Any, context: Any) -> dict[str, Any]:
    """Train a client with a state, an array and a metric; its name is `tiny:train_named`."""
    tasks = int(context.state.get("tasks", 0)) + 1
    context.state["tasks"] = tasks
    for batch in context.batches(data):
        model.zero_grad()
        functional.cross_entropy(model(batch.x), batch.y).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(context.lr * (parameter.grad + 1e-3 * torch.randn(1)))
    return {"tasks": tasks, "classes": np.float32([data.y.min(), data.y.max()])}


def assert_same_run(one: hiflash.Result, other: hiflash.Result) -> None:
    """Assert that two runs agree in everything but the time they took and where they were saved."""
    left, right = one.to_dict(), other.to_dict()
    for name in ("wall_s", "name"):
        left.pop(name), right.pop(name)
    assert left == right
    if one.path and other.path:
        assert (one.path / "events.jsonl").read_bytes() == (other.path / "events.jsonl").read_bytes()
