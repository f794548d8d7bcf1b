"""Staleness control for other learners: early credit, a mask, and edges in a useful order (decision 51)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, SupportsFloat

import numpy as np
import numpy.typing as npt

from hiflash.agents import TRAINING_SEEDS
from hiflash.config import Config
from hiflash.control.environment import StalenessEnv, State
from hiflash.control.surrogate.file import load_surrogate
from hiflash.control.surrogate.model import Surrogate
from hiflash.core.thresholds.observation import (
    CHECKING_IN,
    DURATION,
    FEATURES,
    LIMIT,
    REMAINING,
    refusal_would_stall,
)

__all__ = ["RUNS", "ShapedStalenessEnv", "Yardstick", "yardstick"]

RUNS = 20  # federations behind a yardstick; their costs differ by about 15 %, so it is 3 or 4 % off
REFUSE, THRESHOLD_0 = np.int64(0), np.int64(1)  # actions


class Yardstick(NamedTuple):
    """Means over runs with threshold 0: the cost of reaching the target, and of a slot."""

    worth: float
    slot_cost: float


class ShapedStalenessEnv(StalenessEnv):
    """`StalenessEnv` with rewards of order 1 that credit a decision at once, and with a mask.

    The reward of a step is the paper's plus the change of a potential, divided by threshold 0's mean cost of
    a slot. The potential is `worth * prospect - due`: the value of the progress that the model will have
    once all running leases have uploaded, minus the cost until then (`due`). `worth` is threshold 0's
    mean cost of a run. When the target is reached the potential is `worth`; a truncated episode keeps its
    own.

    `info["action_mask"]` is 0 for a refusal that would stall an idle cloud (decision 41); such a refusal
    counts as threshold 0. The state has the numbers of `StalenessEnv`, with the edges in another order: the
    one that checks in, running edges by remaining time, idle edges by duration.
    """

    def __init__(
        self,
        config: Config | str | Path | Mapping[str, Any] | None = None,
        *,
        fidelity: str = "surrogate",
        surrogate: Surrogate | str | Path = "auto",
        max_slots: int = 10_000,
        discount: float = 1.0,
        one_decision_per_slot: bool = False,
    ) -> None:
        super().__init__(
            config,
            fidelity=fidelity,
            surrogate=surrogate,
            max_slots=max_slots,
            discount=discount,
            one_decision_per_slot=one_decision_per_slot,
        )
        if isinstance(surrogate, Surrogate):
            measured = surrogate
        else:
            measured = self.surrogate or load_surrogate(surrogate, self.config)
        self.yardstick = yardstick(self.config.with_settings({"seed": 0}), measured)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[State, dict[str, Any]]:
        """Begin the run of a federation and return the state when its first edge checks in."""
        state, info = super().reset(seed=seed, options=options)
        self._potential = self.potential()
        return state, {**info, "action_mask": self._masked(state)}

    def step(self, action: np.int64) -> tuple[State, SupportsFloat, bool, bool, dict[str, Any]]:
        """Answer the edge that checks in, and let time pass until the next check-in."""
        refused = isinstance(action, (int, np.integer)) and action == REFUSE
        if refused and not self._over and not self._mask[REFUSE]:
            action = THRESHOLD_0
        state, reward, terminated, truncated, info = super().step(action)
        before, self._potential = self._potential, self.potential()
        shaped = (float(reward) + self._potential - before) / self.yardstick.slot_cost
        return state, shaped, terminated, truncated, {**info, "action_mask": self._masked(state)}

    def potential(self) -> float:
        """Return `worth * prospect - due`; a run at its target is worth `worth` and owes nothing."""
        worth = self.yardstick.worth
        return worth if self.session.reached else worth * self.prospect() - self.due()

    def due(self) -> float:
        """Return the cost from now until all running leases have uploaded, if no other lease begins.

        In the real environment the prospect does not count running leases, so their costs do not count
        either.
        """
        if self._learning is None:
            return 0.0
        running = {lease: self.simulator.timelines[lease] for lease in self._cloud.leases}
        return self.simulator.ledger.cost_when_done(running, self._slot) - self._charged

    def _state(self) -> State:
        features = super()._state().reshape(FEATURES, -1)
        remaining = features[REMAINING]
        rank = np.where(remaining > 0, remaining, LIMIT + 1 + features[DURATION])
        order = np.argsort(np.where(features[CHECKING_IN] > 0, -1.0, rank), kind="stable")
        return np.ascontiguousarray(features[:, order]).reshape(-1)

    def _masked(self, state: State) -> npt.NDArray[np.int8]:
        """Return 1 for every permitted action and 0 for others; without a check-in all are permitted."""
        self._mask = np.ones(self._highest + 1, np.int8)
        if self._asked is not None and refusal_would_stall(state):
            self._mask[REFUSE] = 0
        return self._mask.copy()


@lru_cache(maxsize=64)
def yardstick(config: Config, surrogate: Surrogate) -> Yardstick:
    """Return what threshold 0 costs under a configuration, in `RUNS` federations of the surrogate."""
    env = StalenessEnv(config, surrogate=surrogate)
    costs, paid, slots = [], 0.0, 0
    for seed in range(TRAINING_SEEDS, TRAINING_SEEDS + RUNS):
        _, info = env.reset(seed=seed)
        over = False
        while not over:
            _, _, terminated, truncated, info = env.step(THRESHOLD_0)
            slots, over = slots + info["slots"], terminated or truncated
        costs.append(env.cost_to_target())
        paid += info["total_cost"]
    return Yardstick(float(np.mean(costs)), paid / slots)
