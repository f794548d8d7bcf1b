"""Every method as a whole: the equalities that hold between them, and that each survives a pause."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hiflash
from hiflash.errors import ConfigError, Paused
from hiflash.methods.recipes import METHODS
from hiflash.sim.federation import build
from tiny import TINY, make_tiny_data, make_tiny_model

Run = Callable[..., hiflash.Result]

SOME: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "fedprox": {},
    "scaffold": {},
    "feddyn": {},
    "fednova": {"client.local_epochs": 1},
    "fedavgm": {},
    "fedadam": {},
    "fedyogi": {},
    "tifl": {"cloud.tiers": 3, "cloud.participants": 2, "cloud.tier_interval": 4},
    "fedasync": {"cloud.concurrency": 4},
    "fedbuff": {"cloud.concurrency": 4, "cloud.buffer": 3},
    "fedat": {},
    "hierfavg": {},
    "hifl": {},
    "hiflash": {},
    "hidelta": {},
}


def test_every_federated_method_is_tried_here() -> None:
    assert set(SOME) == set(METHODS) - {"centralized"}


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize("method", SOME)
def test_a_paused_run_ends_like_one_that_was_not(
    method: str, run_tiny: Run, resume_tiny: Run, tmp_path: Path
) -> None:
    whole = run_tiny(method, **SOME[method])
    asked = iter(range(10**6))
    with pytest.raises(Paused):
        run_tiny(method, directory=tmp_path / "run", pause=lambda: next(asked) > 90, **SOME[method])
    resumed = resume_tiny(tmp_path / "run", workers=2)
    left, right = whole.to_dict(), resumed.to_dict()
    for name in ("wall_s", "name"):
        left.pop(name), right.pop(name)
    assert left == right
    assert whole.communications == 60


def test_fedat_with_one_tier_is_fedprox(run_tiny: Run) -> None:
    fedprox = run_tiny("fedprox", **{"client.mu": 0.4, "cloud.participants": 12, "stop.communications": 120})
    fedat = run_tiny("fedat", **{"federation.edges": 1, "stop.communications": 10})
    assert fedat.version == fedprox.version == 10
    assert fedat.digest == fedprox.digest


def test_exponential_without_penalty_is_fedasync_constant(run_tiny: Run) -> None:
    constant = run_tiny("fedasync", **{"cloud.weighting": "constant"})
    exponential = run_tiny("fedasync", **{"cloud.weighting": "exponential", "cloud.penalty": 1.0})
    assert constant.digest == exponential.digest
    assert constant.digest != run_tiny("fedasync").digest


def test_a_buffer_of_one_is_delta_mixing(run_tiny: Run) -> None:
    common = {"cloud.concurrency": 4, "cloud.alpha": 1.0}
    buffered = run_tiny("fedbuff", **common, **{"cloud.buffer": 1})
    delta = run_tiny("fedbuff", **common, **{"cloud.mixing": "delta"})
    assert buffered.version == delta.version == buffered.communications - buffered.discarded
    np.testing.assert_allclose(buffered.weights, delta.weights, atol=1e-6)


def test_tifl_with_one_tier_is_fedavg(run_tiny: Run) -> None:
    tifl = run_tiny("tifl", **{"cloud.tiers": 1})
    assert tifl.version == run_tiny("fedavg").version
    everyone = {"cloud.participants": 12, "stop.communications": 120}
    assert run_tiny("tifl", **{"cloud.tiers": 1}, **everyone).digest == run_tiny("fedavg", **everyone).digest


def test_fedbuffs_leftover_buffer_is_wasted(run_tiny: Run) -> None:
    # 60 uploads, none too old, in tens of 7: 8 flushes, 4 left over; 3 steps each
    settings = {"cloud.buffer": 7, "cloud.threshold": "inf", "stop.communications": 60}
    result = run_tiny("fedbuff", **settings)
    assert (result.communications, result.version) == (60, 60 // 7)
    assert sum(result.applied_per_edge) == 7 * 8
    assert result.wasted_client_steps == 3 * 4
    assert sum(result.staleness["histogram"].values()) == 7 * 8


@pytest.mark.usefixtures("no_figures")
def test_fedasync_keeps_ten_clients_busy(run_tiny: Run, tmp_path: Path) -> None:
    result = run_tiny("fedasync", tmp_path / "run", **{"cloud.threshold": "inf"})
    rows = [json.loads(line) for line in (tmp_path / "run/events.jsonl").read_text().splitlines()]
    running, at_uploads = 0, []
    for row in rows:
        if row["event"] == "upload":
            at_uploads.append(running)
        running += (row["event"] == "grant") - (row["event"] == "upload")
    assert at_uploads == [10] * 60  # whoever comes back is replaced before the next one does
    assert result.discarded == 0


def test_fedat_weights_slow_tiers_by_the_counts_of_fast_ones(run_tiny: Run) -> None:
    result = run_tiny("fedat", **{"cloud.threshold": "inf", "wan": "off", "resources.slot_s": 1e-4})
    counts = result.applied_per_edge
    assert counts[0] > counts[-1] > 0  # tier 0 is the fastest


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("fedasync", {"federation.flat": False, "federation.association": "latency"}),
        ("fedat", {"cloud.mixing": "delta", "cloud.alpha": 1.0}),
        ("hifl", {"client.mu": 0.1}),
        ("hifl", {"cloud.mixing": "buffer", "cloud.buffer": 2}),
        ("hifl", {"cloud.weighting": "hinge"}),
        ("hifl", {"cloud.threshold": "parallel", "cloud.enforce": "discard"}),
        ("hifl", {"cloud.threshold": "latency"}),
        ("hifl", {"cloud.threshold": "skip_slowest", "cloud.skipped": 1}),
        ("hifl", {"cloud.concurrency": 2}),
        ("hierfavg", {"cloud.selection": "tiers", "cloud.tiers": 2}),
    ],
)
def test_parts_mix_freely(method: str, settings: dict[str, Any], run_tiny: Run) -> None:
    result = run_tiny(method, **settings)
    assert result.communications == 60
    assert result.accuracy is not None
    assert result.accuracy > 0.3  # four classes: chance is a quarter


def test_skipping_the_slowest_leaves_them_out(run_tiny: Run) -> None:
    result = run_tiny("hifl", **{"cloud.threshold": "skip_slowest", "cloud.skipped": 2})
    grants = sorted(result.grants_per_edge)
    assert grants[:2] == [0, 0]
    assert grants[2] > 0
    assert result.refused > 0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"method": "fedat", "cloud.alpha": 0.5}, "cloud.alpha is for cloud.mixing"),
        ({"method": "fedasync", "cloud.penalty": 0.9}, "cloud.penalty is for cloud.weighting"),
        ({"method": "hifl", "cloud.buffer": 3}, 'cloud.buffer is for cloud.mixing = "buffer"'),
        ({"method": "hifl", "cloud.parallelism": 2}, 'is for cloud.threshold = "parallel"'),
        ({"method": "fedavg", "cloud.tiers": 2}, 'is for cloud.selection = "tiers"'),
        ({"method": "tifl", "cloud.tiers": 101}, "must not exceed federation.clients (100)"),
        ({"method": "hifl", "cloud.threshold": "skip_slowest", "cloud.skipped": 10}, "must be less than"),
        ({"method": "fedavg", "federation.association": "latency"}, "needs edges, and fedavg has none"),
        ({"method": "hifl", "cloud.mixing": "nonsense"}, "cloud.mixing must be"),
        ({"method": "nonsense"}, "method must be"),
        ({"method": "fedat", "federation.association": "random"}, 'needs federation.association = "latency"'),
        ({"method": "fedasync", "cloud.mixing": "tiers"}, "and edges"),
        ({"resources.fluctuation_rho": 0.5}, 'is for resources.fluctuation = "on"'),
    ],
)
def test_a_setting_that_would_do_nothing_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        hiflash.Config(**settings)
    assert said in str(caught.value)


def test_costs_of_all_methods_have_the_same_unit() -> None:
    """A task of a client costs the same to compute, and a second of sending, whatever the association."""
    units = set()
    for method in ("fedavg", "fedat", "hifl", "hiflash"):
        federation = build(hiflash.Config(method=method, **{**TINY, "data.name": "own", "model.name": "own"}),
                           make_tiny_data(), make_tiny_model)  # fmt: skip
        units.add(federation.engine(lambda *_: None).world.cost_unit_s)
        federation.close()
    assert len(units) == 1


def test_hidelta_is_hifl_with_the_settings_it_names(run_tiny: Run) -> None:
    """The recipe has no code of its own: the same settings given to HiFL are the same run."""
    settings = {
        "federation.association": "heterogeneity",
        "edge.clients_per_round": 0.5,
        "cloud.mixing": "delta",
        "cloud.alpha": 1.0,
        "cloud.momentum": 0.5,
        "cloud.threshold": 2,
    }
    assert METHODS["hidelta"].settings == settings
    named, spelled = run_tiny("hidelta"), run_tiny("hifl", **settings)
    assert named.digest == spelled.digest
    assert named.staleness["max"] <= 2
    # An edge of n clients asks ceil(n / 2) of them in every round.
    assert named.client_uploads < run_tiny("hidelta", **{"edge.clients_per_round": "all"}).client_uploads


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("fedavgm", {"cloud.momentum": 0.5}),
        ("hierfavg", {"cloud.optimizer": "momentum", "cloud.momentum": 0.5}),
        ("hifl", {"cloud.mixing": "delta", "cloud.alpha": 1.0, "cloud.momentum": 0.5, "cloud.threshold": 2}),
    ],
)
def test_baselines_with_the_same_momentum_are_settings_alone(
    method: str, settings: dict[str, Any], run_tiny: Run
) -> None:
    without = run_tiny(method, **{**settings, "cloud.momentum": 0.0})
    assert run_tiny(method, **settings).digest != without.digest
