"""Client algorithms in whole simulations: what holds after every event, equalities, bytes and resuming."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hiflash
from hiflash.config import Config
from hiflash.errors import Paused
from hiflash.sim.federation import build
from hiflash.sim.simulator import Simulator
from tiny import TINY, assert_same_run, make_norm_model, make_tiny_data, make_tiny_model

Run = Callable[..., hiflash.Result]
ALGORITHMS = ("scaffold", "feddyn")
DATA = make_tiny_data()
EQUAL = [np.arange(client, 300, 12) for client in range(12)]  # 25 samples for each of 12 clients
SETUPS: dict[str, tuple[str, dict[str, Any]]] = {
    "flat": ("fedavg", {"cloud.participants": 4}),
    "flat, some late": ("fedavg", {"cloud.participants": 6, "cloud.deadline_s": 0.15, "cloud.quorum": 0.9}),
    "flat and asynchronous": ("fedasync", {"cloud.concurrency": 5, "client.mu": 0.0}),
    "buffer": ("fedbuff", {"cloud.concurrency": 5, "cloud.buffer": 3}),
    "rounds of edges": ("hierfavg", {"edge.edge_rounds": [3], "edge.clients_per_round": 2}),
    "asynchronous edges": ("hifl", {}),
    "stale": ("hifl", {"cloud.enforce": "discard", "cloud.threshold": 1, "edge.edge_rounds": [1, 3]}),
    "cancelled": ("hifl", {"cloud.enforce": "cancel", "cloud.threshold": 0, "edge.edge_rounds": [1, 3]}),
    "slow clients": ("hifl", {"edge.deadline_s": 0.0004, "edge.quorum": 0.6, "resources.fluctuation": "on"}),
    "bounded": ("hifl", {"cloud.norm_bound": 0.25}),
    "attacked": ("hifl", {"attack.kind": "nan", "attack.share": 0.25, "edge.quorum": 0.7}),
    "poisoned": ("hifl", {"attack.kind": "noise", "attack.scale": 0.01}),
    "compressed": ("hifl", {"wan.upload": "topk", "wan.topk": 0.1, "wan.download": "int8"}),
    "mobile": ("hifl", {"mobility.moves_per_s": 4.0, "mobility.leaves_per_s": 2.0, "mobility.absent": 0.3,
                        "mobility.joins_per_s": 2.0, "mobility.repair_s": 0.5}),
}  # fmt: skip
HAPPENS: dict[str, Callable[[Any], int]] = {
    "flat, some late": lambda ledger: ledger.rejections["late"],
    "stale": lambda ledger: ledger.discarded,
    "cancelled": lambda ledger: ledger.cancelled,
    "slow clients": lambda ledger: ledger.abandoned,
    "bounded": lambda ledger: ledger.rejections["norm"],
    "attacked": lambda ledger: ledger.rejections["not finite"],
}


def engine_of(method: str, model: Any = make_tiny_model, **settings: Any) -> tuple[Any, Simulator]:
    settings = {**TINY, "method": method, **settings}
    config = Config(**settings, **{"data.name": "own", "model.name": "own"})
    federation = build(config, DATA, model)
    engine = federation.engine(lambda *_: None)
    assert isinstance(engine, Simulator)
    return federation, engine


def gap(engine: Simulator) -> float:
    """Return the largest difference between the cloud's vector and the mean of all clients' states."""
    kept = engine.cloud.side.mean  # type: ignore[attr-defined]
    states = [next(iter(state.values())) for state in engine.training.states.values()]  # type: ignore[attr-defined]
    mean = np.sum(states, axis=0, dtype=np.float64) / TINY["federation.clients"] if states else 0 * kept
    return float(np.abs(kept - mean).max() / max(1.0, np.abs(kept).max()))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("name", SETUPS)
def test_the_cloud_has_the_mean_of_all_states_after_every_event(name: str, algorithm: str) -> None:
    method, settings = SETUPS[name]
    for seed in (0, 1):
        chosen = {**settings, "client.algorithm": algorithm, "seed": seed}
        federation, engine = engine_of(method, **chosen)
        engine.start()
        while engine.ledger.communications < 40:
            engine.step()
            assert gap(engine) < 2e-6
        federation.close()
        assert engine.training.states  # type: ignore[attr-defined]
        if name in HAPPENS:
            assert HAPPENS[name](engine.ledger) > 0
        assert np.isfinite(engine.weights).all()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_values_that_clients_do_not_share_have_no_correction(algorithm: str) -> None:
    settings = {"client.algorithm": algorithm, "client.batch_norm": "local", "client.batch": 9}
    federation, engine = engine_of("hifl", make_norm_model, **settings)
    engine.start()
    while engine.ledger.communications < 12:
        engine.step()
        assert gap(engine) < 2e-6
    federation.close()
    mean = engine.cloud.side.mean  # type: ignore[attr-defined]
    assert len(mean) == 36 * 5 + 5 + 2 * 5 + 5 * 4 + 4
    assert (mean[185:195] == 0).all()  # BatchNorm's weight and bias, behind the first layer's 185 values
    assert np.count_nonzero(mean) > 150
    assert engine.training.kept  # type: ignore[attr-defined]


def equal_run(method: str, **settings: Any) -> hiflash.Result:
    settings = {**TINY, "method": method, **settings}
    return hiflash.run(data=DATA, model=make_tiny_model, indices=EQUAL, **settings)


def test_the_first_round_of_scaffold_is_that_of_fedavg() -> None:
    one = {"cloud.participants": 6, "stop.communications": 6}
    first, fedavg = (equal_run(method, **one) for method in ("scaffold", "fedavg"))
    assert first.version == 1
    np.testing.assert_allclose(first.weights, fedavg.weights, atol=1e-7)
    two = {**one, "stop.communications": 12}
    assert equal_run("scaffold", **two).digest != equal_run("fedavg", **two).digest


def test_the_first_round_of_feddyn_is_a_longer_step_of_fedprox() -> None:
    # h = -alpha |P| / N (mean u - w), so w + (mean u - w) (1 + |P| / N): with all clients twice as far.
    one = {"cloud.participants": 12, "stop.communications": 12}
    feddyn = equal_run("feddyn", **one, **{"client.feddyn_alpha": 0.2})
    fedprox = equal_run("fedprox", **one, **{"client.mu": 0.2})
    start = build(Config(**TINY, **{"data.name": "own", "model.name": "own"}), DATA, make_tiny_model)
    start.close()
    moved = fedprox.weights - start.start.weights
    np.testing.assert_allclose(feddyn.weights, fedprox.weights + moved, atol=1e-6)


@pytest.mark.parametrize("settings", [{}, {"client.momentum": 0.5}, {"client.mu": 0.1}])
def test_fednova_with_equal_steps_is_fedavg(settings: dict[str, Any]) -> None:
    settings = {**settings, "client.lr_decay": 1.0}
    fednova, fedavg = (equal_run(method, **settings) for method in ("fednova", "fedavg"))
    np.testing.assert_allclose(fednova.weights, fedavg.weights, atol=1e-5)


def test_fednova_with_unequal_steps_is_another_method(run_tiny: Run) -> None:
    settings = {"client.local_epochs": 1, "data.partition": "quantity"}
    for method, more in (("fedavg", {}), ("hierfavg", {}), ("hifl", {})):
        fednova = run_tiny(method, **settings, **more, **{"client.algorithm": "fednova"})
        assert fednova.digest != run_tiny(method, **settings, **more).digest
        assert fednova.accuracy is not None
        assert fednova.accuracy > 0.3


def test_fedavgm_without_momentum_is_fedavg(run_tiny: Run) -> None:
    fedavgm = run_tiny("fedavgm", **{"cloud.momentum": 0.0, "cloud.lr": 1.0})
    np.testing.assert_allclose(fedavgm.weights, run_tiny("fedavg").weights, atol=1e-5)


def test_asynchronous_feddyn_with_one_edge_is_synchronous_feddyn_with_one(run_tiny: Run) -> None:
    common = {"federation.edges": 1, "edge.edge_rounds": [2], "client.algorithm": "feddyn",
              "stop.communications": 10, "evaluate.every": 10}  # fmt: skip
    alone = run_tiny("hifl", **common, **{"cloud.alpha": 1.0})
    rounds = run_tiny("hierfavg", **common, **{"cloud.participants": 1, "edge.clients_per_round": "all"})
    assert alone.version == rounds.version == 10
    np.testing.assert_allclose(alone.weights, rounds.weights, atol=1e-6)


VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "scaffold": ("hifl", {"client.algorithm": "scaffold", "cloud.enforce": "discard", "cloud.threshold": 2}),
    "feddyn": ("hierfavg", {"client.algorithm": "feddyn", "client.momentum": 0.5}),
    "fednova": ("hifl", {"client.algorithm": "fednova", "client.local_epochs": 1,
                         "data.partition": "quantity"}),
    "adam": ("hierfavg", {"cloud.optimizer": "adam", "client.algorithm": "scaffold"}),
    "yogi": ("hierfavg", {"cloud.optimizer": "yogi"}),
    "momentum": ("hierfavg", {"cloud.optimizer": "momentum", "cloud.momentum": 0.9}),
}  # fmt: skip


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize("name", VARIANTS)
def test_a_run_in_pieces_with_more_workers_is_the_same_run(
    name: str, run_tiny: Run, resume_tiny: Run, tmp_path: Path
) -> None:
    method, settings = VARIANTS[name]
    whole = run_tiny(method, tmp_path / "whole", **settings)
    asked = iter(range(10**6))
    with pytest.raises(Paused):
        run_tiny(method, tmp_path / "run", pause=lambda: next(asked) > 60, workers=2, **settings)
    assert_same_run(whole, resume_tiny(tmp_path / "run", workers=3))


def test_what_travels_beside_a_model_counts_in_bytes_and_time(run_tiny: Run) -> None:
    common = {"stop.communications": 12, "trainer": "none"}
    plain = run_tiny("hierfavg", **common)
    scaffold = run_tiny("hierfavg", **common, **{"client.algorithm": "scaffold"})
    feddyn = run_tiny("hierfavg", **common, **{"client.algorithm": "feddyn"})
    assert plain.wan_bytes_up == 12 * 4 * 209
    for name in ("wan_bytes_up", "wan_bytes_down", "lan_bytes_up", "lan_bytes_down"):
        assert getattr(scaffold, name) == 2 * getattr(plain, name)
        assert getattr(feddyn, name) == getattr(plain, name) * (2 if name == "wan_bytes_up" else 1)
    assert scaffold.send_cost == pytest.approx(2 * plain.send_cost)
    assert scaffold.virtual_s > feddyn.virtual_s > plain.virtual_s
    assert scaffold.response_latency_ms > plain.response_latency_ms


def test_flat_feddyn_sends_no_more_than_fedavg_unless_uploads_are_compressed(run_tiny: Run) -> None:
    common = {"stop.communications": 12, "trainer": "none"}
    assert run_tiny("feddyn", **common).wan_bytes == run_tiny("fedavg", **common).wan_bytes
    packed = {**common, "wan.upload": "fp16"}
    plain, feddyn = run_tiny("fedavg", **packed), run_tiny("feddyn", **packed)
    assert feddyn.wan_bytes_up == plain.wan_bytes_up + 12 * 4 * 209  # the change is not compressed


def test_bytes_are_the_same_with_and_without_training(run_tiny: Run) -> None:
    for algorithm in ALGORITHMS:
        settings = {"client.algorithm": algorithm, "stop.communications": 12}
        trained = run_tiny("hierfavg", **settings)
        assert trained.wan_bytes == run_tiny("hierfavg", **settings, trainer="none").wan_bytes
