"""Plans the runs of an evaluation: one cell for every policy, condition and seed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from hiflash.agents import TRAINING_SEEDS, from_anywhere
from hiflash.config import Config
from hiflash.config.settings import given_settings, read_plan
from hiflash.errors import ConfigError
from hiflash.study.cells import Cell, listed, make_cells, policy_settings, seed_numbers

__all__ = ["AGENT", "POLICIES", "Plan", "is_fixed", "plan"]

AGENT = "agent"
POLICIES = (
    "random", "fixed-0", "fixed-1", "fixed-2", "fixed-4", "fixed-8", "fixed-16",
    "parallel", "latency", "skip-2", "skip-5", AGENT,
)  # fmt: skip
ASSOCIATIONS = {"aware": "heterogeneity", "noniid": "edge-noniid"}
ENFORCE = ("admit", "discard", "cancel")
DYNAMICS = {"static": "off", "fluctuating": "on"}

BASE = {"method": "hiflash", "data.name": "mnist", "workers": 1, "stop.communications": 2000}
FULL: dict[str, Any] = {
    "policies": POLICIES,
    "associations": tuple(ASSOCIATIONS),
    "enforce": ("admit", "discard"),
    "dynamics": tuple(DYNAMICS),
    "seeds": 5,
    "choice_seeds": (100, 101, 102),
    "agent": "auto",
}
QUICK: dict[str, Any] = {
    "policies": ("random", "fixed-0", "fixed-2", "fixed-8", "parallel", AGENT),
    "associations": ("aware",),
    "enforce": ("admit",),
    "dynamics": ("static",),
    "seeds": 1,
    "choice_seeds": (),
}
VARIED = {
    "seed": "--seeds",
    "federation.association": "--associations",
    "resources.fluctuation": "--dynamics",
    "cloud.enforce": "--enforce",
    "cloud.threshold": "--policies",
    "cloud.skipped": "--policies skip-K",
    "cloud.agent": "--agent",
}


@dataclass(frozen=True)
class Plan:
    """The cells of an evaluation; `choice_seeds` choose the best fixed threshold and are not reported."""

    cells: list[Cell]
    seeds: list[int]
    choice_seeds: list[int]


def is_fixed(policy: str) -> bool:
    """Return whether a policy is a fixed threshold."""
    return policy.startswith("fixed-")


def plan(
    config: str | Path | None = None,
    *,
    quick: bool = False,
    settings: Mapping[str, Any] | None = None,
    **wanted: Any,
) -> Plan:
    """Return the cells of an evaluation, or raise an error with all its problems.

    `wanted` has the keys of `FULL`. Missing keys come from the file's section `[evaluate_agent]`, then from
    `FULL`. With `quick`, `QUICK` takes the place of the file's section, except for the agent.
    """
    chosen = _chosen(config, quick, wanted)
    given = {**BASE, **given_settings(config, settings)}
    for key, instead in VARIED.items():
        if key in given:
            raise ConfigError(f"an evaluation varies {key} itself; use {instead}")
    seeds, choice = _seeds(chosen["seeds"], chosen["choice_seeds"])
    policies = _names("policies", chosen["policies"], POLICIES)
    runs = [(policy, seed) for seed in seeds for policy in policies]
    runs += [(policy, seed) for seed in choice for policy in policies if is_fixed(policy)]
    conditions = list(
        product(
            _names("associations", chosen["associations"], ASSOCIATIONS),
            _names("enforce", chosen["enforce"], ENFORCE),
        )
    )
    dynamics = _names("dynamics", chosen["dynamics"], DYNAMICS)
    agents = parse_agents(chosen["agent"])
    acting = {
        f"{association}-{mode}": agents.get(f"{association}-{mode}", agents.get(association, agents[""]))
        for association, mode in conditions
    }

    def make(wanted: tuple[tuple[str, str], str, tuple[str, int]]) -> Cell:
        (association, mode), kind, (policy, seed) = wanted
        return _cell(association, mode, kind, policy, seed, given, acting)

    cells = make_cells(product(conditions, dynamics, runs), make)
    _check_useful(cells[0].config)
    return Plan(cells, seeds, choice)


def parse_agents(agent: str | Mapping[str, str]) -> dict[str, str]:
    """Return agents by association or `ASSOCIATION-ENFORCE`; the agent under "" serves the rest.

    >>> parse_agents("auto,aware-discard=mnist")
    {'': 'auto', 'aware-discard': 'mnist'}
    """
    if isinstance(agent, str):
        pairs = [part.strip().rpartition("=")[::2] for part in agent.split(",")]
        names = [name.strip() for name, _ in pairs]
        if len(set(names)) < len(names):
            raise ConfigError(f"--agent names the agent of one condition twice, got {agent}")
        agent = {name: value.strip() for name, value in zip(names, (v for _, v in pairs), strict=True)}
    if not isinstance(agent, Mapping):
        raise ConfigError(f"agent must be a name, a file or a table of them by condition, got {agent!r}")
    known = ["", *ASSOCIATIONS, *(f"{name}-{mode}" for name in ASSOCIATIONS for mode in ENFORCE)]
    agents = {"": "auto"}
    for name, value in agent.items():
        if name not in known or not isinstance(value, str) or not value:
            raise ConfigError(
                "an agent is a name or a file, for all or like aware=FILE,noniid-discard=FILE, "
                f"got {name}={value}"
            )
        agents[name] = from_anywhere(value)
    return agents


def _chosen(config: str | Path | None, quick: bool, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the choices of an evaluation: as wanted, else from the file, else the default."""
    file = read_plan(config, "evaluate_agent", tuple(FULL))
    if quick:
        file = {**QUICK, **{name: value for name, value in file.items() if name == "agent"}}
    return {**FULL, **file, **{name: value for name, value in wanted.items() if value is not None}}


def _cell(
    association: str,
    mode: str,
    kind: str,
    policy: str,
    seed: int,
    given: Mapping[str, Any],
    agents: Mapping[str, str],
) -> Cell:
    condition = f"{association}-{mode}"
    settings = {
        **given,
        **_policy_settings(policy, agents[condition]),
        "federation.association": ASSOCIATIONS[association],
        "cloud.enforce": mode,
        "resources.fluctuation": DYNAMICS[kind],
        "seed": seed,
    }
    tags = {"condition": condition, "dynamics": kind, "policy": policy}
    return Cell(f"{condition}-{kind}-{policy}-s{seed}", Config.load(None, settings), tags)


def _check_useful(config: Config) -> None:
    """Refuse settings whose runs have nothing to measure."""
    if config.stop.target == "none":
        raise ConfigError("an evaluation measures what it takes to reach stop.target; give one, e.g. 0.9")
    if not config.judged_by_accuracy:
        raise ConfigError(
            "an evaluation measures accuracy on the labels of edges, and here data.task is "
            f"{config.data.task} and stop.metric {config.stop.metric}; leave them out"
        )
    if config.trainer == "none" or config.data.name == "own":
        raise ConfigError(
            "an evaluation trains on a named dataset, and here trainer is "
            f"{config.trainer} and data.name {config.data.name}; use e.g. data.name mnist5k"
        )


def _policy_settings(policy: str, agent: str) -> dict[str, Any]:
    """Return the settings for a policy, with its agent."""
    return policy_settings(policy) | ({"cloud.agent": agent} if policy == AGENT else {})


def _names(kind: str, names: Any, known: Sequence[str] | Mapping[str, Any]) -> list[str]:
    """Return the names of a list; an unknown name is an error."""
    asked: list[str] = [str(name) for name in listed(kind, names)]
    unknown = [
        name for name in asked
        if name not in known and not (kind == "policies" and re.fullmatch(r"(fixed|skip)-\d{1,4}", name))
    ]  # fmt: skip
    if unknown or not asked:
        raise ConfigError(f"{kind} must be some of {', '.join(known)}, got {', '.join(unknown) or 'none'}")
    return asked


def _seeds(seeds: Any, choice: Any) -> tuple[list[int], list[int]]:
    reported = seed_numbers(seeds)
    if not isinstance(choice, Sequence) or isinstance(choice, str):
        raise ConfigError(f"choice_seeds must be a list of seeds, got {choice!r}")
    chosen_on = seed_numbers(choice) if len(choice) else []
    both = sorted(set(reported) & set(chosen_on))
    if both:
        raise ConfigError(
            f"seeds and choice_seeds both have {both[0]}: the best fixed threshold must be chosen on other "
            "seeds than those reported"
        )
    if max(reported + chosen_on) >= TRAINING_SEEDS:
        raise ConfigError(
            f"seeds must be below {TRAINING_SEEDS}, got {max(reported + chosen_on)}: "
            "training uses the seeds from there on"
        )
    return reported, chosen_on
