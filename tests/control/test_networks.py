from __future__ import annotations

import numpy as np
import pytest
import torch

from hiflash.control.networks import Mlp, make_agent, q_network
from hiflash.core.thresholds.agent import Forward
from hiflash.seeding import rng


def states(count: int, edges: int) -> np.ndarray:
    """Return states in which about half of the edges run and one, or none, checks in."""
    stream = rng(0, "states", edges)
    drawn = stream.random((count, 5, edges), dtype=np.float32) * 3
    drawn[:, 3] *= stream.random((count, edges)) < 0.5
    drawn[:, 4] = np.arange(edges) == np.arange(count)[:, None] % (edges + 1)
    return drawn.reshape(count, -1)


@pytest.mark.parametrize("network", ["paper", "shared"])
@pytest.mark.parametrize("edges", [1, 5, 10])
def test_acting_and_learning_networks_have_the_same_values(network: str, edges: int) -> None:
    module, x = q_network(network, edges, 16, seed=3), states(40, edges)
    learned = module(torch.from_numpy(x)).detach().numpy()
    assert learned.shape == (40, 18)
    assert np.ptp(learned) > 0.05
    np.testing.assert_allclose(make_agent(module, 16, {}).values(x), learned, atol=1e-5)


def test_one_shared_network_takes_any_number_of_edges() -> None:
    agent = make_agent(q_network("shared", 10, 4, seed=0), 4, {})
    assert agent.edges is None
    assert [agent.values(states(3, edges)).shape for edges in (1, 5, 20)] == [(3, 6)] * 3


def test_the_papers_network_knows_its_edges() -> None:
    agent = make_agent(q_network("paper", 7, 4, seed=0), 4, {"episodes": 2})
    assert (agent.network, agent.edges, agent.threshold_max, agent.about) == ("paper", 7, 4, {"episodes": 2})


def test_an_agent_is_a_copy_of_what_was_learned() -> None:
    module = q_network("paper", 2, 4, seed=0)
    agent = make_agent(module, 4, {})
    before, x = agent.digest, states(1, 2)
    values = agent.values(x)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(1)
    assert make_agent(module, 4, {}).digest != before
    assert np.array_equal(agent.values(x), values)


def test_the_seed_decides_the_first_weights() -> None:
    def first(seed: int) -> list[float]:
        return q_network("shared", 3, 4, seed)(torch.from_numpy(states(1, 3))).flatten().tolist()

    assert first(0) == first(0) != first(1)


def test_first_weights_are_within_the_bound_of_their_inputs() -> None:
    module = Mlp((100, 50, 2), seed=0)
    weight = module.head[0].weight.detach().abs()
    assert 0.099 < float(weight.max()) <= 0.1  # 1 / sqrt(100)


def test_networks_of_other_sizes_act_in_numpy_too() -> None:
    module, x = Mlp((4, 8, 3), seed=0), rng(0, "x").random((5, 4), dtype=np.float32)
    arrays = {name: value.detach().numpy() for name, value in module.named_parameters()}
    np.testing.assert_allclose(Forward(arrays)(x), module(torch.from_numpy(x)).detach().numpy(), atol=1e-6)
