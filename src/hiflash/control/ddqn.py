"""Learning thresholds with double deep Q-learning (paper, Algorithm 2; van Hasselt et al. 2016)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from hiflash.control.replay import Replay, Transition
from hiflash.core.thresholds.agent import Forward
from hiflash.errors import RunError
from hiflash.messages import Weights
from hiflash.seeding import rng
from hiflash.train.models import FlatModel

__all__ = ["DdqnSettings", "Learner", "Transition", "double_q_target", "smoothing", "td_update"]

DRAWS = 1024  # explorations whose random numbers come from one stream: opening one is slow


@dataclass(frozen=True)
class DdqnSettings:
    """How to learn. `epsilon_steps` counts decisions, `copy_every` counts gradient steps."""

    gamma: float = 0.99
    lr: float = 1e-3
    batch: int = 64
    memory: int = 50_000  # B_max
    copy_every: int = 500  # U
    learn_from: int = 1000
    learn_every: int = 1
    epsilon: tuple[float, float] = (1.0, 0.05)
    epsilon_steps: int = 10_000
    clip_norm: float = 10.0
    huber: bool = False
    averaging: float = 0.0  # decay of the running average of the online network, per gradient step
    smooth: float = 0.0  # weight of the penalty on value differences of neighbouring thresholds


def double_q_target(
    rewards: Weights,
    discounts: Weights,
    terminated: npt.NDArray[np.bool_],
    next_online: Weights,
    next_target: Weights,
) -> Weights:
    """Return the targets of a batch: `R + gamma^n (1 - terminated) Q'(s', argmax_a Q(s', a))`.

    `discounts` are gamma^n. The online network chooses the next action, the target network values it.
    """
    best = next_online.argmax(axis=1)[:, None]
    following = np.take_along_axis(next_target, best, axis=1)[:, 0]
    return rewards + discounts * ~terminated * following


def td_update(
    values: Weights, actions: npt.NDArray[np.int64], targets: Weights, *, huber: bool = False
) -> tuple[float, Weights]:
    """Return the loss of a batch, `mean (Y - Q(s, a))^2`, and its gradient in all values.

    Huber's loss is `d^2 / 2` for errors up to 1 and `|d| - 1/2` beyond, so no gradient exceeds 1.
    """
    rows = np.arange(len(actions))
    error = values[rows, actions] - targets
    gradient = np.zeros_like(values)
    if huber:
        clipped = np.clip(error, -1, 1)
        gradient[rows, actions] = clipped / len(actions)
        return float(np.mean(clipped * (error - clipped / 2))), gradient
    gradient[rows, actions] = 2 * error / len(actions)
    return float(np.mean(error * error)), gradient


def smoothing(values: Weights, weight: float) -> Weights:
    """Return the gradient of `weight * mean sum_k (Q_(k+1) - Q_k)^2` over all actions but the first.

    Neighbouring thresholds have nearly the same true value. Their estimates are noisy, so the largest of
    them is too high, and would beat the single estimate for refusing by chance.
    """
    step = 2 * weight / len(values) * np.diff(values[:, 1:], axis=1)
    gradient = np.zeros_like(values)
    gradient[:, 2:] += step
    gradient[:, 1:-1] -= step
    return gradient


class Learner:
    """An online network that learns from a replay memory, towards a target network that follows it.

    `explore` chooses, `observe` remembers, `learn` takes a gradient step when one is due. The same seed and
    the same transitions give the same network.
    """

    def __init__(self, network: nn.Module, width: int, settings: DdqnSettings, seed: int) -> None:
        torch.set_num_threads(1)  # two are slower on small matrices, and change the order of sums
        self.network = network
        self.settings = settings
        self.seed = seed
        self.decisions = 0
        self.steps = 0
        self.memory = Replay(settings.memory, width)
        self._model = FlatModel(network, torch.device("cpu"))
        self._target = FlatModel(copy.deepcopy(network), torch.device("cpu"))
        # Numpy views of the torch weights: numpy is faster for one state, torch for a batch.
        self.spec = self._model.spec
        self.values = Forward(self.spec.split(self._model.values.numpy()))
        flat = nn.Parameter(self._model.values)
        flat.grad = self._model.gradient
        self._adam = torch.optim.Adam([flat], lr=settings.lr, fused=True)
        # Adam creates these at its first step. Created here, a snapshot before that step has them too.
        self._moments = {name: torch.zeros_like(flat) for name in ("exp_avg", "exp_avg_sq")}
        self._adam.state[flat] = {"step": torch.zeros(()), **self._moments}
        self._drawn: tuple[int, np.ndarray] = (-1, np.zeros((0, 2)))
        self.average = self.weights()

    @property
    def epsilon(self) -> float:
        """Return the current share of random decisions; it falls linearly from first to last."""
        first, last = self.settings.epsilon
        done = min(1.0, self.decisions / self.settings.epsilon_steps)
        return first + (last - first) * done

    def explore(self, state: Weights, first: float | None = None) -> int:
        """Return the online network's best action or, with probability epsilon, a random one.

        `first` is the probability that a random action is action 0; by default all are equally likely.
        """
        block, place = divmod(self.decisions, DRAWS)
        if self._drawn[0] != block:
            self._drawn = block, rng(self.seed, "exploration", block).random((DRAWS, 2))
        chance, which = self._drawn[1][place]
        explores = chance < self.epsilon
        self.decisions += 1
        values = self.values(state)
        if not explores:
            return int(values.argmax())
        share = 1 / len(values) if first is None else first
        return 0 if which < share else 1 + int((which - share) / (1 - share) * (len(values) - 1))

    def observe(self, transition: Transition) -> None:
        """Remember a decision and its consequence."""
        self.memory.add(transition)

    def learn(self) -> float | None:
        """Take a gradient step if one is due after the last transition, and return its loss."""
        seen, settings = self.memory.seen, self.settings
        if seen < settings.learn_from or seen % settings.learn_every:
            return None
        batch = self.memory.sample(settings.batch, rng(self.seed, "replay", self.steps))
        targets = double_q_target(
            batch.rewards,
            np.float32(settings.gamma) ** batch.slots,
            batch.terminated,
            *self._next_values(torch.from_numpy(batch.next_states)),
        )
        values = self.network(torch.from_numpy(batch.states))
        valued = values.detach().numpy()
        loss, gradient = td_update(valued, batch.actions, targets, huber=settings.huber)
        if settings.smooth:
            gradient += smoothing(valued, settings.smooth)
        self._model.gradient.zero_()
        values.backward(torch.from_numpy(gradient))
        length = float(self._model.gradient.norm())
        if length > settings.clip_norm:
            self._model.gradient.mul_(settings.clip_norm / length)
        self._adam.step()
        self.steps += 1
        self.average += (1 - settings.averaging) * (self._model.values.numpy() - self.average)
        if self.steps % settings.copy_every == 0:
            self._target.values.copy_(self._model.values)
        return loss

    def load(self, weights: Weights) -> None:
        """Replace the weights of the online network."""
        self._model.load(weights)

    def slow_down(self, lr: float) -> None:
        """Set the learning rate for the steps to come."""
        self._adam.param_groups[0]["lr"] = lr

    def weights(self) -> Weights:
        """Return a copy of the online network's weights as one vector."""
        return self._model.weights()

    def snapshot(self) -> dict[str, np.ndarray]:
        """Return the whole state as arrays; learning restored from it continues unchanged."""
        return {
            "counts": np.array([self.decisions, self.steps]),
            "online": self.weights(),
            "target": self._target.weights(),
            "average": self.average.copy(),
            **{name: moment.numpy().copy() for name, moment in self._moments.items()},
            **{f"memory.{name}": array for name, array in self.memory.snapshot().items()},
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go back to a snapshot of a learner with the same network and settings."""
        parameters = self._model.trainable
        if state["online"].shape != (parameters,):
            raise RunError(
                f"the network has {parameters} parameters, and the saved one {state['online'].size}; "
                "use the settings of the first training"
            )
        self.memory.restore({name[7:]: array for name, array in state.items() if name.startswith("memory.")})
        self.decisions, self.steps = state["counts"].tolist()
        self._model.load(state["online"])
        self._target.load(state["target"])
        self.average = np.array(state["average"])
        for name, moment in self._moments.items():
            moment.copy_(torch.from_numpy(np.array(state[name])))
        next(iter(self._adam.state.values()))["step"].fill_(self.steps)

    @torch.inference_mode()
    def _next_values(self, states: Tensor) -> tuple[Weights, Weights]:
        """Return the values of a batch by the online and by the target network."""
        return self.network(states).numpy(), self._target.module(states).numpy()
