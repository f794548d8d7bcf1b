"""Double Q-learning: target and update worked by hand, and a learner that can be stopped at any step."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load, save

from hiflash.control.ddqn import DdqnSettings, Learner, Transition, double_q_target, smoothing, td_update
from hiflash.control.networks import Mlp, q_network
from hiflash.errors import RunError
from hiflash.seeding import rng

QUICK = DdqnSettings(batch=8, memory=100, copy_every=7, learn_from=20, learn_every=2, epsilon_steps=200)


def test_the_online_network_chooses_and_the_target_network_values() -> None:
    targets = double_q_target(
        rewards=np.float32([-1, -1, -2.5, -1]),
        discounts=np.float32([0.5, 0.5, 0.125, 0.5]),
        terminated=np.array([False, False, False, True]),
        next_online=np.float32([[1, 3, 2], [3, 1, 2], [0, 0, 1], [1, 3, 2]]),
        next_target=np.float32([[10, 20, 40], [10, 20, 40], [10, 20, 40], [10, 20, 40]]),
    )
    # -1 + 0.5 * 20: action 1 is the online network's best, though the target network prefers action 2
    # -1 + 0.5 * 10
    # -2.5 + 0.5^3 * 40: three slots, whose rewards are already summed up
    # -1: the episode is over, and nothing follows
    assert targets.tolist() == [9.0, 4.0, 2.5, -1.0]


def test_only_the_action_taken_is_updated() -> None:
    values = np.float32([[1, 5], [2, 4]])
    loss, gradient = td_update(values, np.array([0, 1]), np.float32([3, 1]))
    # errors 1 - 3 = -2 and 4 - 1 = 3: (4 + 9) / 2, and 2 * error / 2 each
    assert loss == 6.5
    assert gradient.tolist() == [[-2.0, 0.0], [0.0, 3.0]]


def test_hubers_loss_pulls_no_harder_than_one() -> None:
    values = np.float32([[1, 5], [2, 4]])
    loss, gradient = td_update(values, np.array([0, 1]), np.float32([1.5, 1]), huber=True)
    # errors -0.5 and 3: 0.5^2 / 2 = 0.125 and 3 - 0.5 = 2.5, mean 1.3125; -0.5 / 2 and 1 / 2
    assert loss == 1.3125
    assert gradient.tolist() == [[-0.25, 0.0], [0.0, 0.5]]


def test_neighbouring_thresholds_are_drawn_together_and_refusing_is_left_alone() -> None:
    values = np.float32([[9, 1, 4, 4], [0, 0, 0, 0]])
    # steps of the first row: 4 - 1 = 3 and 0; times 2 * 0.5 / 2 rows: 1.5 up there, 1.5 down here
    assert smoothing(values, 0.5).tolist() == [[0.0, -1.5, 1.5, 0.0], [0.0, 0.0, 0.0, 0.0]]


def test_random_actions_refuse_as_often_as_they_are_told() -> None:
    learner = Learner(Mlp((2, 4, 5), seed=0), 2, replace(QUICK, epsilon=(1.0, 1.0)), seed=0)
    state = np.float32([0.1, 0.2])
    often = [learner.explore(state, 0.8) for _ in range(2000)]
    assert often.count(0) / 2000 == pytest.approx(0.8, abs=0.03)
    assert all(often.count(action) / 2000 == pytest.approx(0.05, abs=0.02) for action in (1, 2, 3, 4))
    evenly = [learner.explore(state) for _ in range(2000)]
    assert all(evenly.count(action) / 2000 == pytest.approx(0.2, abs=0.04) for action in range(5))


def test_the_average_follows_the_network() -> None:
    learner = Learner(Mlp((2, 4, 3), seed=0), 2, replace(QUICK, averaging=0.75), seed=0)
    before, stream = learner.average.copy(), rng(1, "made")
    while learner.learn() is None:
        state = stream.random(2).astype("float32")
        learner.observe(Transition(state, 1, -1.0, 1, state, False))
    assert learner.average == pytest.approx(0.75 * before + 0.25 * learner.weights(), abs=1e-6)


@pytest.mark.parametrize("huber", [False, True])
def test_the_gradient_is_that_of_the_loss(huber: bool) -> None:
    stream = rng(0, "batch")
    values, targets = stream.normal(size=(6, 3)) * 2, stream.normal(size=6)
    actions = stream.integers(3, size=6)
    _, gradient = td_update(values, actions, targets, huber=huber)
    nudge = 1e-6
    for place in np.ndindex(values.shape):
        up, down = values.copy(), values.copy()
        up[place] += nudge
        down[place] -= nudge
        slope = (td_update(up, actions, targets, huber=huber)[0]
                 - td_update(down, actions, targets, huber=huber)[0]) / (2 * nudge)  # fmt: skip
        assert gradient[place] == pytest.approx(slope, abs=1e-6)


def linear_learner(settings: DdqnSettings) -> Learner:
    """Return a learner of `Q(s, a) = w_a s` with w = (1, 2) and no bias yet."""
    network = Mlp((1, 2), seed=0)
    with torch.no_grad():
        network.head[0].weight.copy_(torch.tensor([[1.0], [2.0]]))
        network.head[0].bias.zero_()
    return Learner(network, 1, settings, seed=0)


def weights_of(learner: Learner) -> list[float]:
    return learner.weights().tolist()  # w_0, w_1, b_0, b_1


def test_one_step_on_a_linear_network() -> None:
    """The same transition fills the batch: s = 1, action 0, R = 4, two slots, s' = 3.

    Q(s') = (3, 6), so the target network values action 1 with 6: Y = 4 + 0.5^2 * 6 = 5.5. The error is
    1 - 5.5 = -4.5, the gradient -9 in w_0 and in b_0. Adam's first step is lr against the sign of each.
    """
    settings = DdqnSettings(gamma=0.5, lr=0.25, batch=4, memory=10, learn_from=1, clip_norm=100.0)
    learner = linear_learner(settings)
    learner.observe(Transition(np.float32([1]), 0, 4.0, 2, np.float32([3]), False))
    assert learner.learn() == pytest.approx(4.5**2)
    assert weights_of(learner) == pytest.approx([1.25, 2.0, 0.25, 0.0])


def test_the_second_step_is_adams_and_long_gradients_are_cut() -> None:
    """The first gradient is (-9, 0, -9, 0), of length 9 sqrt 2, cut to 1: each -g with g = 1 / sqrt 2.

    Then w_0 = 1.25, b_0 = 0.25, and a second, terminated, transition has taken the place of the first:
    s = 1, action 0, R = 1.4. Q = 1.5, error 0.1, gradient 0.2 in w_0 and b_0, of length 0.283: not cut.
    m = 0.9 * 0.1 * (-g) + 0.1 * 0.2, v = 0.999 * 0.001 g^2 + 0.001 * 0.04, divided by 1 - 0.9^2 and
    1 - 0.999^2.
    """
    settings = DdqnSettings(gamma=0.5, lr=0.25, batch=4, memory=1, learn_from=1, clip_norm=1.0)
    learner = linear_learner(settings)
    learner.observe(Transition(np.float32([1]), 0, 4.0, 2, np.float32([3]), False))
    learner.learn()
    assert weights_of(learner) == pytest.approx([1.25, 2.0, 0.25, 0.0])
    learner.observe(Transition(np.float32([1]), 0, 1.4, 1, np.float32([3]), True))
    assert learner.learn() == pytest.approx(0.01, rel=1e-5)
    g = 1 / math.sqrt(2)
    m = (0.09 * -g + 0.02) / (1 - 0.81)
    v = (0.000999 * g * g + 0.00004) / (1 - 0.998001)
    step = 0.25 * m / math.sqrt(v)
    assert weights_of(learner) == pytest.approx([1.25 - step, 2.0, 0.25 - step, 0.0], rel=1e-4)


def test_the_target_network_follows_every_so_many_steps() -> None:
    learner = linear_learner(DdqnSettings(gamma=0.5, batch=4, memory=1, learn_from=1, copy_every=3))
    first = learner.snapshot()["target"].tolist()
    targets = []
    for _ in range(6):
        learner.observe(Transition(np.float32([1]), 0, 4.0, 2, np.float32([3]), False))
        learner.learn()
        targets.append(learner.snapshot()["target"].tolist())
        if len(targets) in (3, 6):
            assert targets[-1] == weights_of(learner)
    assert targets[0] == targets[1] == first
    assert targets[3] == targets[4] == targets[2] != first


def test_learning_waits_for_experience_and_takes_its_turns() -> None:
    learner = linear_learner(DdqnSettings(batch=4, memory=10, learn_from=6, learn_every=2))
    steps = []
    for _ in range(9):
        learner.observe(Transition(np.float32([1]), 0, 1.0, 1, np.float32([1]), True))
        steps.append(learner.learn() is not None)
    assert steps == [False] * 5 + [True, False, True, False]  # after 6 and 8


def test_exploration_becomes_rarer() -> None:
    settings = DdqnSettings(epsilon=(1.0, 0.1), epsilon_steps=2000, memory=1)
    learner = linear_learner(settings)  # action 1 is better in state 1
    actions = []
    for _ in range(6000):
        actions.append(learner.explore(np.float32([1])))
        if len(actions) == 1000:
            assert learner.epsilon == pytest.approx(0.55)  # half of the way from 1 to 0.1
    assert learner.epsilon == pytest.approx(0.1)
    assert np.mean(actions[:300]) == pytest.approx(0.53, abs=0.09)  # epsilon 0.93: 0.07 + 0.93 / 2
    assert np.mean(actions[2000:]) == pytest.approx(0.95, abs=0.015)  # 0.9 + 0.1 / 2


def practise(learner: Learner, first: int, last: int) -> None:
    """Play some steps of a made-up task; each depends on the learner and on its number alone."""
    for index in range(first, last):
        stream = rng(5, "task", index)
        state, following = stream.random((2, 15), dtype=np.float32)
        action = learner.explore(state)
        slots = int(stream.integers(1, 4))
        reward = float(stream.normal()) - 0.2 * action
        learner.observe(Transition(state, action, reward, slots, following, index % 10 == 9))
        learner.learn()


@pytest.mark.parametrize("network", ["paper", "shared"])
def test_learning_goes_on_after_saving_as_if_it_had_not_stopped(network: str) -> None:
    def make() -> Learner:
        return Learner(q_network(network, 3, 4, seed=1), 15, QUICK, seed=2)

    straight, stopped, resumed = make(), make(), make()
    practise(straight, 0, 200)
    practise(stopped, 0, 100)
    kept = save(stopped.snapshot())
    practise(stopped, 100, 130)  # going on must not change what was kept
    practise(resumed, 0, 20)  # nor may what it did before matter
    resumed.restore(load(kept))
    practise(resumed, 100, 200)
    assert straight.steps == resumed.steps == 91  # every second of 200, from the 20th on
    one, other = straight.snapshot(), resumed.snapshot()
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert array.tobytes() == other[name].tobytes(), name


def test_a_snapshot_of_another_network_is_refused() -> None:
    one = Learner(q_network("paper", 3, 4, 0), 15, QUICK, 0)
    other = Learner(q_network("paper", 3, 5, 0), 15, QUICK, 0)
    with pytest.raises(RunError, match="parameters"):
        other.restore(one.snapshot())
    smaller = Learner(q_network("paper", 3, 4, 0), 15, replace(QUICK, memory=30), 0)
    practise(one, 0, 50)
    with pytest.raises(RunError, match="memory holds 30"):
        smaller.restore(one.snapshot())
