"""Secure sums in whole simulations: exact sums, times, bytes, dropouts, executors and resuming."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("Crypto", reason='needs pip install "hiflash[serve]"')
pytest.importorskip("cryptography", reason='needs pip install "hiflash[serve]"')

import hiflash
from hiflash.errors import ConfigError, Paused
from hiflash.execute import executor
from hiflash.privacy.sums.sizes import client_bytes, round_bytes
from hiflash.sim.phases import Phases
from tiny import TINY, assert_same_run, make_norm_model, make_tiny_data, make_tiny_model

DATA = make_tiny_data()
SECURE: dict[str, Any] = {**TINY, "federation.edges": 2, "edge.secure": "secagg"}
FEW = {"stop.communications": 8, "evaluate.every": 4}


def run(model: Any = make_tiny_model, **settings: Any) -> hiflash.Result:
    return hiflash.run(data=DATA, model=model, **{"method": "hifl", **SECURE, **FEW, **settings})


def test_the_model_of_an_edge_round_is_that_of_the_whole_numbers(monkeypatch: Any) -> None:
    """Recompute every sum with Python's integers from the clients' models."""
    rounds, true = [], executor.open_round

    def watched(rules: Any, place: Any, asked: Any, updates: Any, quorum: int, base: Any) -> Any:
        opened = true(rules, place, asked, updates, quorum, base)
        rounds.append((asked, updates, base, opened))
        return opened

    monkeypatch.setattr(executor, "open_round", watched)
    result = run(method="hierfavg", **{"cloud.participants": 2, "edge.edge_rounds": [2]})
    assert len(rounds) == 2 * result.communications
    for asked, updates, base, opened in rounds:
        most = sum(2 ** math.ceil(math.log2(examples)) for _, examples in asked)
        scale = 2 ** math.floor(math.log2((2**31 - len(asked)) / (most * 8)))
        samples = sum(update.examples for update in updates)
        totals = [
            sum(
                round((float(update.weights[place]) - float(base[place])) * (update.examples * scale))
                for update in updates
            )
            for place in range(base.size)
        ]
        assert opened.weights.tolist() == [
            float(np.float32(float(start) + total / (scale * samples)))
            for start, total in zip(base, totals, strict=True)
        ]
        assert (opened.examples, opened.clipped) == (samples, 0)


def test_a_run_is_that_without_secure_sums_up_to_the_stated_error() -> None:
    settings = {"method": "hierfavg", "cloud.participants": 2, "edge.clients_per_round": "all"}
    secure, plain = run(**settings), run(**settings, **{"edge.secure": "off"})
    assert secure.digest != plain.digest
    assert np.abs(secure.weights - plain.weights).max() < 1e-5  # errors of 1e-7 grow a little in 8 rounds
    for name in ("version", "communications", "client_steps", "client_uploads", "wan_bytes"):
        assert getattr(secure, name) == getattr(plain, name)
    assert secure.virtual_s > plain.virtual_s
    assert secure.send_cost > plain.send_cost
    assert plain.secure == {}


def test_what_happened_is_in_the_result() -> None:
    settings = {"cloud.participants": 2, "edge.edge_rounds": [1], "edge.clients_per_round": "all"}
    result = run(method="hierfavg", **settings)
    assert result.secure["rounds"] == 8
    assert result.secure["abandoned"] == result.secure["clipped_values"] == 0
    assert set(result.secure["lost"].values()) == {0}
    phases = round_bytes(6, (0,) * 5)
    assert result.secure["bytes"] == {phase: 8 * sum(both) for phase, both in phases.items()}
    model = 4 * result.parameters
    assert result.lan_bytes_down == 8 * (6 * model + sum(down for down, _ in phases.values()))
    assert result.lan_bytes_up == 8 * (6 * model + sum(up for _, up in phases.values()))


def test_clipped_values_are_counted_and_the_run_goes_on() -> None:
    result = run(**{"edge.secure_bound": 1e-4})
    assert result.secure["clipped_values"] > 100
    assert result.communications == 8


def test_late_clients_are_lost_at_the_masked_phase(tmp_path: Path) -> None:
    """With a deadline between the slowest clients and the others some rounds lose a client, some too many."""
    settings = {"resources.fluctuation": "on", "edge.deadline_s": 0.00042, "edge.quorum": 0.5}
    result = run(directory=tmp_path / "run", **settings, **{"stop.communications": 20})
    rows = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    rounds = [row for row in rows if row["event"] == "edge_round"]
    lost = [row["asked"] - row["clients"] for row in rounds]
    assert [row["lost"] for row in rounds] == [[0, 0, count, 0, 0] for count in lost]
    assert result.secure["lost"]["masked"] == sum(lost) > 0
    assert result.secure["rounds"] == len(rounds)
    # Five of six must stay, whatever edge.quorum says.
    assert result.secure["abandoned"] == sum(count > 1 for count in lost) > 0
    assert 0 <= result.secure["abandoned"] - result.abandoned <= 2  # the cloud hears of it a little later
    assert any(count == 1 for count in lost)


def test_a_quorum_above_the_threshold_keeps_a_sum_closed() -> None:
    settings = {"resources.fluctuation": "on", "edge.deadline_s": 0.00042, "stop.communications": 20}
    strict = run(**settings, **{"edge.quorum": 1.0})
    assert strict.secure["abandoned"] > run(**settings).secure["abandoned"]
    assert 0 <= strict.secure["abandoned"] - strict.abandoned <= 2


def test_clients_that_send_no_numbers_are_left_out_and_too_many_stop_the_sum() -> None:
    some = run(**{"attack.kind": "nan", "attack.share": 0.08})  # one of twelve
    assert np.isfinite(some.weights).all()
    assert some.secure["abandoned"] == 0
    many = run(**{"attack.kind": "nan", "attack.share": 0.5, "stop.virtual_s": 0.5})
    assert many.secure["abandoned"] > 0
    assert many.rejections["not finite"] == many.secure["abandoned"]
    assert np.isfinite(many.weights).all()


@pytest.mark.parametrize(
    "settings",
    [
        {"wan.upload": "topk", "wan.topk": 0.1, "wan.download": "int8"},
        {"cloud.norm_bound": 0.05},
        {"edge.clients_per_round": 4, "edge.edge_rounds": [3]},
        {"mobility.moves_per_s": 4.0, "mobility.leaves_per_s": 2.0, "mobility.joins_per_s": 2.0},
        {"client.momentum": 0.5, "client.mu": 0.1},
        {"resources.fluctuation": "on", "edge.deadline_s": 0.00042},
        {"trainer": "torch"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_any_number_of_workers_and_a_pause_give_the_same_run(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    one = run(directory=tmp_path / "one", **settings)
    two = run(directory=tmp_path / "two", workers=2, **settings)
    assert_same_run(one, two)
    left = [11]

    def pause() -> bool:
        left[0] -= 1
        return left[0] < 0

    with pytest.raises(Paused):
        run(directory=tmp_path / "paused", pause=pause, **settings)
    resumed = hiflash.resume(tmp_path / "paused", data=DATA, model=make_tiny_model)
    assert resumed.digest == one.digest
    assert resumed.secure == one.secure


def test_clients_keep_their_batch_norm(tmp_path: Path) -> None:
    settings = {"client.batch_norm": "local", "client.batch": 7, "workers": 1}
    result, plain = (
        run(make_norm_model, **settings),
        run(make_norm_model, **settings, **{"edge.secure": "off"}),
    )
    assert np.abs(result.weights - plain.weights).max() < 1e-3
    assert run(make_norm_model, **{**settings, "workers": 2}).digest == result.digest


def train_plainly(model: Any, data: Any, context: Any) -> dict[str, float]:
    """Move every parameter a little, and report a number."""
    for parameter in model.parameters():
        parameter.data.add_(0.01)
    return {"moved": 1.0}


def test_a_training_function_of_ones_own_works_and_its_single_metrics_stay_with_the_clients() -> None:
    result = run(train=train_plainly, **{"client.algorithm": "function"})
    plain = run(train=train_plainly, **{"client.algorithm": "function", "edge.secure": "off"})
    assert np.abs(result.weights - plain.weights).max() < 1e-5
    assert plain.client_metrics == {"moved": 1.0}
    assert result.client_metrics == {}


def test_without_training_times_and_bytes_are_counted() -> None:
    plan = {"trainer": "none", "data.name": "none", "stop.communications": 8, "evaluate.every": 4}
    settings = {**SECURE, **plan, "method": "hierfavg", "cloud.participants": 2}
    secure, plain = hiflash.run(**settings), hiflash.run(**{**settings, "edge.secure": "off"})
    assert secure.secure["rounds"] > 0
    assert secure.virtual_s > plain.virtual_s
    assert secure.lan_bytes == plain.lan_bytes + sum(secure.secure["bytes"].values())


def test_an_edge_with_too_few_clients_is_an_error_at_the_start() -> None:
    """The association by data leaves edge 1 with one client."""
    indices = [np.arange(300)[client::12] for client in range(12)]
    settings = {"federation.association": "data", "federation.edges": 4, "indices": indices}
    with pytest.raises(ConfigError, match="needs 3 clients, and edge 1 has 1; use fewer edges, another"):
        run(**settings)


def test_the_phases_take_a_round_trip_of_the_slowest_client() -> None:
    """Three clients on edge 0, of which the second needs twice as long for a model of 1,000 bytes."""
    phases = Phases(1000)
    trips = phases.trips([4, 5, 6], [1.0, 2.0, 1.0], None)
    per_client = [
        sum(client_bytes(phase, 3, 3, 3)) / 1000 for phase in ("advertise", "share", "masked", "unmask")
    ]
    assert trips.lasts_s == pytest.approx(2 * sum(per_client))
    assert trips.all_s == trips.stayed_s == pytest.approx(4 * sum(per_client))
    assert trips.lost == (0, 0, 0, 0, 0)


def test_measured_latencies_count_for_every_message() -> None:
    """Three phases of two ways, and one way for the boxes: the masked model brings its own."""
    phases = Phases(1000, np.array([0.5, 0.1, 0.1]))
    with_hops = phases.trips([0, 1, 2], [0.0, 0.0, 0.0], None)
    assert with_hops.lasts_s == pytest.approx(7 * 0.5)
    assert with_hops.all_s == pytest.approx(7 * 0.7)


def test_phases_after_an_abandoned_one_take_no_time() -> None:
    phases = Phases(1000)
    stays = [True] * 7 + [False] * 3
    opened = phases.trips(range(10), [1.0] * 10, stays)
    ended = phases.trips(range(10), [1.0] * 10, [True] * 6 + [False] * 4)
    assert opened.lost == (0, 0, 3, 0, 0)
    later = [sum(client_bytes(phase, 10, 7, 10)) / 1000 for phase in ("agree", "unmask")]
    assert opened.lasts_s - ended.lasts_s == pytest.approx(sum(later))
    assert opened.all_s - ended.all_s == pytest.approx(7 * sum(later))


def test_measured_federations_have_hops() -> None:
    federation = hiflash.FederationData(bandwidth_mbps=[[8.0, 8.0]] * 12, latency_ms=[[50, 50]] * 12)
    few = {key: value for key, value in SECURE.items() if not key.startswith("federation.")}
    plan = {**few, "trainer": "none", "data.name": "none", "stop.communications": 4, "edge.edge_rounds": [1]}
    secure = hiflash.run(federation=federation, method="hierfavg", **plan, **{"cloud.participants": 2})
    plain = hiflash.run(
        federation=federation,
        method="hierfavg",
        **{**plan, "edge.secure": "off"},
        **{"cloud.participants": 2},
    )
    assert secure.virtual_s - plain.virtual_s > 2 * 7 * 0.05  # two rounds, seven ways


@pytest.mark.parametrize("missing", ["Crypto.Protocol.SecretSharing", "cryptography.exceptions"])
def test_without_a_package_the_way_out_is_told(missing: str, monkeypatch: Any) -> None:
    for name in [name for name in sys.modules if name.startswith("hiflash.privacy.sums.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(
        ConfigError, match=rf"needs a package that is not installed \({missing}\): pip install"
    ):
        run()
