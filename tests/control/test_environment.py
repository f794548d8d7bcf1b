"""The environment is the simulator: same costs, same events, whoever drives it."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import hiflash
from hiflash.config import Config
from hiflash.control.environment import StalenessEnv
from hiflash.control.surrogate.model import Surrogate
from hiflash.errors import ConfigError

# Learns fast: runs end after a few dozen updates.
QUICK = Surrogate(-1.5, 1.1, 0.5, 0.02, 0.4, 0.1, 0.1, 0.5)
SMALL = {"federation.clients": 20, "federation.edges": 4, "cloud.threshold_max": 5}


def make(settings=None, **options):
    return StalenessEnv({**SMALL, **(settings or {})}, **{"surrogate": QUICK, **options})


def play(env, actions, seed=3):
    """Return what an episode shows: states, rewards and infos until it ends or there are no more actions."""
    state, info = env.reset(seed=seed)
    rows = [(state, 0.0, False, False, info)]
    for action in actions:
        rows.append(env.step(np.int64(action)))
        if rows[-1][2] or rows[-1][3]:
            break
    return rows


def random_actions(env, count=3000, seed=0):
    return np.random.default_rng(seed).integers(env.action_space.n, size=count)


def test_gymnasiums_checker_passes():
    # By its spec, because Gymnasium calls every version but the last out of date.
    env = gymnasium.make(gymnasium.spec("hiflash/Staleness-v0"), config=SMALL, surrogate=QUICK)
    check_env(env.unwrapped, skip_render_check=True)


def test_the_checker_of_stable_baselines3_passes():
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    checker.check_env(make(), warn=True)
    checker.check_env(make(one_decision_per_slot=True), warn=True)


def test_spaces_are_the_papers():
    env = make()
    assert env.observation_space.shape == (5 * 4,)
    assert env.action_space.n == 5 + 2  # thresholds 0..5, and to refuse


@pytest.mark.parametrize("enforce", ["admit", "discard", "cancel"])
@pytest.mark.parametrize("fluctuation", ["off", "on"])
def test_the_same_seed_and_actions_give_the_same_bits(enforce, fluctuation):
    settings = {"cloud.enforce": enforce, "resources.fluctuation": fluctuation}
    one, other = make(settings), make(settings)
    other.reset(seed=99)  # what went before does not matter
    for a, b in zip(*(play(env, random_actions(env)) for env in (one, other)), strict=True):
        assert a[0].tobytes() == b[0].tobytes()
        assert a[1:] == b[1:]


@pytest.mark.parametrize("accounting", ["lease", "paper"])
@pytest.mark.parametrize("enforce", ["admit", "discard", "cancel"])
def test_rewards_add_up_to_the_total_cost(accounting, enforce):
    settings = {"cost.accounting": accounting, "cloud.enforce": enforce}
    for one_per_slot in (False, True):
        env = make(settings, discount=1.0, one_decision_per_slot=one_per_slot)
        rows = play(env, random_actions(env))
        assert rows[-1][2]  # the target was reached
        assert -sum(row[1] for row in rows) == pytest.approx(rows[-1][4]["total_cost"])
        totals = env.simulator.totals()
        assert rows[-1][4]["total_cost"] == pytest.approx(totals["total_cost"])


def test_skipped_slots_are_discounted_and_counted():
    """The same run twice: once slot by slot, once with the slots between two decisions in one step."""
    slowly, quickly = make(one_decision_per_slot=True), make()
    threshold_0 = 1  # one edge at a time: there are long waits... for nobody else is refused for nothing
    state, info = slowly.reset(seed=5)
    _, quick_info = quickly.reset(seed=5)
    for _ in range(60):
        action = threshold_0 if info["edge"] % 2 == 0 else 0
        assert quick_info["edge"] == info["edge"] >= 0
        _, reward, done, _, quick_info = quickly.step(np.int64(action))
        state, first, slow_done, _, info = slowly.step(np.int64(action))
        rewards = [first]
        while info["edge"] < 0 and not slow_done:
            assert not state[4 * 4 :].any()  # nobody checks in
            state, more, slow_done, _, info = slowly.step(np.int64(3))  # does nothing
            rewards.append(more)
        assert quick_info["slots"] == len(rewards)
        assert reward == pytest.approx(sum(0.95**j * r for j, r in enumerate(rewards)))
        if done:
            break
    assert done == slow_done


@pytest.mark.parametrize("threshold", [0, 2])
def test_a_fixed_threshold_costs_what_it_costs_in_a_run(threshold):
    """The real environment and `hiflash.run` are one simulation, to the last bit."""
    settings = {
        **SMALL, "method": "hiflash", "cloud.threshold": threshold, "stop.target": 0.5, "workers": 1,
        "stop.communications": 60,
    }  # fmt: skip
    result = hiflash.run(Config(**settings, seed=4))
    env = StalenessEnv(settings, fidelity="real")
    rows = play(env, [threshold + 1] * 5000, seed=4)
    env.close()
    assert rows[-1][2]
    assert rows[-1][4]["communications"] == result.communications
    assert rows[-1][4]["accuracy"] == result.accuracy
    assert rows[-1][4]["total_cost"] == pytest.approx(result.total_cost)
    assert env.simulator.weights.tobytes() == result.weights.tobytes()


def test_a_step_needs_a_reset_first():
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"no episode is under way; call reset\(\)"):
        make().step(np.int64(0))


def test_whoever_always_refuses_is_cut_short():
    env = make(max_slots=50, discount=1.0)
    rows = play(env, [0] * 60)
    assert (rows[-1][2], rows[-1][3]) == (False, True)
    assert len(rows) - 1 == 50  # an edge asks in every slot
    assert sum(row[1] for row in rows) == -50  # a slot in which nothing runs costs one
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.int64(0))


def test_info_says_who_asks_and_whether_it_started():
    env = make()
    state, info = env.reset(seed=1)
    assert state.reshape(5, 4)[4, info["edge"]] == 1.0
    first = info["edge"]
    state, _, _, _, info = env.step(np.int64(1))
    assert info["admitted"]
    assert state.reshape(5, 4)[3, first] > 0  # it runs
    _, _, _, _, info = env.step(np.int64(1))
    assert not info["admitted"]  # with threshold 0 one edge runs at a time
    _, _, _, _, info = env.step(np.int64(0))
    assert not info["admitted"]


def test_under_discard_every_threshold_starts_the_edge():
    env = make({"cloud.enforce": "discard"})
    rows = play(env, [1] * 4)
    assert all(row[4]["admitted"] for row in rows[1:])


def test_the_prospect_is_what_will_have_arrived():
    """One edge, H rounds, nobody else: the skill will be alpha * H (interpolation from zero)."""
    env = make({"resources.fluctuation": "off"})
    _, info = env.reset(seed=2)
    rounds = env.simulator.edges[info["edge"]].rounds
    assert env.prospect() == 0.0
    env.step(np.int64(6))
    learning = env._learning
    model = learning.train(info["edge"], learning.initial, rounds) * np.float32(0.7)  # staleness 0
    assert env.prospect() == pytest.approx(learning.progress(model))
    assert env.progress() == 0.0  # nothing has arrived yet


def test_a_second_lease_adds_less_than_it_would_alone():
    """From the same base, the later of two models drags the cloud back: (1 - a) w + a w_edge."""
    env = make()
    env.reset(seed=2)
    env.step(np.int64(6))
    alone = env.prospect()
    env.step(np.int64(6))
    assert env.prospect() < 2 * alone


@pytest.mark.parametrize("action", [-1, 7, 1.0, "1"])
def test_a_wrong_action_is_an_error(action):
    env = make()
    env.reset(seed=0)
    with pytest.raises(gymnasium.error.InvalidAction, match=r"0\.\.6"):
        env.step(action)


@pytest.mark.parametrize(
    ("settings", "options", "message"),
    [
        ({"method": "fedavg"}, {}, "asynchronous methods with edges"),
        ({"method": "fedasync"}, {}, "asynchronous methods with edges"),
        ({"stop.target": "none"}, {}, "stop.target"),
        ({"mobility.moves_per_s": 1.0}, {}, "mobility"),
        ({}, {"fidelity": "perfect"}, "surrogate"),
        ({}, {"max_slots": 0}, "max_slots"),
        ({}, {"surrogate": "nowhere.json"}, "calibrate"),
    ],
)
def test_what_cannot_be_controlled_is_said(settings, options, message):
    base = {} if "method" in settings else SMALL
    with pytest.raises(ConfigError, match=message):
        StalenessEnv({**base, **settings}, **{"surrogate": QUICK, **options}).reset(seed=0)
