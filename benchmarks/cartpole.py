"""The learner of agents on CartPole-v1, the usual test of double Q-learning."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hiflash.control.ddqn import DdqnSettings, Learner, Transition
from hiflash.control.networks import Mlp
from hiflash.core.thresholds.agent import Forward
from hiflash.seeding import rng

__all__ = ["CartPole", "cartpole_return"]

STEPS = 50_000
SEEDS = 5
HIDDEN = (128, 128)
EPISODES = 100  # of an evaluation
RECENT = 10  # training episodes whose mean return chooses the network that is evaluated

SETTINGS = DdqnSettings(
    gamma=0.99,
    lr=5e-4,
    batch=64,
    memory=50_000,
    copy_every=250,
    learn_from=1000,
    learn_every=1,
    epsilon=(1.0, 0.02),
    epsilon_steps=8000,
    huber=True,
)


def cartpole_return() -> dict[str, Any]:
    """Return the mean return of 100 fresh episodes after 50,000 steps, as the median over seeds."""
    returns = []
    for seed in range(SEEDS):
        run = CartPole(seed)
        run.train(STEPS)
        returns.append(run.evaluate())
    return {"cartpole_return": statistics.median(returns), "cartpole_returns": returns}


@dataclass
class Best:
    """The weights behind the best recent training episodes."""

    mean_return: float
    weights: np.ndarray


class CartPole:
    """A learner that trains on CartPole-v1; its evaluations play episodes that training never sees."""

    def __init__(self, seed: int) -> None:
        import gymnasium

        self.env = gymnasium.make("CartPole-v1")
        self.seed = seed
        self.learner = Learner(Mlp((4, *HIDDEN, 2), seed), 4, SETTINGS, seed)
        self.steps = self.evaluated = 0
        self.recent: deque[float] = deque(maxlen=RECENT)
        self.best = Best(-1.0, self.learner.weights())

    def train(self, steps: int, done: Callable[[], bool] = lambda: False) -> None:
        """Train for `steps` steps, or until an episode ends and `done` returns true.

        An episode that is unfinished at the last step is not counted.
        """
        learner, env = self.learner, self.env
        while self.steps < steps and not done():
            state, _ = env.reset(seed=self._episode_seed("training", self.steps))
            total, over = 0.0, False
            while not over and self.steps < steps:
                action = learner.explore(state)
                following, reward, terminated, truncated, _ = env.step(action)
                learner.observe(Transition(state, action, float(reward), 1, following, terminated))
                learner.learn()
                state, total, over = following, total + float(reward), terminated or truncated
                self.steps += 1
            if over:
                self._finished(total)

    def evaluate(self) -> float:
        """Return the mean return of the chosen network in 100 fresh episodes, without exploration."""
        self.evaluated += 1
        forward = Forward(self.learner.spec.split(self.best.weights))
        totals = []
        for episode in range(EPISODES):
            state, _ = self.env.reset(seed=self._episode_seed(f"evaluation {self.evaluated}", episode))
            total, over = 0.0, False
            while not over:
                state, reward, terminated, truncated, _ = self.env.step(int(forward(state).argmax()))
                total, over = total + float(reward), terminated or truncated
            totals.append(total)
        return statistics.fmean(totals)

    def _finished(self, total: float) -> None:
        self.recent.append(total)
        mean = statistics.fmean(self.recent)
        if len(self.recent) == RECENT and mean >= self.best.mean_return:  # among equals, the later weights
            self.best = Best(mean, self.learner.weights())

    def _episode_seed(self, use: str, index: int) -> int:
        return int(rng(self.seed, "cartpole", use, index).integers(2**31))
