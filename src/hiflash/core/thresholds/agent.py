"""Acting with a learned policy: Q-networks in numpy, and the thresholds that they choose (paper, 5.2).

`hiflash.control.ddqn` trains networks. This module only evaluates them, so a scheduler needs neither torch
nor a training environment.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from hiflash.core.state import Stateful
from hiflash.core.thresholds.observation import CHECKING_IN, FEATURES, REMAINING, observe, refusal_would_stall
from hiflash.core.thresholds.policy import CloudView
from hiflash.errors import ConfigError, RunError
from hiflash.messages import Weights
from hiflash.seeding import rng

__all__ = ["NETWORKS", "Agent", "AgentPolicy", "Forward", "network_shapes", "permitted", "pooling"]

CROWD = 5  # divides sums over running edges, and their number, to keep them near 1 like other inputs

PAPER_HIDDEN = (50, 30)
EDGE_HIDDEN = (32, 32)
HEAD_HIDDEN = (64, 64)
NETWORKS = ("paper", "shared")

Shapes = dict[str, tuple[int, ...]]


def network_shapes(network: str, edges: int | None, actions: int) -> Shapes:
    """Return the names and shapes of a network's arrays.

    `paper` is 5M-50-30-A for M edges. `shared` takes any number of edges in any order: `phi` (5-32-32)
    encodes each edge. The head (102-64-64-A) sees the sum of the codes of running edges (each will bring an
    upload), their number, the mean code of idle edges, and the code and features of the edge that checks in.
    """
    if network == "paper":
        return _layers("head", (FEATURES * int(edges or 0), *PAPER_HIDDEN, actions))
    edge = (FEATURES, *EDGE_HIDDEN)
    pooled = 3 * EDGE_HIDDEN[-1] + 1 + FEATURES
    return {**_layers("phi", edge), **_layers("head", (pooled, *HEAD_HIDDEN, actions))}


class Forward:
    """Computes Q-values from a network's arrays, which may be views of a network in training."""

    def __init__(self, arrays: Mapping[str, Weights]) -> None:
        self.phi = _pairs("phi", arrays)
        self.head = _pairs("head", arrays)

    def __call__(self, states: Weights) -> Weights:
        """Return the value of every action, in one state or in each row of a batch."""
        x = states
        if self.phi:
            edges, shares, rest = pooling(states)
            scored = _relu_layers(self.phi, edges).reshape(len(rest), -1, EDGE_HIDDEN[-1])
            x = np.concatenate([(shares @ scored).reshape(len(rest), -1), rest], axis=1)
        *hidden, (weight, bias) = self.head
        values = _relu_layers(hidden, x) @ weight + bias
        return values.reshape(*states.shape[:-1], -1)


def permitted(values: Weights, state: Weights) -> Weights:
    """Return the values of all actions in a state, with -inf for a refusal that would stall an idle cloud.

    An agent that was trained with other edges may value all of these low. It would refuse them for ever.
    """
    if refusal_would_stall(state):
        values[0] = -np.inf
    return values


def pooling(states: Weights) -> tuple[Weights, Weights, Weights]:
    """Return the parts of a shared network's computation that do not depend on learned arrays.

    1. The features of all edges in all states, one row per edge.
    2. For every state, three rows of weights over its edges: for the sum over running edges, for the mean
       over idle edges, and for the edge that checks in.
    3. For every state, the inputs that skip `phi`: the features of the edge that checks in, and the number of
       running edges.
    """
    features = states.reshape(-1, FEATURES, states.shape[-1] // FEATURES)
    running, checking_in = features[:, REMAINING] > 0, features[:, CHECKING_IN]
    count = running.sum(axis=1, keepdims=True, dtype=np.float32)
    shares = np.empty((len(features), 3, features.shape[2]), np.float32)
    np.divide(running, np.float32(CROWD), out=shares[:, 0])
    np.divide(~running, np.maximum(features.shape[2] - count, 1), out=shares[:, 1])
    shares[:, 2] = checking_in
    own = (features @ checking_in[:, :, None])[:, :, 0]
    edges = features.swapaxes(1, 2).reshape(-1, FEATURES)
    return edges, shares, np.concatenate([own, count / np.float32(CROWD)], axis=1)


@dataclass(frozen=True, eq=False)
class Agent:
    """A trained network; `edges` is the M of the paper's network, None for any number of edges.

    Its actions are a refusal and the thresholds 0..threshold_max. `about` describes its origin.
    """

    network: str
    arrays: Mapping[str, Weights]
    edges: int | None
    threshold_max: int
    about: Mapping[str, str | float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.network not in NETWORKS:
            raise ConfigError(f"an agent's network must be {' or '.join(NETWORKS)}, got {self.network!r}")
        if (self.edges is None) != (self.network == "shared"):
            raise ConfigError(f"a {self.network} network cannot have edges = {self.edges}")
        wanted = network_shapes(self.network, self.edges, self.threshold_max + 2)
        got = {name: tuple(array.shape) for name, array in self.arrays.items()}
        if got != wanted:
            raise ConfigError(f"a {self.network} network must have arrays of {wanted}, got {got}")
        if not all(np.isfinite(array).all() for array in self.arrays.values()):
            raise ConfigError("an agent's arrays must be finite numbers; train it again")

    def values(self, states: Weights) -> Weights:
        """Return the value of refusing and of every threshold, in one state or in each row of a batch."""
        return self._forward(states)

    @property
    def parameters(self) -> int:
        """Return the number of learned parameters."""
        return sum(array.size for array in self.arrays.values())

    @cached_property
    def digest(self) -> str:
        """Return a short hash of everything that determines the agent's decisions."""
        found = hashlib.sha256(json.dumps([self.network, self.edges, self.threshold_max]).encode())
        for name in sorted(self.arrays):
            found.update(np.ascontiguousarray(self.arrays[name], "<f4").tobytes())
        return found.hexdigest()[:12]

    @cached_property
    def _forward(self) -> Forward:
        return Forward(self.arrays)


class AgentPolicy(Stateful):
    """Thresholds that an agent chooses: the one of highest value, or a draw from the softmax of the values.

    A `temperature` of 0 always takes the highest value; other temperatures scale the softmax. Thresholds over
    `threshold_max` are never chosen.
    """

    STATE: ClassVar[tuple[str, ...]] = ("asked",)

    def __init__(
        self, agent: Agent, *, edges: int, threshold_max: int, temperature: float = 0.0, seed: int = 0
    ) -> None:
        if agent.edges not in (None, edges):
            raise ConfigError(
                f"the agent is for {agent.edges} edges, but this federation has {edges}; train an agent for "
                f'{edges} edges (hiflash train-agent), or one for any number with network = "shared"'
            )
        self.agent = agent
        self.actions = min(agent.threshold_max, threshold_max) + 2
        self.temperature = temperature
        self.seed = seed
        self.asked = 0

    def decide(self, view: CloudView, edge: int) -> float:
        """Return the threshold that the agent chooses, or `REFUSE`."""
        state = observe(view, edge)
        values = permitted(self.agent.values(state), state)[: self.actions]
        self.asked += 1
        if self.temperature == 0:
            return int(values.argmax()) - 1  # action 0 is to refuse
        return self._draw(values) - 1

    def snapshot(self) -> dict[str, Any]:
        """Return the number of decisions so far, and the digest of the agent."""
        return {**super().snapshot(), "agent": self.agent.digest}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot of the same agent."""
        if state["agent"] != self.agent.digest:
            raise RunError(
                f"the run began with agent {state['agent']} and cannot go on with {self.agent.digest}; "
                "use the same agent, or start a new run"
            )
        super().restore(state)

    def _draw(self, values: Weights) -> int:
        """Return an action from the softmax of the values."""
        scaled = (values.astype(np.float64) - values.max()) / self.temperature
        bounds = np.cumsum(np.exp(scaled))
        drawn = rng(self.seed, "acting", self.asked).random() * bounds[-1]
        return int(min(np.searchsorted(bounds, drawn, side="right"), len(values) - 1))


def _layers(name: str, sizes: Sequence[int]) -> Shapes:
    """Return the shapes of linear layers, named as in a torch Sequential with ReLUs between them."""
    shapes: Shapes = {}
    for index, (inputs, outputs) in enumerate(pairwise(sizes)):
        shapes[f"{name}.{2 * index}.weight"] = (outputs, inputs)
        shapes[f"{name}.{2 * index}.bias"] = (outputs,)
    return shapes


def _pairs(name: str, arrays: Mapping[str, Weights]) -> list[tuple[npt.NDArray[np.float32], Weights]]:
    names = [key.removesuffix(".weight") for key in arrays if key.startswith(name) and key.endswith("weight")]
    return [(arrays[f"{layer}.weight"].T, arrays[f"{layer}.bias"]) for layer in names]


def _relu_layers(layers: Sequence[tuple[Weights, Weights]], x: Weights) -> Weights:
    for weight, bias in layers:
        x = x @ weight
        x += bias
        np.maximum(x, 0, out=x)
    return x
