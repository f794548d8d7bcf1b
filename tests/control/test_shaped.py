"""The environment for other learners: the same runs and costs, credited earlier, with a mask."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from hiflash.control.environment import StalenessEnv
from hiflash.control.shaped import RUNS, ShapedStalenessEnv, yardstick
from hiflash.control.surrogate.model import Surrogate
from hiflash.errors import ConfigError

# Learns fast: runs end after a few dozen updates.
QUICK = Surrogate(-1.5, 1.1, 0.5, 0.02, 0.4, 0.1, 0.1, 0.5)
SMALL = {"federation.clients": 20, "federation.edges": 4, "cloud.threshold_max": 5}
EDGES = 4


def make(settings=None, **options):
    return ShapedStalenessEnv({**SMALL, **(settings or {})}, **{"surrogate": QUICK, **options})


def play(env, actions, seed=3):
    """Return the steps of an episode until it ends or there are no more actions; the reset is the first."""
    state, info = env.reset(seed=seed)
    rows = [(state, 0.0, False, False, info)]
    for action in actions:
        rows.append(env.step(np.int64(action)))
        if rows[-1][2] or rows[-1][3]:
            break
    return rows


def random_actions(env, count=3000, seed=0):
    return np.random.default_rng(seed).integers(env.action_space.n, size=count)


@pytest.mark.parametrize("one_decision_per_slot", [False, True])
def test_the_checkers_pass(one_decision_per_slot):
    env = make(one_decision_per_slot=one_decision_per_slot)
    check_env(env, skip_render_check=True)
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    checker.check_env(env, warn=True)


def in_a_fresh_process(script):
    """Return what a script prints: this process has imported everything."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_gymnasium_makes_both_without_an_import():
    script = """
import sys, gymnasium
assert not any(name.startswith("hiflash") for name in sys.modules)
for version in (0, 1):
    made = gymnasium.make(f"hiflash:hiflash/Staleness-v{version}", config={"federation.edges": 3})
    print(type(made.unwrapped).__name__, end=" ")
"""
    assert in_a_fresh_process(script) == "StalenessEnv ShapedStalenessEnv"


def test_registering_imports_neither_torch_nor_the_simulator():
    script = "import sys, hiflash.control; print(*sys.modules)"
    assert not {"torch", "hiflash.config", "hiflash.sim"} & set(in_a_fresh_process(script).split())


def test_make_takes_the_arguments_of_the_first_version():
    made = gymnasium.make(
        "hiflash/Staleness-v1", config=SMALL, surrogate=QUICK, max_slots=7, discount=0.9,
        one_decision_per_slot=True,
    ).unwrapped  # fmt: skip
    assert (made.config.federation.edges, made.max_slots, made.discount) == (4, 7, 0.9)
    assert made.one_decision_per_slot


def test_worth_is_the_cost_of_threshold_0_outside_the_training():
    plain = StalenessEnv(SMALL, surrogate=QUICK)
    costs, slots = [], 0
    for seed in range(9_000, 9_000 + RUNS):
        plain.reset(seed=seed)
        over = False
        while not over:
            *_, reached, over, info = plain.step(np.int64(1))
            slots, over = slots + info["slots"], over or reached
        assert reached
        costs.append(info["total_cost"])
    env = make({"seed": 5})  # the seed of a configuration is that of no federation here
    assert env.yardstick.worth == pytest.approx(np.mean(costs))
    assert env.yardstick.slot_cost == pytest.approx(sum(costs) / slots)


def test_worth_is_measured_once_for_a_configuration():
    before = yardstick.cache_info().misses
    settings = {"cost.send_weight": 3.0}  # used by no other test
    assert make(settings).yardstick is make(settings, max_slots=5, discount=0.5).yardstick
    assert yardstick.cache_info().misses == before + 1


@pytest.mark.parametrize("one_decision_per_slot", [False, True])
@pytest.mark.parametrize("enforce", ["admit", "discard", "cancel"])
def test_payments_sum_to_worth_if_the_target_is_reached(one_decision_per_slot, enforce):
    """The first potential is 0 (nothing runs, nothing is learned), the last is `worth`."""
    env = make({"cloud.enforce": enforce}, one_decision_per_slot=one_decision_per_slot)
    rows = play(env, random_actions(env))
    assert rows[-1][2]
    paid = sum(row[1] for row in rows) * env.yardstick.slot_cost + rows[-1][4]["total_cost"]
    assert paid == pytest.approx(env.yardstick.worth)


@pytest.mark.parametrize("one_decision_per_slot", [False, True])
def test_payments_of_a_truncated_episode_sum_to_its_last_potential(one_decision_per_slot):
    env = make(max_slots=9, one_decision_per_slot=one_decision_per_slot)
    rows = play(env, [3] * 20)
    assert (rows[-1][2], rows[-1][3]) == (False, True)
    last = env.yardstick.worth * env.prospect() - env.due()
    assert env.due() > 0  # leases still run, and a learner may value what follows
    paid = sum(row[1] for row in rows) * env.yardstick.slot_cost + rows[-1][4]["total_cost"]
    assert paid == pytest.approx(last)


@pytest.mark.parametrize("shaped", [False, True])
@pytest.mark.parametrize("one_decision_per_slot", [False, True])
def test_costs_of_steps_add_up_to_the_total_cost(shaped, one_decision_per_slot):
    build = ShapedStalenessEnv if shaped else StalenessEnv
    env = build(SMALL, surrogate=QUICK, discount=0.5, one_decision_per_slot=one_decision_per_slot)
    rows = play(env, random_actions(env))
    assert rows[-1][2]
    assert sum(row[4]["cost"] for row in rows) == pytest.approx(env.simulator.totals()["total_cost"])


@pytest.mark.parametrize("accounting", ["lease", "paper"])
def test_a_grant_is_charged_and_credited_at_once(accounting):
    """A grant pays worth * prospect - (compute + send + slots); slots until its upload arrives pay 0."""
    env = make({"cost.accounting": accounting})
    _, info = env.reset(seed=2)
    edge = info["edge"]
    _, reward, _, _, info = env.step(np.int64(1))
    (timeline,) = env.simulator.timelines.values()
    ledger = env.simulator.ledger
    slots = int(timeline.arrives_at / 0.05) + 1  # granted in slot 0, a slot has 0.05 s
    rounds = timeline.rounds
    charged = (1, 1) if accounting == "lease" else (slots / len(rounds), 1 / len(rounds))
    cost = charged[0] * sum(r.total_compute_s for r in rounds) / ledger.compute_unit_s
    cost += charged[1] * sum(r.total_send_s for r in rounds) / ledger.send_unit_s + slots
    learning = env._learning
    model = learning.train(edge, learning.initial, len(timeline.rounds)) * np.float32(0.7)  # staleness 0
    gain = env.yardstick.worth * learning.progress(model)
    assert reward == pytest.approx((gain - cost) / env.yardstick.slot_cost)
    waited = info["slots"]
    while waited < slots:
        _, reward, _, _, info = env.step(np.int64(0))
        assert not info["admitted"]
        assert reward == pytest.approx(0.0, abs=1e-9)
        waited += info["slots"]
    assert info["total_cost"] == pytest.approx(cost)  # paid in full, and nothing else was


def test_a_slot_in_which_nothing_runs_costs_one_slot():
    env = make()
    for seed in range(20):
        _, info = env.reset(seed=seed)
        while info["action_mask"][0] == 0:  # let a fast edge run, until a slow one asks an idle cloud
            _, _, over, _, info = env.step(np.int64(1))
            if over:
                break
        if env._cloud.leases or info["action_mask"][0] == 0:
            continue
        _, reward, _, _, info = env.step(np.int64(0))
        assert info["slots"] == 1
        assert reward == pytest.approx(-1 / env.yardstick.slot_cost)
        return
    pytest.fail("no slow edge asked an idle cloud")


def test_a_masked_refusal_counts_as_threshold_0():
    one, other = make(), make()
    _, info = one.reset(seed=1)
    _, other_info = other.reset(seed=1)
    masked = 0
    for _ in range(150):
        assert info["action_mask"].tolist() == other_info["action_mask"].tolist()
        masked += info["action_mask"][0] == 0
        state, reward, over, _, info = one.step(np.int64(0))
        expected, other_reward, _, _, other_info = other.step(np.int64(1 - other_info["action_mask"][0]))
        assert (state == expected).all()
        assert reward == other_reward
        if over:
            break
    assert masked > 5
    assert one.simulator.ledger.communications > 5  # whoever always refuses still trains


def test_the_mask_is_that_of_agents_that_act():
    """Decision 41: while no edge runs, an edge that more than half do not beat cannot be refused."""
    env = make()
    seen = set()
    for seed in range(8):
        state, info = env.reset(seed=seed)
        over = False
        while not over:
            mask = info["action_mask"]
            assert mask.dtype == np.int8
            assert mask.shape == (7,)
            assert mask[1:].all()
            durations, remaining = state.reshape(5, EDGES)[2:4]
            declared = np.count_nonzero(durations)
            slower = np.count_nonzero(durations >= durations[0])
            stalls = not remaining.any() and 2 * slower > declared
            assert mask[0] == (not stalls)
            seen.add((bool(remaining.any()), stalls))
            state, _, over, _, info = env.step(np.int64(1))
            if over:
                assert info["action_mask"].all()  # nobody asks
    assert seen == {(False, True), (False, False), (True, False)}


def test_all_actions_are_permitted_in_a_slot_without_a_check_in():
    env = make({"federation.edges": 2}, one_decision_per_slot=True)
    rows = play(env, [6] * 200)
    waiting = [row[4] for row in rows if row[4]["edge"] < 0]
    assert waiting
    assert all(info["action_mask"].all() for info in waiting)


def test_edges_stand_in_the_order_of_their_use():
    """The one that checks in, then running edges by remaining time, then idle edges by duration."""
    env, plain = make(), StalenessEnv(SMALL, surrogate=QUICK)
    state, _ = env.reset(seed=4)
    other, _ = plain.reset(seed=4)
    for _ in range(60):
        features, unsorted = state.reshape(5, EDGES), other.reshape(5, EDGES)
        assert sorted(features.T.tolist()) == sorted(unsorted.T.tolist())  # the same edges
        assert features[4].tolist() == [1, 0, 0, 0]
        running = features[3, 1:] > 0
        assert running.tolist() == sorted(running, reverse=True)
        assert (np.diff(features[3, 1:][running]) >= 0).all()
        assert (np.diff(features[2, 1:][~running]) >= 0).all()
        state, _, over, _, _ = env.step(np.int64(3))
        other, *_ = plain.step(np.int64(3))
        if over:
            break


def test_the_same_seed_and_actions_give_the_same_bits():
    one, other = make(), make()
    other.reset(seed=99)  # what went before does not matter
    for a, b in zip(*(play(env, random_actions(env)) for env in (one, other)), strict=True):
        assert a[0].tobytes() == b[0].tobytes()
        assert a[1:4] == b[1:4]


def test_the_real_environment_pays_for_accuracy_when_it_comes():
    """Its prospect does not count running leases, so their costs are charged slot by slot."""
    env = make({"stop.target": 0.5, "stop.communications": 4, "workers": 1}, fidelity="real")
    rows = play(env, [1] * 500)
    env.close()
    paid = sum(row[1] for row in rows) * env.yardstick.slot_cost + rows[-1][4]["total_cost"]
    assert rows[-1][3]
    assert paid == pytest.approx(env.yardstick.worth * rows[-1][4]["accuracy"] / 0.5)


@pytest.mark.parametrize("action", [-1, 7, 1.0, "1"])
def test_a_wrong_action_is_an_error(action):
    env = make()
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.int64(0))
    env.reset(seed=0)
    with pytest.raises(gymnasium.error.InvalidAction, match=r"0\.\.6"):
        env.step(action)


def test_a_configuration_without_a_surrogate_is_an_error_when_the_environment_is_made():
    with pytest.raises(ConfigError, match="calibrate"):
        ShapedStalenessEnv({**SMALL, "data.name": "cifar10"}, fidelity="real")
