"""Compression of whole runs: what it saves is counted and timed, and it survives everything a run does."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import hiflash
from hiflash import Config
from hiflash.core.aggregation import combine_clients
from hiflash.core.compression import Payloads
from hiflash.core.cost import WanLink
from hiflash.core.edge import Edge, EdgeRules, Workload
from hiflash.errors import ConfigError, Paused
from hiflash.sim.federation import build
from hiflash.sim.simulator import Simulator
from hiflash.sim.world import World
from tiny import TINY, assert_same_run, make_tiny_model

Run = Callable[..., hiflash.Result]

# The tiny model: 36 * 5 + 5 + 5 * 4 + 4 = 209 values in 4 tensors.
BYTES = {"none": 836, "fp16": 418, "int8": 225, "topk": 168}  # 4, 2, 1 (+ 4 * 4) a value; 21 entries of 8
FLAT_ASYNC = {"method": "hifl", "federation__flat": True, "edge__edge_rounds": [1]}
METHODS: dict[str, dict[str, Any]] = {
    "hifl": {"method": "hifl"},
    "fedavg": {"method": "fedavg", "cloud__participants": 4},
    "hierfavg": {"method": "hierfavg"},
    "flat-async": FLAT_ASYNC,
}
PAIRS = [("fp16", "none"), ("none", "fp16"), ("int8", "none"), ("none", "int8"), ("topk", "none"),
         ("none", "topk"), ("topk", "topk"), ("topk", "int8")]  # fmt: skip


def wan(upload: str, download: str) -> dict[str, Any]:
    settings: dict[str, Any] = {"wan__upload": upload, "wan__download": download}
    return settings | ({"wan__topk": 0.1} if "topk" in (upload, download) else {})


def simulation(tiny_data: hiflash.Dataset, steps: int = 0, **settings: Any) -> Simulator:
    """Return a simulation of the tiny federation after so many events."""
    given = {**TINY, "data.name": "own", "model.name": "own", **settings}
    federation = build(Config.load(None, given), tiny_data, make_tiny_model)
    try:
        engine = federation.engine(lambda now, kind, row: None)
        assert isinstance(engine, Simulator)
        engine.start()
        for _ in range(steps):
            engine.step()
        return engine
    finally:
        federation.close()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("upload", "download"), PAIRS)
def test_bytes_are_those_of_the_payloads(method: str, upload: str, download: str, run_tiny: Run) -> None:
    settings = {**METHODS[method], **wan(upload, download), "stop__communications": 24}
    result = run_tiny(**settings, trainer="none")
    assert result.wan_bytes_up == 24 * BYTES[upload]
    grants = sum(result.grants_per_edge)
    first = sum(1 for count in result.grants_per_edge if count) if download == "topk" else 0
    assert grants > first
    assert result.wan_bytes_down == (grants - first) * BYTES[download] + first * BYTES["none"]
    assert result.wan_bytes == result.wan_bytes_up + result.wan_bytes_down
    if result.lan_bytes:
        assert result.lan_bytes_up == result.client_uploads * BYTES["none"]  # to the edge, as ever


@pytest.mark.parametrize("method", METHODS)
def test_sizes_and_times_are_the_same_without_training(method: str, run_tiny: Run) -> None:
    settings = METHODS[method] | wan("topk", "topk")
    trained, counted = run_tiny(**settings), run_tiny(**settings, trainer="none")
    for name in ("virtual_s", "wan_bytes_up", "wan_bytes_down", "grants_per_edge", "staleness"):
        assert getattr(trained, name) == getattr(counted, name)


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize(
    ("method", "upload", "download"),
    [
        *(("hifl", *pair) for pair in PAIRS),
        *((method, "topk", "topk") for method in METHODS if method != "hifl"),
    ],
)
def test_a_resumed_run_equals_an_undisturbed_one(
    method: str, upload: str, download: str, run_tiny: Run, resume_tiny: Run, tmp_path: Path
) -> None:
    settings = {**METHODS[method], **wan(upload, download), "stop__communications": 30}
    whole = run_tiny(**settings, directory=tmp_path / "whole")

    def pause_after(events: int) -> Callable[[], bool]:
        left = iter(range(events))
        return lambda: next(left, None) is None

    with pytest.raises(Paused):
        run_tiny(**settings, directory=tmp_path / "parts", pause=pause_after(60), workers=2)
    with pytest.raises(Paused):
        resume_tiny(tmp_path / "parts", pause=pause_after(25), workers=1)
    assert_same_run(whole, resume_tiny(tmp_path / "parts", workers=2))


@pytest.mark.parametrize("method", ["hifl", "fedavg"])
@pytest.mark.parametrize("codec", ["fp16", "int8", "topk"])
def test_compressed_runs_still_learn(method: str, codec: str, run_tiny: Run) -> None:
    settings = {**METHODS[method], "stop__communications": 200, "evaluate__every": 200}
    plain = run_tiny(**settings)
    squeezed = run_tiny(**settings, **wan(codec, codec))
    assert plain.accuracy is not None
    assert squeezed.accuracy is not None
    assert squeezed.digest != plain.digest
    assert squeezed.accuracy > plain.accuracy - 0.15


def test_batch_norm_statistics_are_part_of_what_is_compressed(tiny_data: hiflash.Dataset) -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(36, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 4))

    # 25 samples a client: a last batch of one would have no variance
    settings = {**TINY, "client.batch": 5, "stop.communications": 20}
    settings |= {"wan.upload": "int8", "wan.download": "topk"}
    result = hiflash.run(data=tiny_data, model=make, trainer="torch", **settings)
    # 185 + 4 * 5 + 24 values in 8 tensors, two of them running statistics
    assert result.wan_bytes_up == 20 * (229 + 8 * 4)
    assert result.loss is not None
    assert math.isfinite(result.loss)


def test_transfers_take_the_time_of_their_payload() -> None:
    world = World(
        compute_s=np.array([1.0]),
        send_s=np.array([0.5]),
        cost_unit_s=(1.0, 1.0),
        clusters=[[0]],
        links=[WanLink(rtt_s=0.5, bytes_per_s=1024.0, jitter=0.0)],
        payloads=Payloads(model=1024, first_down=1024, down=512, up=256),
        seed=0,
        fluctuation=None,
    )
    estimates = world.estimates(0, None)
    assert (estimates.down_s, estimates.up_s) == (0.75, 0.5)  # 0.25 + 512 / 1024, 0.25 + 256 / 1024
    edge = Edge(0, [0], [Workload(10, 1, 0.1, 1.0, 1)], EdgeRules((1,), seed=0), estimates, combine_clients)
    first, later = world.timeline(edge, 1, 10.0, first=True), world.timeline(edge, 2, 10.0)
    assert (first.starts_at, first.up_s) == (11.25, 0.5)
    assert (later.starts_at, later.up_s) == (10.75, 0.5)
    assert later.arrives_at == 10.75 + 1.5 + 0.5


def test_the_access_hop_of_a_flat_client_carries_what_it_uploads(tiny_data: hiflash.Dataset) -> None:
    plain = simulation(tiny_data, method="fedavg", **{"cloud.participants": 4})
    half = simulation(tiny_data, method="fedavg", **{"cloud.participants": 4, "wan.upload": "fp16"})
    assert (half.world.send_s * 2 == plain.world.send_s).all()
    edges = simulation(tiny_data, **{"wan.upload": "fp16"})
    assert (edges.world.send_s == simulation(tiny_data).world.send_s).all()


def test_without_compression_nothing_is_copied_or_kept(tiny_data: hiflash.Dataset) -> None:
    simulator = simulation(tiny_data, 100)
    assert simulator.ledger.communications > 0
    assert simulator.cloud.leases
    assert all(lease.received is lease.base for lease in simulator.cloud.leases.values())
    assert (simulator.training.uplink.residuals, simulator.cloud.download.held) == ({}, {})


def test_an_edge_keeps_what_an_upload_left_out_once_it_is_taken(tiny_data: hiflash.Dataset) -> None:
    simulator = simulation(tiny_data, 150, **{"wan.upload": "topk", "wan.topk": 0.1})
    applied = {edge for edge, count in enumerate(simulator.ledger.applied) if count}
    assert applied
    assert set(simulator.training.uplink.residuals) == applied
    assert all(np.count_nonzero(left) <= 209 - 21 for left in simulator.training.uplink.residuals.values())


def test_a_refused_upload_leaves_what_was_left_out_as_it_was(tiny_data: hiflash.Dataset) -> None:
    simulator = simulation(tiny_data, 150, **{"wan.upload": "topk", "cloud.norm_bound": 1e-9})
    assert simulator.ledger.rejected > 0
    assert simulator.training.uplink.residuals == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"wan.upload": "gzip"}, 'wan.upload must be "none", "fp16", "int8" or "topk", got "gzip"'),
        ({"wan.download": 8}, 'wan.download must be "none", "fp16", "int8" or "topk", got 8'),
        ({"wan.upload": "topk", "wan.topk": 0.0}, "wan.topk must be in (0, 0.5], got 0.0"),
        ({"wan.upload": "topk", "wan.topk": 0.6}, "wan.topk must be in (0, 0.5], got 0.6"),
        (
            {"wan.upload": "int8", "wan.topk": 0.1},
            'wan.topk is for wan.upload or wan.download = "topk", and here that is "int8" and "none"',
        ),
    ],
)
def test_wrong_settings_say_what_is_allowed(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config(**given)
    assert caught.value.problems[0].startswith(said)
