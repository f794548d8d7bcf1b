"""A federation that runs in milliseconds, on data made here."""

from __future__ import annotations

import numpy as np
from torch import nn

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


def assert_same_run(one: hiflash.Result, other: hiflash.Result) -> None:
    """Assert that two runs agree in everything but the time they took and where they were saved."""
    left, right = one.to_dict(), other.to_dict()
    for name in ("wall_s", "name"):
        left.pop(name), right.pop(name)
    assert left == right
    if one.path and other.path:
        assert (one.path / "events.jsonl").read_bytes() == (other.path / "events.jsonl").read_bytes()
