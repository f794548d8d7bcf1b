"""What a user changes of an item: refused where it would not reach every run, told, and as a command."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from hiflash.config.settings import flatten
from hiflash.errors import ConfigError
from hiflash.study.cells import seed_numbers
from hiflash.study.paper.items import Item, Plan

__all__ = ["changes", "command_of"]

BARE = re.compile(r"(?!(true|false)$)[A-Za-z][\w./+-]*")
"""Texts that the command line does not read as anything else."""
MOST_LABELS = 4
SWEPT = {
    "associate": ("federation.association", "federation.heterogeneity_weight"),
    "training": ("cloud.threshold",),  # random and learned thresholds
}
"""Settings that the work of a kind decides for itself."""


def changes(
    item: Item, scale: str, seeds: int | Sequence[int] | None, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return settings, and `seeds`, that are not as planned; raise for those that the item sets itself."""
    plan = item.runs_from.plan(scale)
    if seeds is not None and "seeds" not in plan.content:
        raise ConfigError(f"{item.name} has no seeds; leave them out")
    given = flatten(settings)
    own = _own(item.kind, plan)
    problems = [f"{item.name} {own[key]}; leave out {key}" for key in given if key in own]
    if problems:
        raise ConfigError(problems)
    planned = plan.settings
    found = {key: value for key, value in given.items() if key not in planned or planned[key] != value}
    if seeds is not None:
        numbers = seed_numbers(seeds)
        if numbers != seed_numbers(plan["seeds"]):
            found["seeds"] = len(numbers) if numbers == list(range(len(numbers))) else numbers
    return found


def command_of(item: Item, scale: str, changed: Mapping[str, Any]) -> str:
    """Return the command that runs an item with these changes."""
    words = [item.command, f"--scale {scale}"]
    for key, value in changed.items():
        words.append(f"--{key} {shlex.quote(_seeds(value) if key == 'seeds' else _text(value))}")
    return " ".join(words)


def _own(kind: str, plan: Plan) -> dict[str, str]:
    """Return why an item takes no value for a setting, by its key."""
    own = dict.fromkeys(SWEPT.get(kind, ()), "decides this itself")
    if plan.get("partitions"):
        own["data.partition"] = "has partitions of its own"
    if "seeds" in plan.content:
        own["seed"] = "has seeds, not one seed (--seeds)"
    if plan.get("methods"):
        own["method"] = "has methods of its own"
    own |= dict.fromkeys(plan.get("grid", {}), "sweeps over it")
    labels: dict[str, list[str]] = {}
    for label, settings in {**plan.variants, **plan.get("trainings", {})}.items():
        for key in flatten(settings):
            labels.setdefault(key, []).append(label)
    for key, some in labels.items():
        more = ", ..." if len(some) > MOST_LABELS else ""
        own.setdefault(key, f"sets it itself for {', '.join(some[:MOST_LABELS])}{more}")
    return own


def _seeds(seeds: int | Sequence[int]) -> str:
    """Return seeds as the command line takes them: 3 is three of them, and 7 with a comma the seed 7.

    >>> _seeds(3), _seeds([2, 7]), _seeds([7])
    ('3', '2,7', '7,')
    """
    if isinstance(seeds, int):
        return str(seeds)
    return ",".join(map(str, seeds)) + ("," if len(seeds) == 1 else "")


def _text(value: Any) -> str:
    if isinstance(value, str) and BARE.fullmatch(value):
        return value
    return json.dumps(value, separators=(",", ":"))
