"""The parts that settings choose by name, and how to add your own mixing rules and thresholds."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hiflash.agents import find_agent
from hiflash.core.mixing import Buffer, Delta, Interpolate, Mixing, TierWeighting
from hiflash.core.thresholds.agent import AgentPolicy
from hiflash.core.thresholds.fixed import FixedThreshold
from hiflash.core.thresholds.heuristics import KeepParallel, LatencyAware, SkipSlowest
from hiflash.core.thresholds.policy import ThresholdPolicy
from hiflash.core.thresholds.random import RandomThreshold, UnevenThreshold
from hiflash.core.weighting import Constant, Exponential, Hinge, Polynomial, Weighting
from hiflash.errors import ConfigError

if TYPE_CHECKING:
    from hiflash.config import Config

__all__ = [
    "MIXINGS",
    "THRESHOLDS",
    "add_part",
    "register_mixing",
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

THRESHOLDS: dict[str, Callable[[Config], ThresholdPolicy]] = {
    "inf": lambda config: FixedThreshold(math.inf),
    "random": lambda config: RandomThreshold(config.cloud.threshold_max, config.seed),
    "uneven": lambda config: UnevenThreshold(config.cloud.threshold_max, config.seed),
    "parallel": lambda config: KeepParallel(config.cloud.parallelism),
    "latency": lambda config: LatencyAware(config.cloud.base_threshold, config.cloud.threshold_max),
    "skip_slowest": lambda config: SkipSlowest(config.cloud.base_threshold, config.cloud.skipped),
    "agent": lambda config: _agent_policy(config),
}


def weighting(config: Config) -> Weighting:
    """Return how much a stale update counts under this configuration, for mixing rules of your own too."""
    return WEIGHTINGS[config.cloud.weighting](config)


def threshold_policy(config: Config) -> ThresholdPolicy:
    """Return the policy that `cloud.threshold` names, or the fixed number that it is."""
    wanted = config.cloud.threshold
    return FixedThreshold(wanted) if isinstance(wanted, int) else THRESHOLDS[wanted](config)


def register_mixing(name: str, make: Callable[[Config, int], Mixing]) -> None:
    """Let `cloud.mixing = name` use the rule that `make(config, trained)` returns.

    `trained` is how many entries of a model are learned. Behind them lie the running statistics of
    BatchNorm, which a rule that adds differences should interpolate instead.
    """
    add_part(MIXINGS, "mixing rule", name, make)


def register_threshold(name: str, make: Callable[[Config], ThresholdPolicy]) -> None:
    """Let `cloud.threshold = name` use the policy that `make` returns for a configuration."""
    add_part(THRESHOLDS, "threshold", name, make)


def registered() -> bool:
    """Return whether there are parts that other processes do not have."""
    return bool(_OWN)


_OWN: set[tuple[str, str]] = set()


def _agent_policy(config: Config) -> ThresholdPolicy:
    return AgentPolicy(
        find_agent(config),
        edges=config.units,
        threshold_max=config.cloud.threshold_max,
        temperature=config.cloud.temperature,
        seed=config.seed,
    )


def add_part(table: dict[str, Any], kind: str, name: str, part: Any) -> None:
    """Put a user's own part into a table under a name that nothing else has."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name):
        raise ConfigError(f"a {kind} is named with lower-case letters, digits and _, got {name!r}")
    if name in table and (kind, name) not in _OWN:
        raise ConfigError(f"{name} is a {kind} that HiFlash brings; choose another name")
    _OWN.add((kind, name))
    table[name] = part
