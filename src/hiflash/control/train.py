"""Trains an agent: runs episodes, checks the agent between them, and saves the state to resume from."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from hiflash.agents import TRAINING_SEEDS
from hiflash.config import Config
from hiflash.control.ddqn import DdqnSettings, Learner
from hiflash.control.environment import DISCOUNT, StalenessEnv
from hiflash.control.networks import make_agent, q_network
from hiflash.control.replay import Transition
from hiflash.control.surrogate.model import Surrogate
from hiflash.core.thresholds.agent import Agent, Forward, permitted
from hiflash.core.thresholds.observation import FEATURES, REMAINING
from hiflash.errors import ConfigError, Paused, RunError
from hiflash.messages import Weights
from hiflash.seeding import rng
from hiflash.sim.made_by import makers
from hiflash.store.agent_file import save_agent
from hiflash.store.checkpoint import load_checkpoint, save_checkpoint
from hiflash.store.files import write_atomic
from hiflash.store.run_directory import claimed

__all__ = ["DYNAMICS", "Training", "TrainingSettings"]

STATE = "training.safetensors"
DYNAMICS = {"static": ("off",), "fluctuating": ("on",), "both": ("off", "on")}
FIRST_CHECK = TRAINING_SEEDS
FIRST_EPISODE = TRAINING_SEEDS + 1_000
SCALE = 0.2  # brings rewards to about one, as the learning rate expects
LAST_RATE = 0.02  # of the first learning rate
MOST_REFUSED = 0.95  # every episode draws its share of refusals among random actions from 0 to this
SLOWER, SLOW_EVERY = 10.0, 8  # in two episodes of eight, edge 0 is ten times as slow
KEPT_THRESHOLDS = 2_000  # of a check, for the figure


@dataclass(frozen=True)
class TrainingSettings:
    """How an agent is trained.

    `progress_reward` adds a reward for progress (decision 38). The state does not show the progress of
    training, so the paper's reward alone cannot tell a good update from a bad one.
    """

    episodes: int = 150
    network: str = "shared"
    dynamics: str = "both"
    fidelity: str = "surrogate"
    progress_reward: bool = True
    discount: float = DISCOUNT
    max_slots: int = 6_000
    check_every: int = 10
    check_runs: int = 6

    def ddqn(self) -> DdqnSettings:
        """Return the settings of the learner."""
        return DdqnSettings(
            gamma=self.discount,
            lr=1e-3,
            batch=128,
            memory=100_000,
            copy_every=200,
            learn_from=1_000,
            learn_every=2,
            epsilon_steps=100 * self.episodes,
            averaging=0.999,
            smooth=0.02,
        )


class Training:
    """An agent under training. `run` goes on until all episodes are done or `pause` returns true."""

    def __init__(
        self, config: Config, surrogate: Surrogate | str | Path, settings: TrainingSettings, folder: Path
    ) -> None:
        if settings.dynamics not in DYNAMICS:
            raise ConfigError(f"dynamics must be one of {', '.join(DYNAMICS)}, got {settings.dynamics!r}")
        for name in ("episodes", "check_every", "check_runs"):
            if getattr(settings, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(settings, name)}")
        self.config, self.settings, self.folder = config, settings, folder
        alike = config.resources.slow_edge == 1 and not config.mobility.active
        slower = {"resources.slow_edge": SLOWER} if alike else {}
        self.envs, self.slow_envs = (
            [
                StalenessEnv(
                    config.with_settings({"resources.fluctuation": fluctuation, **changed}),
                    fidelity=settings.fidelity,
                    surrogate=surrogate,
                    max_slots=settings.max_slots,
                    discount=settings.discount,
                )
                for fluctuation in DYNAMICS[settings.dynamics]
            ]
            for changed in ({}, slower)
        )
        edges, self.threshold_max = config.federation.edges, config.cloud.threshold_max
        self.network = q_network(settings.network, edges, self.threshold_max, config.seed)
        (width,) = self.envs[0].observation_space.shape or (0,)
        self.learner = Learner(self.network, width, settings.ddqn(), config.seed)
        self.episodes: list[dict[str, Any]] = []
        self.checks: list[dict[str, Any]] = []
        self.best: Weights = self.learner.average.copy()
        self.wall_s: float | None = 0.0  # of everything that is saved; None if a part of it did not count
        self.made_by: list[dict[str, Any]] = []
        self._counted_at = monotonic()
        # The environment's configuration, because the user's thresholds play no part in training.
        own = {"resources.fluctuation": config.resources.fluctuation}
        digest = self.envs[0].config.with_settings(own).digest()
        self._identity = {"config": digest, **asdict(settings), "surrogate": self._surrogate_id()}

    @property
    def worth(self) -> float:
        """Return the reward for full progress: the lowest cost at which any policy so far reached the target.

        With this reward the best policy so far has a net return of zero, and only a better one has a positive
        return (Dinkelbach 1967: the least ratio of cost to progress).
        """
        return float(min(check["cost"] for check in self.checks))

    def run(
        self,
        progress: Callable[[dict[str, Any]], None] = lambda row: None,
        pause: Callable[[], bool] = lambda: False,
    ) -> Agent:
        """Train, then save and return the agent with the lowest cost in the checks."""
        self._check_folder()
        with claimed(self.folder):
            self._load()
            return self._train(progress, pause)

    def _train(self, progress: Callable[[dict[str, Any]], None], pause: Callable[[], bool]) -> Agent:
        self._counted_at = monotonic()
        checked = [check["policy"] for check in self.checks]
        for policy, choose in _baselines(self.threshold_max, self.config.seed).items():
            if policy not in checked:
                self.checks.append(self._check(policy, choose, 0, pause))
                self._save()
        while len(self.episodes) < self.settings.episodes:
            self.episodes.append(self._episode(len(self.episodes), pause))
            done = len(self.episodes)
            if done % self.settings.check_every == 0 or done == self.settings.episodes:
                values = Forward(self.learner.spec.split(self.learner.average))
                found = self._check("agent", partial(_best, values), done, pause)
                if all(found["cost"] <= check["cost"] for check in self.checks if check["episode"]):
                    self.best = self.learner.average.copy()
                self.checks.append(found)
                self.episodes[-1]["check"] = found["cost"]
                self._save()
            progress(self.episodes[-1])
        return self._finish()

    def _episode(self, number: int, pause: Callable[[], bool]) -> dict[str, Any]:
        """Run one episode, learn from it, and return its row."""
        settings, learner = self.settings, self.learner
        envs = self.slow_envs if number % SLOW_EVERY >= SLOW_EVERY - 2 else self.envs
        env = envs[number % len(envs)]
        state, info = env.reset(seed=FIRST_EPISODE + number)
        learner.slow_down(learner.settings.lr * max(LAST_RATE, 1 - number / settings.episodes))
        worth = self.worth if settings.progress_reward else 0.0
        refusal = MOST_REFUSED * float(rng(self.config.seed, "refusal", number).random())
        gained, losses, thresholds = 0.0, [], Counter[int]()
        over, ahead = False, env.prospect()
        while not over:
            if pause():
                raise Paused(None, self._resume_hint())
            action = learner.explore(state, refusal)
            following, reward, terminated, truncated, info = env.step(np.int64(action))
            behind, ahead = ahead, env.prospect()
            paid = float(reward) + worth * (ahead - behind)
            learner.observe(Transition(state, action, SCALE * paid, info["slots"], following, terminated))
            loss = learner.learn()
            if loss is not None:
                losses.append(loss)
            gained += paid
            thresholds[action - 1] += 1
            state, over = following, terminated or truncated
        return {
            "episode": number + 1,
            "dynamics": "static" if env.config.resources.fluctuation == "off" else "fluctuating",
            "return": gained,
            "cost": info["total_cost"],
            "communications": info["communications"],
            "reached": terminated,
            "thresholds": {str(key): thresholds[key] for key in sorted(thresholds)},
            "epsilon": learner.epsilon,
            "loss": float(np.mean(losses)) if losses else None,
        }

    def _check(
        self, policy: str, choose: Callable[[Weights], int], episode: int, pause: Callable[[], bool]
    ) -> dict[str, Any]:
        """Return the mean cost of a policy on the check seeds, and the thresholds that it chooses."""
        costs, thresholds, running, reached = [], [], [], 0
        for run in range(self.settings.check_runs):
            if pause():
                raise Paused(None, self._resume_hint())
            env = self.envs[run % len(self.envs)]
            state, _ = env.reset(seed=FIRST_CHECK + run)
            over = False
            while not over:
                action = choose(state)
                thresholds.append(action - 1)
                running.append(np.count_nonzero(state.reshape(FEATURES, -1)[REMAINING]))
                state, _, terminated, truncated, _ = env.step(np.int64(action))
                over = terminated or truncated
            costs.append(env.cost_to_target())
            reached += terminated
        kept = thresholds[:: -(-len(thresholds) // KEPT_THRESHOLDS)]
        return {
            "policy": policy,
            "episode": episode,
            "cost": float(np.mean(costs)),
            "costs": costs,
            "reached": reached,
            "thresholds": kept,
            "parallelism": float(np.mean(running)),
        }

    def _resume_hint(self) -> str:
        return f"paused; give the same command again to go on with {self.folder}"

    def _finish(self) -> Agent:
        found = [check for check in self.checks if check["episode"]]
        about: dict[str, str | float] = {
            "config": self._identity["config"],
            "surrogate": self._identity["surrogate"],
            "data": self.config.data.name,
            "association": self.config.federation.association,
            "enforce": self.config.cloud.enforce,
            "mixing": self.config.cloud.mixing,
            "edges": self.config.federation.edges,
            "compute_weight": self.config.cost.compute_weight,
            "send_weight": self.config.cost.send_weight,
            "accounting": self.config.cost.accounting,
            "episodes": self.settings.episodes,
            "check_cost": min(check["cost"] for check in found),
        }
        self.learner.load(self.best)
        agent = make_agent(self.network, self.threshold_max, about)
        save_agent(self.folder / "agent.safetensors", agent)
        write_atomic(self.folder / "training.json", json.dumps(self.record(agent)))
        return agent

    def record(self, agent: Agent) -> dict[str, Any]:
        """Return settings, episodes and checks of the training, the digest of its agent, and what made it."""
        return {
            "settings": asdict(self.settings),
            "about": dict(agent.about),
            "digest": agent.digest,
            "wall_s": self.wall_s,
            "made_by": self.made_by,
            "episodes": self.episodes,
            "checks": self.checks,
        }

    def close(self) -> None:
        """End the workers of real environments."""
        for env in (*self.envs, *self.slow_envs):
            env.close()

    def _check_folder(self) -> None:
        """Refuse a folder with other files. Hidden files are locks, or leftovers of a killed training."""
        if self.folder.is_dir() and not (self.folder / STATE).exists():
            others = sorted(path.name for path in self.folder.iterdir() if not path.name.startswith("."))
            if others:
                raise RunError(
                    f"{self.folder} holds files that are not of a training ({others[0]}); "
                    "choose another --name or remove it"
                )

    def _load(self) -> None:
        if not (self.folder / STATE).exists():
            return
        state = load_checkpoint(self.folder / STATE)
        for name, value in self._identity.items():
            if state["identity"].get(name) != value:
                raise RunError(
                    f"{self.folder} holds a training with {name} = {state['identity'].get(name)}, and this "
                    f"one has {value}; choose another --name or remove it"
                )
        self.learner.restore(state["learner"])
        self.episodes, self.checks, self.best = state["episodes"], state["checks"], state["best"]
        self.wall_s, self.made_by = state.get("wall_s"), state.get("made_by", [])  # older states lack them

    def _save(self) -> None:
        now = monotonic()
        self.wall_s = None if self.wall_s is None else self.wall_s + now - self._counted_at
        self._counted_at, self.made_by = now, makers(self.made_by)
        save_checkpoint(
            self.folder / STATE,
            {
                "identity": self._identity,
                "learner": self.learner.snapshot(),
                "episodes": self.episodes,
                "checks": self.checks,
                "best": self.best,
                "wall_s": self.wall_s,
                "made_by": self.made_by,
            },
        )
        write_atomic(self.folder / "config.toml", self.config.to_toml())

    def _surrogate_id(self) -> str:
        """Return a short hash of the surrogate."""
        surrogate = self.envs[0].surrogate
        if surrogate is None:
            return "none"
        return hashlib.sha256(json.dumps(surrogate.to_dict()).encode()).hexdigest()[:12]


def _baselines(threshold_max: int, seed: int) -> dict[str, Callable[[Weights], int]]:
    """Return the policies that an agent should beat: random actions and fixed thresholds."""
    stream = rng(seed, "random actions")
    fixed = {f"fixed-{k}": partial(_always, k + 1) for k in (0, 1, 2, 4, 8) if k <= threshold_max}
    return {"random": lambda state: int(stream.integers(threshold_max + 2)), **fixed}


def _best(values: Forward, state: Weights) -> int:
    return int(permitted(values(state), state).argmax())


def _always(action: int, state: Weights) -> int:
    return action
