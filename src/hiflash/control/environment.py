"""Staleness control as a Gymnasium environment: a step is a slot of the simulator (paper, section 5.2)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
import numpy.typing as npt

from hiflash.config import Config
from hiflash.config.settings import hiflash_settings
from hiflash.control.surrogate.file import load_surrogate
from hiflash.control.surrogate.model import Surrogate
from hiflash.control.surrogate.stand_in import surrogate_simulator
from hiflash.core.async_cloud import AsyncCloud
from hiflash.core.state import Attempt, Stateful
from hiflash.core.thresholds.observation import FEATURES, LIMIT, observe
from hiflash.core.thresholds.policy import REFUSE, CloudView
from hiflash.errors import ConfigError
from hiflash.sim.federation import Federation, build, outline
from hiflash.sim.record import Goals
from hiflash.sim.session import Session
from hiflash.sim.simulator import Simulator

__all__ = ["DISCOUNT", "FIDELITIES", "StalenessEnv", "State"]

State = npt.NDArray[np.float32]

DISCOUNT = 0.95  # per slot; a lease and its effect on other leases last little more than ten slots
FIDELITIES = ("surrogate", "real")


class StalenessEnv(gymnasium.Env[State, np.int64]):
    """The cloud's scheduler: a step sets the threshold of the edge that checks in, or refuses it.

    The state is that of `core.thresholds.observation`. The action is the threshold plus one, and 0 is a
    refusal. The reward of a slot is `-sigma1 C_comp - sigma2 C_comm - 1`. A step also passes through the
    slots without a check-in: it adds up their rewards with `discount`. `info["slots"]` counts its slots, and
    `info["cost"]` is their cost without a discount. With `one_decision_per_slot` a step is one slot, and its
    action has no effect without a check-in.

    An episode terminates when the model reaches `stop.target` and is truncated after `max_slots` or when
    another budget of the configuration is used up. Every episode has a federation of its own. Its seed is the
    seed given to `reset`, or a random one. `fidelity` is `"surrogate"` (see `control.surrogate`) or `"real"`,
    which trains the models.
    """

    metadata = {"render_modes": []}  # noqa: RUF012  # Gymnasium's own way

    def __init__(
        self,
        config: Config | str | Path | Mapping[str, Any] | None = None,
        *,
        fidelity: str = "surrogate",
        surrogate: Surrogate | str | Path = "auto",
        max_slots: int = 10_000,
        discount: float = DISCOUNT,
        one_decision_per_slot: bool = False,
    ) -> None:
        self.config = _staleness_config(config)
        self.fidelity, self.max_slots, self.discount = fidelity, max_slots, discount
        self.one_decision_per_slot = one_decision_per_slot
        if fidelity not in FIDELITIES:
            raise ConfigError(f'fidelity must be "surrogate" or "real", got {fidelity!r}')
        if not (max_slots >= 1 and 0 < discount <= 1):
            raise ConfigError(
                f"max_slots must be >= 1 and discount in (0, 1], got {max_slots} and {discount}"
            )
        self.surrogate = None
        if fidelity == "surrogate":
            self.surrogate = (
                surrogate if isinstance(surrogate, Surrogate) else load_surrogate(surrogate, self.config)
            )
            self._data, self._spec = outline(self.config)
        edges = self.config.federation.edges
        self.observation_space = gymnasium.spaces.Box(0.0, LIMIT, (FEATURES * edges,), np.float32)
        self._highest = self.config.cloud.threshold_max + 1
        self.action_space = gymnasium.spaces.Discrete(self._highest + 1)
        self._federation: Federation | None = None
        self._policy = _ActionPolicy()
        self._over = True  # until the first reset

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[State, dict[str, Any]]:
        """Begin the run of a federation and return the state when its first edge checks in."""
        super().reset(seed=seed)
        # Without a seed, Gymnasium's generator draws the next federation's.
        drawn = seed if seed is not None else int(self.np_random.integers(2**62))
        self._begin(self.config.with_settings({"seed": drawn}))
        self._slot, self._charged, self._over, self._evaluated = 0, 0.0, False, 0
        self._pass_time()
        return self._state(), self._info(slots=0, cost=self._charged, admitted=False)

    def step(self, action: np.int64) -> tuple[State, SupportsFloat, bool, bool, dict[str, Any]]:
        """Answer the edge that checks in, and let time pass until the next check-in."""
        if self._over:
            raise gymnasium.error.ResetNeeded("no episode is under way; call reset()")
        if not (isinstance(action, (int, np.integer)) and 0 <= action <= self._highest):
            raise gymnasium.error.InvalidAction(
                f"an action is a whole number in 0..{self._highest} "
                f"(0 refuses, k + 1 is threshold k), got {action!r}"
            )
        admitted, charged = False, self._charged
        if self._asked is not None:
            before = self.simulator.ledger.grants[self._asked]
            self._policy.threshold = int(action) - 1
            self.session.advance()
            admitted = self.simulator.ledger.grants[self._asked] > before
        reward, slots = self._pass_time(answered=True)
        reached = self.session.reached
        info = self._info(slots=slots, cost=self._charged - charged, admitted=admitted)
        return self._state(), reward, reached, self._over and not reached, info

    def progress(self) -> float:
        """Return the model's progress towards the target: 0 at the start, 1 at the target."""
        if self._learning is not None:
            return self._learning.progress(self.simulator.weights)
        return min(self._accuracy() / float(self.config.stop.target), 1.0)

    def cost_to_target(self) -> float:
        """Return the cost of the run, extrapolated by its progress if it has not reached the target."""
        return self._charged if self.session.reached else self._charged / max(self.progress(), 0.01)

    def prospect(self) -> float:
        """Return the progress that the model will have once all running leases have uploaded.

        A grant changes it by the gain of its own upload, minus the loss from making other uploads staler. So
        it credits a decision at once. The progress at the arrival also depends on all grants in between.
        """
        learning, cloud, timelines = self._learning, self._cloud, self.simulator.timelines
        if learning is None:
            return self.progress()
        weights, version = cloud.weights, cloud.version
        with Attempt(cloud.mixing) as attempt:
            for lease in sorted(
                cloud.leases.values(), key=lambda lease: timelines[lease.lease_id].arrives_at
            ):
                staleness = version - lease.base_version
                if staleness > lease.threshold:
                    continue
                rounds = len(timelines[lease.lease_id].rounds)
                trained = learning.train(lease.edge, lease.received, rounds)
                mixed = cloud.mixing.mix(weights, trained, lease.base, lease.edge, staleness)
                if mixed is not None:
                    weights, version = mixed, version + 1
            attempt.undo()
        return learning.progress(weights)

    def close(self) -> None:
        """End the workers of a real federation."""
        if self._federation is not None:
            self._federation.close()
            self._federation = None

    def _begin(self, config: Config) -> None:
        if self.surrogate is None:
            self.close()
            self._federation = build(config)
            engine, pool = self._federation.engine(_quiet), self._federation.pool
            if not isinstance(engine, Simulator) or pool is None:
                raise ConfigError("staleness control needs an asynchronous method that trains")
            evaluate, validated = self._federation.evaluate, self._federation.validated
            self.simulator, self._learning = engine, None
        else:
            self.simulator, self._learning = surrogate_simulator(
                config, self._data, self._spec, self.surrogate, config.seed
            )
            evaluate, validated = self._learning.evaluate, False  # it stands for the set that decides
        assert isinstance(self.simulator.cloud, AsyncCloud)  # noqa: S101  # the configuration was checked
        self._cloud = self.simulator.cloud
        self._cloud.policy = self._policy
        goals = Goals(config.evaluate.every, float(config.stop.target), validated=validated)
        self.session = Session(self.simulator, evaluate, goals)
        self.simulator.start()

    def _pass_time(self, *, answered: bool = False) -> tuple[float, int]:
        """Advance to the next decision or the end; return the reward and the number of slots on the way.

        `answered` says that the current slot has had its decision.
        """
        ledger, reward, slots, factor = self.simulator.ledger, 0.0, 0, 1.0
        self._asked: int | None = None
        while True:
            if self.session.evaluated != self._evaluated:  # the model may have reached the target
                self._evaluated = self.session.evaluated
                self._over = self.session.over() is not None
            if self.one_decision_per_slot and slots and not self._over and self._nothing_at_the_boundary():
                return reward, slots
            if self._over or ledger.slot(self.simulator.heap[0][0]) > self._slot:
                cost = ledger.costs_by(self._slot)["total_cost"]
                reward -= factor * (cost - self._charged)
                self._charged, factor, slots = cost, factor * self.discount, slots + 1
                if not self._over:
                    self._slot, answered = self._slot + 1, False
                    self._over = self._slot >= self.max_slots or self.session.over() is not None
                if self._over:
                    return reward, slots
            elif not answered and (asked := self.simulator.decision()) is not None:
                self._asked = asked[0]
                return reward, slots
            else:
                self.session.advance()

    def _nothing_at_the_boundary(self) -> bool:
        """Return whether the next event comes after the beginning of the current slot."""
        return self.simulator.heap[0][0] > self._now() + 1e-9

    def _now(self) -> float:
        return self._slot * self.config.resources.slot_s

    def _state(self) -> State:
        return observe(self._cloud.view(self._now()), self._asked)

    def _info(self, *, slots: int, cost: float, admitted: bool) -> dict[str, Any]:
        return {
            "slots": slots,
            "cost": cost,
            "admitted": admitted,
            "edge": -1 if self._asked is None else self._asked,
            "accuracy": self._accuracy(),
            "total_cost": self._charged,
            "communications": self.simulator.ledger.communications,
        }

    def _accuracy(self) -> float:
        """Return the accuracy that decides: learners see the test set only where it is the one."""
        return self.session.watched or 0.0


class _ActionPolicy(Stateful):
    """A policy that returns the threshold of the last action."""

    def __init__(self) -> None:
        self.threshold = REFUSE

    def decide(self, view: CloudView, edge: int) -> float:
        """Return the threshold of the last action."""
        return self.threshold


def _staleness_config(config: Config | str | Path | Mapping[str, Any] | None) -> Config:
    """Return a configuration for staleness control, with its own threshold policy taken out."""
    if not isinstance(config, Config):
        path, settings = (None, config) if isinstance(config, Mapping) else (config, None)
        config = Config.load(None, hiflash_settings(path, settings))
    if config.cloud.schedule != "async" or config.federation.flat:
        raise ConfigError(
            f"staleness control is for asynchronous methods with edges, and {config.method} is not one; "
            "use hiflash or hifl"
        )
    if config.stop.target == "none" or config.trainer == "none":
        raise ConfigError(
            'staleness control needs a target and training: set stop.target, and a trainer other than "none"'
        )
    if not config.judged_by_accuracy:
        raise ConfigError(
            f"staleness control measures accuracy on classes, and here data.task is {config.data.task} and "
            f"stop.metric {config.stop.metric}; leave them out"
        )
    return config.with_random_thresholds()


def _quiet(*_: Any) -> None:
    """Ignore an event."""
