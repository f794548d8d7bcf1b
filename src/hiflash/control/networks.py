"""The Q-networks in torch, for learning. `core.thresholds.agent` has them in numpy, for acting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from hiflash.core.thresholds.agent import NETWORKS, Agent, network_shapes, pooling
from hiflash.core.thresholds.observation import FEATURES
from hiflash.errors import ConfigError
from hiflash.seeding import rng

__all__ = ["Mlp", "Shared", "make_agent", "q_network"]


class Mlp(nn.Module):
    """Linear layers with ReLU between them: the paper's network is `Mlp((5 * M, 50, 30, A))`."""

    def __init__(self, sizes: Sequence[int], seed: int) -> None:
        super().__init__()
        self.head = _mlp(sizes)
        _initialise(self, seed)

    def forward(self, states: Tensor) -> Tensor:
        """Return the Q-values of a batch of states."""
        values: Tensor = self.head(states)
        return values


class Shared(nn.Module):
    """Scores every edge with the same weights, then pools: works for any number and order of edges."""

    def __init__(self, edge_sizes: Sequence[int], head_sizes: Sequence[int], seed: int) -> None:
        super().__init__()
        self.phi = _mlp(edge_sizes)
        self.head = _mlp(head_sizes)
        _initialise(self, seed)

    def forward(self, states: Tensor) -> Tensor:
        """Return the Q-values of a batch of states."""
        edges, shares, rest = (torch.from_numpy(array) for array in pooling(states.numpy()))
        scored = torch.relu(self.phi(edges)).view(len(states), shares.shape[2], -1)
        values: Tensor = self.head(torch.cat([(shares @ scored).flatten(1), rest], 1))
        return values


def q_network(network: str, edges: int, threshold_max: int, seed: int) -> nn.Module:
    """Return a new network with one output for refusing and one for each threshold."""
    if network not in NETWORKS:
        raise ConfigError(f"network must be one of {', '.join(NETWORKS)}, got {network!r}")
    shapes = network_shapes(network, edges, threshold_max + 2)
    sizes = {
        part: [shapes[f"{part}.0.weight"][1]]
        + [shape[0] for name, shape in shapes.items() if name.startswith(part) and name.endswith("bias")]
        for part in {name.split(".")[0] for name in shapes}
    }
    return Shared(sizes["phi"], sizes["head"], seed) if "phi" in sizes else Mlp(sizes["head"], seed)


def make_agent(module: nn.Module, threshold_max: int, about: dict[str, str | float]) -> Agent:
    """Return a network's weights as an agent, ready to be saved and deployed."""
    arrays = {name: value.detach().numpy().copy() for name, value in module.named_parameters()}
    if isinstance(module, Shared):
        return Agent("shared", arrays, None, threshold_max, about)
    return Agent("paper", arrays, arrays["head.0.weight"].shape[1] // FEATURES, threshold_max, about)


def _mlp(sizes: Sequence[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _initialise(module: nn.Module, seed: int) -> None:
    """Draw all weights uniform in +-1/sqrt(inputs) like torch, but from named streams."""
    for name, layer in module.named_modules():
        if isinstance(layer, nn.Linear):
            bound, stream = 1 / math.sqrt(layer.in_features), rng(seed, "q network", name)
            for values in (layer.weight, layer.bias):
                drawn = stream.uniform(-bound, bound, tuple(values.shape)).astype("float32")
                values.data.copy_(torch.from_numpy(drawn))
