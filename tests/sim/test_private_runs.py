"""Private runs: every method, the same bits anywhere, a ledger and a budget that hold."""

import json

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant

import hiflash
from hiflash.errors import ConfigError, Paused
from hiflash.privacy.randomness import SeededRandomness
from hiflash.sim.federation import build
from hiflash.sim.plan_privacy import planned_rounds
from hiflash.sim.private import joining
from tiny import TINY, assert_same_run, make_norm_model, make_tiny_data, make_tiny_model

DATA = make_tiny_data()
PRIVATE = {"dp.unit": "client", "dp.noise": 1.0}
POISSON = {"dp.sampling": "poisson", "edge.clients_per_round": 0.4}
FLAT = {"federation.clients": 12, "cloud.participants": 4}


def config(method="hifl", **more):
    settings = {**TINY, "method": method, "data.name": "own", "model.name": "own", **PRIVATE, **more}
    if hiflash.Config(method=method).federation.flat:
        settings.pop("federation.edges")
    return hiflash.Config(**{key: value for key, value in settings.items() if value is not None})


def run(method="hifl", model=make_tiny_model, directory=None, pause=None, **more):
    return hiflash.run(config(method, **more), data=DATA, model=model, directory=directory, pause=pause)


def rows_of(directory):
    return [json.loads(line) for line in (directory / "events.jsonl").read_text().splitlines()]


def gaussian(noise, times, sampling=None):
    accountant, event = RdpAccountant(), dp_accounting.GaussianDpEvent(noise)
    accountant.compose(
        event if sampling is None else dp_accounting.PoissonSampledDpEvent(sampling, event), times
    )
    return accountant.get_epsilon(1e-5)


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("hifl", {}),
        ("hierfavg", POISSON),
        ("hierfavg", {"edge.clients_per_round": 2}),
        ("hidelta", {}),
        ("fedat", {}),
        ("fedavg", FLAT),
        ("fedavg", {**FLAT, "dp.sampling": "poisson"}),
        ("fedadam", FLAT),
        ("tifl", {**FLAT, "cloud.tiers": 2}),
        ("fedasync", {}),
        ("fedbuff", {}),
    ],
)
def test_a_run_is_the_same_with_two_workers_and_after_a_pause(method, more, tmp_path):
    more = {**more, "stop.communications": 24, "dp.epsilon": 20.0}
    whole = run(method, **more)
    calls = iter(range(10**9))
    with pytest.raises(Paused):
        run(method, directory=tmp_path / "run", pause=lambda: next(calls) == 40, workers=2, **more)
    assert_same_run(whole, hiflash.resume(tmp_path / "run", data=DATA, model=make_tiny_model))
    assert 0 < whole.privacy["epsilon"] <= 20


def test_every_opened_round_is_charged_as_the_accountant_says(tmp_path):
    result = run("hifl", directory=tmp_path / "run")
    rounds = dict.fromkeys(range(4), 0)
    for row in rows_of(tmp_path / "run"):
        if row["event"] == "edge_round":
            rounds[row["edge"]] += 1
    assert result.cluster_sizes == [3, 3, 3, 3]
    assert result.privacy["charges"] == 3 * sum(rounds.values())
    assert result.privacy["epsilon"] == pytest.approx(gaussian(1.0, max(rounds.values())), abs=1e-6)
    groups = {group["charges"]["edge round"]: group["clients"] for group in result.privacy["groups"]}
    assert sum(groups.values()) == 12
    assert set(groups) == set(rounds.values())


def test_refused_uploads_are_charged_too():
    """Under discard most uploads come too late: their sums were opened all the same."""
    result = run("hifl", **{"cloud.threshold": 0, "cloud.enforce": "discard", "edge.edge_rounds": [1]})
    assert result.discarded > 10
    assert result.privacy["charges"] >= 3 * result.communications


def test_sampling_is_charged_to_all_and_participation_to_those_that_joined():
    result = run("fedavg", **{**FLAT, "dp.sampling": "poisson"})
    rounds = result.version
    assert result.privacy["entries"]["sampled edge round"]["sampling"] == pytest.approx(4 / 12)
    assert result.privacy["epsilon"] == pytest.approx(gaussian(1.0, rounds, 4 / 12), abs=1e-6)
    joined = max(group["charges"]["edge round"] for group in result.privacy["groups"])
    assert result.privacy["epsilon_participation"] == pytest.approx(gaussian(1.0, joined), abs=1e-6)
    assert result.privacy["epsilon"] < result.privacy["epsilon_participation"]


def test_clients_join_with_the_given_probability_and_independently():
    draw = joining(0.3, SeededRandomness(5), 2)
    clients = tuple(range(100, 110))
    joined = np.array([[client in draw(lease, 0, clients) for client in clients] for lease in range(2_000)])
    deviation = np.sqrt(0.3 * 0.7 / 2_000)
    assert (np.abs(joined.mean(axis=0) - 0.3) < 5 * deviation).all()
    sizes = joined.sum(axis=1)  # binomial: variance 10 * 0.3 * 0.7 = 2.1; a fixed number would have none
    assert sizes.var() == pytest.approx(2.1, rel=0.2)
    assert (sizes == 0).any()  # 0.7^10 = 2.8 % of the rounds
    assert draw(3, 0, clients) == draw(3, 0, clients)


def test_a_round_that_nobody_joins_still_has_noise():
    result = run("hierfavg", **{**POISSON, "edge.clients_per_round": 0.01, "stop.communications": 8})
    assert result.client_uploads < 8
    assert result.applied_per_edge != [0, 0, 0, 0]
    assert np.abs(result.weights).max() > 1  # noise of deviation 1 in a sum divided by 1


@pytest.mark.parametrize("quorum", [0.01, 1.0])
def test_late_clients_do_not_decide_whether_a_sampled_round_is_opened(quorum, tmp_path):
    """A round that fails would tell whether a slow client joined: every round is released, and charged."""
    late = {"edge.deadline_s": 0.0005, "edge.quorum": quorum, "stop.communications": 16}
    result = run("hierfavg", **POISSON, **late, directory=tmp_path / "run")
    rows = [row for row in rows_of(tmp_path / "run") if row["event"] == "edge_round"]
    assert any(row["clients"] < row["asked"] for row in rows)
    assert result.abandoned == 0
    charged = sum(g["clients"] * g["charges"]["sampled edge round"] for g in result.privacy["groups"])
    assert charged == 3 * len(rows)


def test_a_run_ends_before_its_budget_is_exceeded():
    result = run("hifl", **{"dp.epsilon": 10.0})
    assert result.stop_reason == "privacy budget epsilon 10 at delta 1e-05 used up"
    # 3 rounds cost 9.0 and 4 rounds 10.7
    assert result.privacy["epsilon"] == pytest.approx(gaussian(1.0, 3), abs=1e-6)
    assert gaussian(1.0, 4) > 10
    assert {group["charges"]["edge round"] for group in result.privacy["groups"]} == {3}


@pytest.mark.parametrize("more", [{}, {"cloud.enforce": "cancel"}, {"edge.clients_per_round": 1}])
def test_clients_that_cannot_pay_leave_and_the_others_go_on(more):
    result = run("hifl", **{"dp.epsilon": 10.0, "edge.edge_rounds": [2], **more})
    assert all(group["charges"]["edge round"] <= 3 for group in result.privacy["groups"])
    assert result.privacy["charges"] == 36  # every one of 12 clients pays for its 3 rounds


@pytest.mark.parametrize("method", ["hifl", "fedavg"])
def test_a_client_that_moves_takes_its_charges_along(method):
    mobile = {f"mobility.{what}_per_s": 1.0 for what in ("joins", "leaves")} | {"mobility.absent": 0.2}
    if method == "hifl":
        mobile |= {"mobility.moves_per_s": 2.0, "mobility.repair_s": 1.0, "mobility.switching_cost": 0.0}
    result = run(method, **{"dp.epsilon": 10.0, **mobile, **({} if method == "hifl" else FLAT)})
    assert max(group["charges"]["edge round"] for group in result.privacy["groups"]) == 3
    assert result.privacy["epsilon"] <= 10


def test_a_budget_below_one_round_is_an_error_before_anything_happens():
    with pytest.raises(ConfigError, match=r"does not pay for one edge round.* needs dp.noise >= 4\.\d+"):
        run("hifl", **{"dp.epsilon": 1.0})


def test_noise_is_calibrated_for_the_planned_rounds():
    result = run("hifl", **{"dp.noise": None, "dp.epsilon": 8.0, "dp.rounds": 10})
    assert result.privacy["planned_rounds"] == 10
    assert result.privacy["noise"] == pytest.approx(2.0166)
    assert result.privacy["epsilon"] == pytest.approx(gaussian(2.0166, 10), abs=1e-6)


def test_planned_rounds_share_the_limits_out_evenly():
    steps = [3] * 12
    of = {"dp.noise": None, "dp.epsilon": 8.0}
    # 60 uploads of 4 edges, 2 rounds each in the mean
    assert planned_rounds(config(**of), steps) == 30
    # a third of the cluster a round
    assert planned_rounds(config(**of, **{"edge.clients_per_round": 1}), steps) == 10
    # sampled clients pay for every round
    assert planned_rounds(config("hierfavg", **of, **POISSON), steps) == 30
    # 180 steps of 12 clients with 3 each
    assert planned_rounds(config(**of, **{"stop.client_steps": 180}), steps) == 5
    # 60 uploads of 12 clients
    assert planned_rounds(config("fedavg", **of, **FLAT), steps) == 5
    # 15 rounds of 4 clients
    assert planned_rounds(config("fedavg", **of, **FLAT, **{"dp.sampling": "poisson"}), steps) == 15


def test_weights_of_edges_are_fixed_numbers_and_samples_stay_hidden():
    """A synchronous cloud weighs edges by their divisors, not by samples."""
    federation = build(config("hierfavg"), DATA, make_tiny_model)
    try:
        engine = federation.engine(lambda *_: None)
        assert engine.cloud.examples == dict.fromkeys(range(4), 3)
    finally:
        federation.close()


def test_without_noise_a_private_round_is_the_clipped_mean_of_all_clients():
    """With a clip that binds nobody and hardly any noise, equal samples and full rounds give the mean."""
    same = {"data.partition": "iid", "edge.edge_rounds": [1], "stop.communications": 8}
    private = run("hifl", **{**same, "dp.noise": 1e-5, "dp.clip": 3.0})
    plain = run("hifl", **{**same, "dp.unit": "off", "dp.noise": None})
    assert private.weights == pytest.approx(plain.weights, abs=2e-4)
    assert not plain.privacy


def test_running_statistics_are_refused():
    with pytest.raises(ConfigError, match="BatchNorm"):
        run("hifl", model=make_norm_model)


def test_planning_without_training_keeps_the_same_ledger():
    trained, planned = run("hifl"), run("hifl", **{"trainer": "none"})
    assert planned.privacy == trained.privacy
