"""The parts that settings choose by name, and how to add your own: mixing rules, thresholds, methods."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hiflash.core.aggregation import Buffer, Delta, Interpolate, Mixing, TierWeighting
from hiflash.core.heuristics import KeepParallel, LatencyAware, SkipSlowest
from hiflash.core.methods import METHODS, Recipe
from hiflash.core.staleness import FixedThreshold, RandomThreshold, ThresholdPolicy, UnevenThreshold
from hiflash.core.weighting import Constant, Exponential, Hinge, Polynomial, Weighting
from hiflash.errors import ConfigError

if TYPE_CHECKING:
    from hiflash.config import Config

__all__ = [
    "MIXINGS",
    "THRESHOLDS",
    "parts_of",
    "register_method",
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


def parts_of(method: str) -> dict[str, str]:
    """Return the parts that a method is made of, in words."""
    from hiflash.config import Config

    config = Config(method=method)
    cloud, client, edge = config.cloud, config.client, config.edge
    if cloud.schedule == "centralized":
        return {"schedule": f"none ({config.stop.steps:,} steps on pooled data)"}
    flat, asynchronous = config.federation.flat, cloud.schedule == "async"
    parts: dict[str, str] = {"association": "none (flat)" if flat else config.federation.association}
    if not flat:
        rounds = "/".join(str(count) for count in edge.edge_rounds)
        parts["edge"] = f"{edge.clients_per_round} clients x {rounds} rounds"
    if asynchronous:
        most = "" if cloud.concurrency == "none" else f" ({cloud.concurrency} at a time)"
        weighted = "" if cloud.mixing == "tiers" else f" ({cloud.alpha:g}, {cloud.weighting})"
        parts["schedule"] = f"async{most}"
        parts["mixing"] = cloud.mixing + weighted
        parts["threshold"] = str(cloud.threshold)
    else:
        parts["schedule"] = f"sync ({cloud.participants} {'clients' if flat else 'edges'})"
        parts["selection"] = cloud.selection
        parts["mixing"] = "mean by samples"
    parts["client"] = f"SGD (mu {client.mu:g})" if client.mu else "SGD"
    return parts


def register_mixing(name: str, make: Callable[[Config, int], Mixing]) -> None:
    """Let `cloud.mixing = name` use the rule that `make(config, trained)` returns.

    `trained` is how many entries of a model are learned. Behind them lie the running statistics of
    BatchNorm, which a rule that adds differences should interpolate instead.
    """
    _add(MIXINGS, "mixing rule", name, make)


def register_threshold(name: str, make: Callable[[Config], ThresholdPolicy]) -> None:
    """Let `cloud.threshold = name` use the policy that `make` returns for a configuration."""
    _add(THRESHOLDS, "threshold", name, make)


def register_method(name: str, about: str, settings: Mapping[str, Any]) -> None:
    """Let `method = name` stand for these settings; wrong ones are refused here and now."""
    from hiflash.config import Config

    _add(METHODS, "method", name, Recipe(about, dict(settings)))
    try:
        Config(method=name)
    except ConfigError:
        del METHODS[name]
        raise


def registered() -> bool:
    """Return whether there are parts that other processes do not have."""
    return bool(_OWN)


_OWN: set[tuple[str, str]] = set()


def _agent_policy(config: Config) -> ThresholdPolicy:
    from hiflash.agents import find_agent
    from hiflash.core.agent import AgentPolicy

    return AgentPolicy(
        find_agent(config),
        edges=config.units,
        threshold_max=config.cloud.threshold_max,
        temperature=config.cloud.temperature,
        seed=config.seed,
    )


def _add(table: dict[str, Any], kind: str, name: str, part: Any) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name):
        raise ConfigError(f"a {kind} is named with lower-case letters, digits and _, got {name!r}")
    if name in table and (kind, name) not in _OWN:
        raise ConfigError(f"{name} is a {kind} that HiFlash brings; choose another name")
    _OWN.add((kind, name))
    table[name] = part
