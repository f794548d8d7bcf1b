"""Items of the paper, each read from a TOML file that ships with the package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from hiflash.config.settings import flatten, read_toml
from hiflash.errors import ConfigError

__all__ = ["FOLDER", "KINDS", "NAMES", "SCALES", "Item", "Plan", "load_item"]

FOLDER = Path(__file__).parent / "items"
SCALES = ("small", "full")
KINDS = ("compare", "sweep", "associate", "example", "training", "models", "theory")
NAMES = (
    "models", "association-example", "js-lambda", "latency", "bounds",
    "thresholds", "edge-iid", "mixing-grid",
    "accuracy-mnist", "communications-mnist", "communications-mnist-epochs",
    "sensitivity-mnist", "partitions-mnist",
    "accuracy-femnist", "communications-femnist",
    "accuracy-cifar10", "communications-cifar10", "trade-off", "accuracy-js",
    "agent-thresholds", "agent-cost", "agent-weights",
)  # fmt: skip
"""The order of `hiflash paper all`: quick ones first, and before an item the one whose runs it reads."""

OWN = ("title", "source", "kind", "runs_of", "differences", "figures", "plan", *SCALES)
PLANNED = (
    "methods", "variants", "without", "under", "crossed", "partitions", "seeds", "settings", "grid", "by",
    "target", "targets", "forecast", "shown",
    "lambdas", "trainings", "episodes", "taus", "updates", "slow", "models",
    "networks", "classes", "latency_ms", "capacity", "differences",
)  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """What an item runs at a scale: everything of its `[plan]`, with the scale's section on top."""

    scale: str
    content: Mapping[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.content[key]

    def get(self, key: str, default: Any = None) -> Any:
        """Return an entry, or the default if there is none."""
        return self.content.get(key, default)

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings of all runs, as dotted keys."""
        return flatten(self.get("settings", {}))

    @property
    def variants(self) -> dict[str, dict[str, Any]]:
        """Return the variants that are not left out at this scale.

        Labels that are `crossed` also run `under` every set of settings there: `hifl+wan-off`.
        """
        found = {label: flatten(variant) for label, variant in self.get("variants", {}).items()}
        for label, (name, settings) in product(self.get("crossed", []), self.get("under", {}).items()):
            found[f"{label}+{name}"] = {**found.get(label, {"method": label}), **flatten(settings)}
        return {label: variant for label, variant in found.items() if label not in self.get("without", [])}


@dataclass(frozen=True)
class Item:
    """A figure or table of the paper: where it is, the kind of study that reproduces it, and its plans.

    `runs_of` names another item whose runs this one reads; `differences` say what is not as in the paper;
    `figures` name those that its page shows.
    """

    name: str
    title: str
    source: str
    kind: str
    runs_of: str | None
    differences: tuple[str, ...]
    figures: tuple[str, ...]
    plans: Mapping[str, Plan]

    @property
    def command(self) -> str:
        """Return the command that runs it."""
        return f"hiflash paper run {self.name}"

    @property
    def runs_from(self) -> Item:
        """Return the item whose runs it reads: itself, or the one that it names."""
        return self if self.runs_of is None else load_item(self.runs_of)

    def differences_at(self, scale: str) -> list[str]:
        """Return what is not as in the paper: in the item, in its plan, and in that whose runs it reads."""
        own = [*self.differences, *self.plan(scale).get("differences", ())]
        return own if self.runs_of is None else own + self.runs_from.plan(scale).get("differences", [])

    def has_seeds(self, scale: str) -> bool:
        """Return whether its runs, or those that it reads, are repeated with several seeds."""
        return "seeds" in self.runs_from.plan(scale).content

    def figures_in(self, folder: Path, scale: str) -> list[Path]:
        """Return the figures of its page that are in its folder, or in those of its trainings."""
        homes = [folder, *(folder / label for label in self.plan(scale).get("trainings", {}))]
        found = [home / f"{stem}.png" for stem in self.figures for home in homes]
        return [path for path in found if path.is_file()]

    def plan(self, scale: str) -> Plan:
        """Return the plan of a scale."""
        if scale not in SCALES:
            raise ConfigError(f"scale must be one of {', '.join(SCALES)}, got {scale!r}")
        return self.plans[scale]


def load_item(name: str) -> Item:
    """Return an item by name, or raise an error that lists the names."""
    if name not in NAMES:
        raise ConfigError(f"item must be one of {', '.join(NAMES)}, got {str(name)[:60]!r}")
    raw = read_toml(FOLDER / f"{name}.toml")
    plans = {scale: Plan(scale, _on_top(raw.get("plan", {}), raw.get(scale, {}))) for scale in SCALES}
    unknown = [key for key in raw if key not in OWN]
    unknown += [key for plan in plans.values() for key in plan.content if key not in PLANNED]
    if unknown or raw["kind"] not in KINDS:
        raise ConfigError(f"{name}.toml has an unknown key or kind: {', '.join(unknown) or raw['kind']}")
    return Item(
        name,
        raw["title"],
        raw["source"],
        raw["kind"],
        raw.get("runs_of"),
        tuple(raw.get("differences", ())),
        tuple(raw.get("figures", ())),
        plans,
    )


def _on_top(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return two sections as one: subsections are joined, and other values replaced."""
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        both = isinstance(value, Mapping) and isinstance(under, Mapping)
        merged[key] = _on_top(under, value) if both else value  # type: ignore[arg-type]
    return merged
