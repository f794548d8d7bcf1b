"""Train a learner of Stable-Baselines3, with its defaults, to set thresholds; compare it with threshold 0.

Needs `pip install "stable-baselines3>=2.7,<3"`, and takes a minute or two. Another learner, seed and number
of federations: `python examples/stable_baselines.py --learner PPO --seed 1 --federations 40`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import gymnasium
import numpy as np
import stable_baselines3
import torch

FIRST_SEED = 1_000  # federations that no training sees: the first of a training has the learner's own seed


def federations() -> gymnasium.Env:
    """Return the environment, in which resources fluctuate and every episode has another federation."""
    return gymnasium.make("hiflash:hiflash/Staleness-v1", config={"resources.fluctuation": "on"})


def costs(choose: Callable[[np.ndarray], int], count: int) -> np.ndarray:
    """Return the costs of a policy on federations outside the training."""
    env, found = federations(), []
    for seed in range(FIRST_SEED, FIRST_SEED + count):
        state, info = env.reset(seed=seed)
        cost, over = info["cost"], False
        while not over:
            state, _, terminated, truncated, info = env.step(np.int64(choose(state)))
            cost, over = cost + info["cost"], terminated or truncated
        found.append(cost if terminated else np.inf)  # a run that ends early must not look cheap
    return np.array(found)


def main(arguments: list[str] | None = None) -> None:
    """Train, then print costs per federation and their means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--learner", choices=("DQN", "PPO"), default="DQN")
    parser.add_argument("--steps", type=int, default=40_000)
    parser.add_argument("--seed", type=int, default=0, help="of the learner")
    parser.add_argument("--federations", type=int, default=5)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # two are slower on networks as small as this
    learner = getattr(stable_baselines3, options.learner)
    model = learner("MlpPolicy", federations(), seed=options.seed, device="cpu")
    model.learn(options.steps)
    learned = costs(lambda state: model.predict(state, deterministic=True)[0], options.federations)
    fixed = costs(lambda state: 1, options.federations)  # action k + 1 is threshold k
    print(f"federation   threshold 0   {options.learner}")
    for number, (one, other) in enumerate(zip(fixed, learned, strict=True), FIRST_SEED):
        print(f"{number:>10} {one:>13,.0f} {other:>5,.0f}")
    change = learned.mean() / fixed.mean() - 1
    print(f"{'mean':>10} {fixed.mean():>13,.0f} {learned.mean():>5,.0f}   ({change:+.1%})")


if __name__ == "__main__":
    main()
