"""The speed of the staleness environment with a surrogate."""

from __future__ import annotations

import statistics
import time

import numpy as np

from hiflash.control.environment import StalenessEnv

__all__ = ["environment_steps_s"]


def environment_steps_s(steps: int = 5_000, repeats: int = 5) -> float:
    """Return the steps per second of random actions in the default federation with fluctuating resources."""
    env = StalenessEnv({"resources.fluctuation": "on"})
    env.reset(seed=0)
    actions = np.random.default_rng(0).integers(env.action_space.n, size=(repeats, steps))
    return statistics.median(_steps_s(env, row) for row in actions)


def _steps_s(env: StalenessEnv, actions: np.ndarray) -> float:
    """Return steps per second of processor time for these actions, without resets."""
    spent_s, begun = 0.0, time.process_time()
    for action in actions:
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            spent_s += time.process_time() - begun
            env.reset()
            begun = time.process_time()
    return len(actions) / (spent_s + time.process_time() - begun)
