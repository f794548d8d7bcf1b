"""Acting: values worked by hand, and decisions that follow from them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from hiflash.core.thresholds import agent as module
from hiflash.core.thresholds.agent import Agent, AgentPolicy, Forward, network_shapes, pooling
from hiflash.core.thresholds.policy import REFUSE, CloudView, LeaseView
from hiflash.errors import ConfigError, RunError
from hiflash.messages import EdgeCosts
from hiflash.seeding import rng

IDLE = CloudView(
    now=0.0,
    version=0,
    leases=(),
    costs={0: EdgeCosts(1, 1, 0, 1, 0), 1: EdgeCosts(1, 1, 0, 5, 0)},
    examples={0: 5, 1: 5},
)
VIEW = IDLE._replace(leases=(LeaseView(edge=1, base_version=0, threshold=9, granted_at=0.0, eta=5.0),))


def drawn_agent(network: str, edges: int | None, threshold_max: int = 4, seed: int = 0) -> Agent:
    stream = rng(seed, "agent of a test")
    shapes = network_shapes(network, edges, threshold_max + 2)
    arrays = {name: stream.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    return Agent(network, arrays, edges, threshold_max)


def constant_agent(*values: float) -> Agent:
    """Return an agent for two edges that values actions alike in every state."""
    shapes = network_shapes("paper", 2, len(values))
    arrays = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    arrays["head.4.bias"] = np.float32(values)
    return Agent("paper", arrays, 2, len(values) - 2)


@pytest.mark.parametrize(
    ("network", "edges", "actions", "parameters"),
    [
        # 50*50+50 + 50*30+30 + 30*17+17: the paper's number, with one output too few for its own actions
        ("paper", 10, 17, 4607),
        ("paper", 10, 5, 4235),  # 2550 + 1530 + 30*5+5
        ("paper", 10, 18, 4638),  # 2550 + 1530 + 30*18+18: with the refusal
        # phi 5*32+32 + 32*32+32 = 1248; head 102*64+64 + 64*64+64 + 64*18+18 = 11922
        ("shared", None, 18, 13170),
    ],
)
def test_networks_have_as_many_parameters_as_they_should(network, edges, actions, parameters):
    assert drawn_agent(network, edges, actions - 2).parameters == parameters


def test_values_are_those_of_layers_with_relu_between():
    forward = Forward(
        {
            "head.0.weight": np.float32([[1, -1], [2, 0]]),
            "head.0.bias": np.float32([0, 1]),
            "head.2.weight": np.float32([[1, 1], [3, -1]]),
            "head.2.bias": np.float32([0.5, 0]),
        }
    )
    # hidden of (1, 2): (1-2, 2+1) = (-1, 3) -> (0, 3); values 3 + 0.5 and -3
    assert forward(np.float32([1, 2])).tolist() == [3.5, -3.0]
    # hidden of (3, 1): (2, 7); values 9 + 0.5 and 6 - 7
    assert forward(np.float32([[1, 2], [3, 1]])).tolist() == [[3.5, -3.0], [9.5, -1.0]]


def test_pooling_separates_running_idle_and_checking_in():
    # Three edges with C_comp 1, 2, 3; edges 0 and 2 run (T_rem 0.5 and 2), edge 1 checks in.
    state = np.float32([1, 2, 3, 0, 0, 0, 7, 8, 9, 0.5, 0, 2, 0, 1, 0])
    edges, shares, rest = pooling(state)
    assert edges.tolist() == [[1, 0, 7, 0.5, 0], [2, 0, 8, 0, 1], [3, 0, 9, 2, 0]]
    # a fifth of the sum over two running edges, the mean over one idle edge, and the choice of edge 1
    fifth = float(np.float32(0.2))
    assert shares.tolist() == [[[fifth, 0, fifth], [0, 1, 0], [0, 1, 0]]]
    assert rest.tolist() == [pytest.approx([2, 0, 8, 0, 1, 0.4])]  # its features, and 2 / 5 that run


def test_pooling_of_nobody_is_zero():
    nobody = np.zeros(15, np.float32)
    _, shares, rest = pooling(nobody)
    assert not shares[0, 0].any()  # none runs
    assert not shares[0, 2].any()  # none checks in
    assert not rest.any()
    everyone = np.ones(15, np.float32)
    assert not pooling(everyone)[1][0, 1].any()  # none is idle


@settings(max_examples=50, deadline=None)
@given(
    features=st.integers(1, 12).flatmap(
        lambda edges: arrays_of.arrays(
            np.float32, (5, edges), elements=st.sampled_from([0.0, 0.25, 0.5, 1.0, 3.0])
        )
    ),
    data=st.data(),
)
def test_the_order_of_edges_means_nothing_to_a_shared_network(features, data):
    edges = features.shape[1]
    features[4] = 0
    features[4, data.draw(st.integers(0, edges - 1))] = 1
    order = data.draw(st.permutations(range(edges)))
    agent = drawn_agent("shared", None)
    values, permuted = agent.values(features.reshape(-1)), agent.values(features[:, order].reshape(-1))
    np.testing.assert_allclose(permuted, values, rtol=1e-4, atol=1e-4)


def test_a_shared_network_looks_at_every_edge():
    agent, state = drawn_agent("shared", None), np.zeros((5, 3), np.float32)
    state[4, 0] = 1
    for row, edge in ((0, 0), (0, 1), (3, 2)):
        other = state.copy()
        other[row, edge] = 1
        assert not np.allclose(agent.values(other.reshape(-1)), agent.values(state.reshape(-1)))


@pytest.mark.parametrize("network", ["paper", "shared"])
def test_a_batch_has_the_values_of_its_rows(network):
    agent = drawn_agent(network, 3 if network == "paper" else None)
    states = rng(1, "states").random((7, 15), dtype=np.float32)
    rows = [agent.values(state) for state in states]
    np.testing.assert_allclose(agent.values(states), rows, atol=1e-5)  # of about 1


def test_the_best_action_is_the_threshold_after_the_refusal():
    def decided(*values: float, threshold_max: int = 16) -> float:
        return AgentPolicy(constant_agent(*values), edges=2, threshold_max=threshold_max).decide(VIEW, 0)

    assert decided(9, 1, 2, 3) == REFUSE
    assert decided(1, 9, 2, 3) == 0
    assert decided(1, 2, 3, 9) == 2
    assert decided(1, 5, 3, 9, threshold_max=1) == 0  # 9 would be threshold 2: the best of what is left
    assert decided(-3, -1, -1, -2) == 0  # of equals the smaller threshold


def test_an_agent_does_not_wait_for_nobody():
    policy = AgentPolicy(constant_agent(9, 1, 3, 2), edges=2, threshold_max=16)
    assert policy.decide(VIEW, 0) == REFUSE  # edge 1 is at work
    assert policy.decide(IDLE, 0) == 1  # nobody is, and there is none faster: the best but a refusal
    assert policy.decide(IDLE, 1) == REFUSE  # edge 0 will ask and is faster
    drawing = AgentPolicy(constant_agent(9, 1, 3, 2), edges=2, threshold_max=16, temperature=5.0)
    drawn = {drawing.decide(IDLE, 0) for _ in range(200)}
    assert drawn == {0, 1, 2}


def test_what_an_agent_sees_decides(monkeypatch):
    agent = drawn_agent("paper", 2)
    state = rng(3, "state").random(10, dtype=np.float32)
    monkeypatch.setattr(module, "observe", lambda view, edge: state * (edge + 1))
    policy = AgentPolicy(agent, edges=2, threshold_max=16)
    assert policy.decide(VIEW, 0) == int(agent.values(state).argmax()) - 1
    assert policy.decide(VIEW, 1) == int(agent.values(2 * state).argmax()) - 1


def test_softmax_draws_in_proportion_to_the_exponentials():
    # values 0 and ln 3 at temperature 1: 1 in 4 and 3 in 4; at 0.5 the odds are 1 : 9
    agent = constant_agent(0.0, math.log(3), -1000.0)
    for temperature, share in ((1.0, 0.75), (0.5, 0.9)):
        policy = AgentPolicy(agent, edges=2, threshold_max=16, temperature=temperature, seed=1)
        drawn = [policy.decide(VIEW, 0) for _ in range(2000)]
        assert set(drawn) == {REFUSE, 0}
        assert drawn.count(0) / 2000 == pytest.approx(share, abs=0.03)  # three standard errors


def test_a_tiny_temperature_is_greedy_and_does_not_overflow():
    policy = AgentPolicy(constant_agent(0, 3e30, 1), edges=2, threshold_max=16, temperature=1e-6)
    assert policy.decide(VIEW, 0) == 0


def test_draws_go_on_after_a_snapshot():
    def make() -> AgentPolicy:
        return AgentPolicy(drawn_agent("paper", 2), edges=2, threshold_max=16, temperature=50.0, seed=4)

    one, other = make(), make()
    first = [one.decide(VIEW, 0) for _ in range(20)]
    assert len(set(first)) > 1
    for _ in range(10):
        other.decide(VIEW, 0)
    resumed = make()
    resumed.restore(other.snapshot())
    assert [resumed.decide(VIEW, 0) for _ in range(10)] == first[10:]


def test_a_snapshot_of_another_agent_is_refused():
    one = AgentPolicy(drawn_agent("paper", 2, seed=0), edges=2, threshold_max=16)
    other = AgentPolicy(drawn_agent("paper", 2, seed=1), edges=2, threshold_max=16)
    with pytest.raises(RunError, match="use the same agent"):
        other.restore(one.snapshot())


def test_an_agent_for_other_edges_is_refused_with_the_way_out():
    with pytest.raises(
        ConfigError, match=r"for 2 edges, but this federation has 10; train an agent .* \"shared\""
    ):
        AgentPolicy(drawn_agent("paper", 2), edges=10, threshold_max=16)
    for edges in (1, 2, 10):
        AgentPolicy(drawn_agent("shared", None), edges=edges, threshold_max=16)


def test_the_digest_is_that_of_what_decides():
    agent = drawn_agent("paper", 2)
    told = Agent(agent.network, agent.arrays, agent.edges, agent.threshold_max, {"episodes": 3})
    assert told.digest == agent.digest
    changed = {**agent.arrays, "head.4.bias": agent.arrays["head.4.bias"] + np.float32(1e-6)}
    assert Agent("paper", changed, 2, 4).digest != agent.digest


def test_an_agent_that_cannot_be_is_refused():
    agent = drawn_agent("paper", 2)
    for wrong in (
        ("unknown", agent.arrays, 2, 4),
        ("paper", agent.arrays, None, 4),
        ("shared", agent.arrays, 2, 4),
        ("paper", agent.arrays, 3, 4),
        ("paper", agent.arrays, 2, 5),
        ("paper", {**agent.arrays, "head.4.bias": np.full(6, np.nan, np.float32)}, 2, 4),
        ("paper", {**agent.arrays, "more": np.zeros(1, np.float32)}, 2, 4),
    ):
        with pytest.raises(ConfigError):
            Agent(*wrong)
