"""Private runs under secure sums: noise from every client, a ledger, and an end when too few can pay."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

pytest.importorskip("Crypto", reason='needs pip install "hiflash[serve]"')
pytest.importorskip("cryptography", reason='needs pip install "hiflash[serve]"')
pytest.importorskip("dp_accounting", reason='needs pip install "hiflash[dp]"')

import dp_accounting
from dp_accounting.rdp import RdpAccountant

import hiflash
from hiflash.errors import Paused
from hiflash.execute import executor
from hiflash.privacy.discrete import discrete_gaussian
from hiflash.privacy.mechanism import Grid, encode
from hiflash.privacy.randomness import SeededRandomness
from tiny import TINY, assert_same_run, make_tiny_data, make_tiny_model

DATA = make_tiny_data()
BOTH: dict[str, Any] = {
    **TINY,
    "federation.edges": 2,
    "edge.secure": "secagg",
    "dp.unit": "client",
    "dp.where": "clients",
    "dp.noise": 1.0,
    "stop.communications": 8,
    "evaluate.every": 4,
}
SYNC = {"method": "hierfavg", "cloud.participants": 2, "edge.clients_per_round": "all"}
LATE = {"resources.fluctuation": "on", "edge.deadline_s": 0.00042, "edge.quorum": 0.5}


def run(directory: Any = None, pause: Any = None, **settings: Any) -> hiflash.Result:
    given = {"method": "hifl", **BOTH, **settings}
    given = {key: value for key, value in given.items() if value is not None}
    return hiflash.run(data=DATA, model=make_tiny_model, directory=directory, pause=pause, **given)


def gaussian(noise: float, times: int) -> float:
    accountant = RdpAccountant()
    accountant.compose(dp_accounting.GaussianDpEvent(noise), times)
    return float(accountant.get_epsilon(1e-5))


def test_the_model_of_an_edge_round_is_the_noised_sum_of_clipped_changes(monkeypatch: Any) -> None:
    """Recompute every sum with Python's integers from the clients' models, and from the named noise."""
    rounds, true = [], executor.open_round

    def watched(rules: Any, place: Any, asked: Any, updates: Any, quorum: int, base: Any) -> Any:
        opened = true(rules, place, asked, updates, quorum, base)
        rounds.append((place, updates, base, opened))
        return opened

    monkeypatch.setattr(executor, "open_round", watched)
    result = run(**SYNC, **{"edge.edge_rounds": [1]})
    assert len(rounds) == result.communications == 8
    grid = Grid(1.0, 20)
    share = 4**20 // 4  # five of six clients are in every sum: a variance of 2^40 over all but one
    for (_, lease, index), updates, base, opened in rounds:
        total = [0] * base.size
        for update in updates:
            stream = SeededRandomness(result.seed).stream("client noise", lease, index, update.client)
            noise = discrete_gaussian(share, base.size, stream)
            change = encode(update.weights, base, grid)
            total = [a + int(b) + int(c) for a, b, c in zip(total, change, noise, strict=True)]
        assert opened.weights.tolist() == [
            float(np.float32(float(start) + each * (2**-20 / 6)))
            for start, each in zip(base, total, strict=True)
        ]
        assert (opened.examples, opened.clipped) == (0, 0)


def test_hardly_any_noise_gives_the_run_of_a_trusted_edge() -> None:
    little = {"dp.noise": 1e-5, "dp.clip": 3.0, "data.partition": "iid"}
    spread = run(**SYNC, **little)
    trusted = run(**SYNC, **little, **{"edge.secure": None, "dp.where": None})
    assert np.abs(spread.weights - trusted.weights).max() < 1e-3
    assert spread.digest != trusted.digest
    assert spread.privacy["charges"] == trusted.privacy["charges"]


@pytest.mark.parametrize(
    "settings",
    [
        SYNC,
        {"edge.clients_per_round": 4, "edge.edge_rounds": [3], "dp.epsilon": 20.0},
        {"mobility.moves_per_s": 4.0, "mobility.leaves_per_s": 2.0, "mobility.joins_per_s": 2.0},
        {"wan.upload": "int8", "client.momentum": 0.5},
        LATE,
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_any_number_of_workers_and_a_pause_give_the_same_run(settings: dict[str, Any], tmp_path: Any) -> None:
    one = run(directory=tmp_path / "one", **settings)
    two = run(directory=tmp_path / "two", workers=2, **settings)
    assert_same_run(one, two)
    calls = iter(range(10**9))
    with pytest.raises(Paused):
        run(directory=tmp_path / "paused", pause=lambda: next(calls) == 11, **settings)
    assert_same_run(one, hiflash.resume(tmp_path / "paused", data=DATA, model=make_tiny_model))
    assert one.privacy["charges"] > 0
    assert one.secure["rounds"] > 0


def test_opened_rounds_are_charged_to_those_in_the_sum_and_abandoned_ones_to_nobody(tmp_path: Any) -> None:
    result = run(directory=tmp_path / "run", **LATE, **{"stop.communications": 20})
    rows = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    rounds = [row for row in rows if row["event"] == "edge_round"]
    opened = [row["clients"] for row in rounds if row["clients"] >= 5]  # five of six must stay
    assert 0 < len(opened) < len(rounds)
    assert any(clients == 5 for clients in opened)
    assert result.privacy["charges"] == sum(opened)
    most = max(group["charges"]["edge round"] for group in result.privacy["groups"])
    assert result.privacy["epsilon"] == pytest.approx(gaussian(1.0, most), abs=1e-6)
    assert result.privacy["epsilon"] == result.privacy["epsilon_participation"]


def test_a_run_ends_before_its_budget_is_exceeded() -> None:
    result = run(**{"dp.epsilon": 10.0, "stop.communications": 60})
    assert result.stop_reason == "privacy budget epsilon 10 at delta 1e-05 used up"
    assert {group["charges"]["edge round"] for group in result.privacy["groups"]} == {3}
    assert result.privacy["epsilon"] <= 10


@pytest.mark.parametrize("rounds", [[1], [2], [3]])
def test_a_run_ends_when_an_edge_has_too_few_clients_that_can_pay(rounds: list[int]) -> None:
    """Rounds of four out of six clients leave some with budget; two of them cannot have a secure sum."""
    settings = {"dp.epsilon": 10.0, "stop.communications": 500, "edge.clients_per_round": 4}
    result = run(**settings, **{"edge.edge_rounds": rounds})
    assert result.stop_reason == "privacy budget epsilon 10 at delta 1e-05 used up"
    assert result.secure["abandoned"] == result.abandoned == 0
    spent = [group["charges"]["edge round"] for group in result.privacy["groups"]]
    assert max(spent) == 3
    left = sum(group["clients"] for group in result.privacy["groups"] if group["charges"]["edge round"] < 3)
    assert left <= 2 * 2  # at most two on each edge


def test_a_client_that_diverges_sends_no_change_and_stops_nothing() -> None:
    result = run(**{"attack.kind": "nan", "attack.share": 0.5})
    assert result.secure["abandoned"] == 0
    assert result.communications == 8
    assert np.isfinite(result.weights).all()


def test_no_samples_and_no_clipped_values_become_known() -> None:
    result = run(**SYNC)
    assert result.secure["clipped_values"] == 0
    assert result.client_metrics == {}


def test_planning_without_training_keeps_the_same_ledger() -> None:
    trained, planned = run(), run(trainer="none")
    assert planned.privacy == trained.privacy
    assert planned.secure == trained.secure


def test_samples_may_be_private_inside_the_models_of_a_secure_sum() -> None:
    pytest.importorskip("opacus", reason='needs pip install "hiflash[dp]"')
    result = run(**{"dp.unit": "sample", "dp.where": None, "stop.communications": 4})
    assert result.privacy["unit"] == "sample"
    assert result.secure["rounds"] > 0
