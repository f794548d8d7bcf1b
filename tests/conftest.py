"""Small federations that run in milliseconds, on data made here."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
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


@pytest.fixture(scope="session")
def tiny_data() -> hiflash.Dataset:
    return make_tiny_data()


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the drawing, which takes longer than a tiny run."""
    monkeypatch.setattr("hiflash.experiment._draw", lambda result, stem: None)


@pytest.fixture
def run_tiny(tiny_data: hiflash.Dataset) -> Callable[..., hiflash.Result]:
    def run(method: str = "hifl", directory: Path | None = None, pause: Any = None, **settings: Any) -> Any:
        settings = {**TINY, **{key.replace("__", "."): value for key, value in settings.items()}}
        if method == "hierfavg":
            settings.setdefault("edge.clients_per_round", 2)
        return hiflash.run(
            method=method, data=tiny_data, model=make_tiny_model, directory=directory, pause=pause, **settings
        )

    return run


@pytest.fixture
def resume_tiny(tiny_data: hiflash.Dataset) -> Callable[..., hiflash.Result]:
    def resume(directory: Path, **more: Any) -> hiflash.Result:
        return hiflash.resume(directory, data=tiny_data, model=make_tiny_model, **more)

    return resume


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the folder of the real datasets, or skip with the reason."""
    folder = os.environ.get("HIFLASH_DATA")
    if not folder:
        pytest.skip("HIFLASH_DATA is not set: the real datasets are not here")
    return Path(folder)


def assert_same_run(one: hiflash.Result, other: hiflash.Result) -> None:
    """Assert that two runs agree in everything but the time they took and where they were saved."""
    left, right = one.to_dict(), other.to_dict()
    for name in ("wall_s", "name"):
        left.pop(name), right.pop(name)
    assert left == right
    if one.path and other.path:
        assert (one.path / "events.jsonl").read_bytes() == (other.path / "events.jsonl").read_bytes()
