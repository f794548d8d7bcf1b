"""The parts that settings choose by name, and functions to register your own."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from hiflash.agents import find_agent
from hiflash.core.mixing import Buffer, Delta, Interpolate, Mixing, TierWeighting
from hiflash.core.registry import Key, Part, discover
from hiflash.core.thresholds.agent import AgentPolicy
from hiflash.core.thresholds.fixed import FixedThreshold
from hiflash.core.thresholds.policy import ThresholdPolicy
from hiflash.core.weighting import Constant, Exponential, Hinge, Polynomial, Weighting
from hiflash.errors import ConfigError

if TYPE_CHECKING:
    from hiflash.config import Config

__all__ = [
    "BUILT_IN",
    "MIXINGS",
    "TASKS",
    "THRESHOLDS",
    "add_part",
    "register_mixing",
    "register_task",
    "register_threshold",
    "registered",
    "threshold_policy",
    "weighting",
]

WEIGHTINGS: dict[str, Callable[[Config], Weighting]] = {
    "exponential": lambda config: Exponential(config.cloud.penalty),
    "constant": lambda config: Constant(),
    "polynomial": lambda config: Polynomial(config.cloud.exponent),
    "hinge": lambda config: Hinge(*config.cloud.hinge),
}

MIXINGS: dict[str, Callable[[Config, int], Mixing]] = {
    "interpolate": lambda config, _: Interpolate(config.cloud.alpha, weighting(config)),
    "delta": lambda config, trained: Delta(
        config.cloud.alpha, weighting(config), config.cloud.momentum, trained
    ),
    "buffer": lambda config, trained: Buffer(
        config.cloud.alpha, weighting(config), config.cloud.buffer, trained
    ),
    "tiers": lambda config, _: TierWeighting(config.units),
}


def _agent_policy(config: Config) -> ThresholdPolicy:
    return AgentPolicy(
        find_agent(config),
        edges=config.units,
        threshold_max=config.cloud.threshold_max,
        temperature=config.cloud.temperature,
        seed=config.seed,
    )


AGENT = Part(  # not in core, because an agent is a file
    "agent",
    "the choice of a trained agent: a threshold up to `threshold_max`, or a refusal",
    _agent_policy,
    keys=(
        Key(
            "agent",
            str,
            default="auto",
            low=1,
            high=4096,
            allowed='"auto", the name of a shipped agent, or the path of a file',
            about="threshold agent: the agent that decides; auto chooses by dataset and association",
        ),
        Key(
            "temperature",
            float,
            default=0.0,
            low=0,
            high=1e6,
            about="threshold agent: 0 takes the best action, more draws from the softmax of the Q-values",
        ),
    ),
    reads=("threshold_max",),
)

THRESHOLDS: dict[str, Part] = {**discover("hiflash.core.thresholds"), AGENT.name: AGENT}

TASKS: dict[str, Part] = {
    part.name: part
    for part in (
        Part("classification", "one class per sample: accuracy", "hiflash.train.tasks:classification"),
        Part("regression", "numbers to predict: rmse, mae, r2", "hiflash.train.tasks:regression"),
        Part("sequence", "the next token: accuracy, perplexity", "hiflash.train.tasks:sequence"),
    )
}

BUILT_IN = {"cloud.mixing": frozenset(MIXINGS), "cloud.threshold": frozenset(THRESHOLDS)}
"""The names that ship with HiFlash. A part of the user may read any key."""


def weighting(config: Config) -> Weighting:
    """Return the staleness weighting of a configuration, also for mixing rules of your own."""
    return WEIGHTINGS[config.cloud.weighting](config)


def threshold_policy(config: Config) -> ThresholdPolicy:
    """Return the policy that `cloud.threshold` names; a number is a fixed threshold."""
    wanted = config.cloud.threshold
    return FixedThreshold(wanted) if isinstance(wanted, int) else THRESHOLDS[wanted].build(config)


def register_mixing(name: str, make: Callable[[Config, int], Mixing], *, replace: bool = False) -> None:
    """Let `cloud.mixing = name` use the rule that `make(config, trained)` returns.

    `trained` is the number of learned entries of a model. After them come the running statistics of
    BatchNorm: interpolate these, even in a rule that adds differences. `replace` allows a name that you
    registered before.
    """

    def checked(config: Config, trained: int) -> Mixing:
        return _with_methods("mixing rule", name, make(config, trained), ("mix", "snapshot", "restore"))

    _check_function("mixing rule", name, make)
    add_part(MIXINGS, "mixing rule", name, checked, replace=replace)


def register_threshold(
    name: str, make: Callable[[Config], ThresholdPolicy], *, replace: bool = False
) -> None:
    """Let `cloud.threshold = name` use the policy that `make` returns for a configuration.

    `replace` allows a name that you registered before.
    """

    def checked(config: Config) -> ThresholdPolicy:
        return _with_methods("threshold", name, make(config), ("decide", "snapshot", "restore"))

    _check_function("threshold", name, make)
    add_part(THRESHOLDS, "threshold", name, Part(name, "registered by the user", checked), replace=replace)


def register_task(name: str, make: Callable[[Config], Any], *, replace: bool = False) -> None:
    """Let `data.task = name`, or a dataset with that task, use the `Task` that `make` returns.

    `replace` allows a name that you registered before.
    """

    def checked(config: Config) -> Any:
        methods = ("losses", "loss", "sums", "scores", "fitted", "targets", "check")
        return _with_methods("task", name, make(config), methods)

    _check_function("task", name, make)
    add_part(TASKS, "task", name, Part(name, "registered by the user", checked), replace=replace)


def registered() -> bool:
    """Return whether the user registered parts, which other processes lack."""
    return bool(_OWN)


_OWN: set[tuple[str, str]] = set()

Made = TypeVar("Made")


def _check_function(kind: str, name: str, make: object) -> None:
    if not callable(make):
        raise ConfigError(f"the {kind} {name} needs a function that makes one, got {type(make).__name__}")


def _with_methods(kind: str, name: str, part: Made, methods: tuple[str, ...]) -> Made:
    """Return a user's own part if it has these methods; the cloud checks what they return."""
    missing = [method for method in methods if not callable(getattr(part, method, None))]
    if missing or isinstance(part, type):
        raise ConfigError(
            f"what makes the {kind} {name} must return an object with the methods {', '.join(methods)}, got "
            f"{'the class ' + part.__name__ if isinstance(part, type) else type(part).__name__}"
        )
    return part


def add_part(table: dict[str, Any], kind: str, name: str, part: Any, *, replace: bool) -> None:
    """Put a user's part into a table; `replace` allows to replace a user's part, never a shipped one."""
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name):
        raise ConfigError(f"the name of a {kind} has lower-case letters, digits and _, got {name!r}")
    if name in table and (kind, name) not in _OWN:
        raise ConfigError(f"{name} is a {kind} of HiFlash; choose another name")
    if name in table and not replace:
        raise ConfigError(
            f"{name} is a {kind} that you registered already; "
            "choose another name, or give replace=True to replace it"
        )
    _OWN.add((kind, name))
    table[name] = part
