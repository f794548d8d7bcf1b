"""What a check of the theory takes from a configuration, and which settings the theory says nothing about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hiflash.config import Config
from hiflash.config.settings import flatten, given_settings, read_plan
from hiflash.config.tree import inapplicable
from hiflash.data import Dataset
from hiflash.errors import ConfigError
from hiflash.methods.recipes import METHODS
from hiflash.study.cells import listed

__all__ = ["ASSOCIATIONS", "L2", "LR_SHARE", "TAUS", "UPDATES", "Plan", "check_data", "theory_plan"]

TAUS = (0, 1, 2, 4, 8)
ASSOCIATIONS = ("edge-iid", "edge-noniid")
UPDATES = 200
MOST_UPDATES, MOST_TAU, MOST_TRIALS = 100_000, 1_000_000, 1000
LR_SHARE = 0.1  # of 1 / beta: the learning rate, if none is given
L2 = 0.01  # if no client.weight_decay is given

DEFAULTS = {"method": "hifl", "data.partition": "noniid1", "client.weight_decay": L2}
OWN = {
    "cloud.threshold": "the theory is checked for several thresholds; use --taus",
    "federation.association": "the theory is checked for several associations; use --associations",
    "client.batch": "the theory is checked with full gradients; leave it out",
    "client.lr_decay": "the theory has one learning rate; leave it out",
    "client.lr_decay_steps": "the theory has one learning rate; leave it out",
    "model.name": "the theory is checked on logistic regression; leave it out",
    "trainer": "the theory is checked with gradients of its own; leave it out",
    "executor": "the theory is checked in one process; leave it out",
}
# What the analysis assumes, and what Config says otherwise.
ASSUMED: tuple[tuple[str, Any, str], ...] = (
    ("cloud.schedule", "async", "an asynchronous cloud"),
    ("federation.flat", False, "edges"),
    ("cloud.mixing", "interpolate", "Eq. 8"),
    ("client.algorithm", "sgd", "plain gradient steps"),
    ("client.optimizer", "sgd", "plain gradient steps"),
    ("client.momentum", 0.0, "plain gradient steps"),
    ("client.mu", 0.0, "plain gradient steps"),
    ("client.clip_norm", "none", "plain gradient steps"),
    ("client.local_epochs", "none", "the same number of steps on every client"),
    ("edge.aggregate", "mean", "Eq. 7"),
    ("edge.clients_per_round", "all", "all clients in every edge round"),
    ("edge.deadline_s", "none", "all clients in every edge round"),
    ("cloud.norm_bound", "none", "no refused updates"),
    ("edge.secure", "off", "exact models"),
    ("wan.upload", "none", "exact models"),
    ("wan.download", "none", "exact models"),
    ("attack.kind", "none", "honest clients"),
    ("mobility.active", False, "clients that stay"),
)


@dataclass(frozen=True)
class Plan:
    """What to run: a configuration per association, every tau, and T; `lr` is None if not given."""

    configs: dict[str, Config]
    taus: tuple[int, ...]
    updates: int
    lr: float | None

    @property
    def config(self) -> Config:
        """Return the configuration of the first association; the others differ in the association alone."""
        return next(iter(self.configs.values()))

    def trials(self, association: str) -> list[Config]:
        """Return the configurations of an association, the smallest tau first."""
        base = self.configs[association]
        return [base.with_choices({"cloud.threshold": tau}) for tau in self.taus]


def theory_plan(
    config: str | Path | None = None,
    *,
    taus: Sequence[int] | None = None,
    associations: Sequence[str] | str | None = None,
    updates: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Plan:
    """Return the plan of a check, or raise an error with everything that the theory does not cover."""
    file = read_plan(config, "theory", ("taus", "associations", "updates"))
    given = given_settings(config, flatten(settings or {}))
    problems = [f"{key} does nothing here: {why}" for key, why in OWN.items() if key in given]
    problems += [f"{key} does nothing here: use --updates" for key in given if key.startswith("stop.")]
    if problems:
        raise ConfigError(problems)
    wanted = _taus(file.get("taus", TAUS) if taus is None else taus)
    count = file.get("updates", UPDATES) if updates is None else updates
    names = listed(
        "associations", file.get("associations", ASSOCIATIONS) if associations is None else associations
    )
    if not names:
        raise ConfigError(f"associations must name at least one, like {','.join(ASSOCIATIONS)}; got none")
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_UPDATES:
        raise ConfigError(f"updates must be a whole number in 1..{MOST_UPDATES:,}, got {count!r}")
    if len(wanted) * len(names) > MOST_TRIALS:
        raise ConfigError(f"these are {len(wanted) * len(names):,} runs; {MOST_TRIALS:,} are the most")
    configs = _configs({**DEFAULTS, **given}, names, wanted[0])
    plan = Plan(configs, wanted, count, None)
    _check_assumptions(plan.config)
    return replace(plan, lr=plan.config.client.lr) if "client.lr" in given else plan


def check_data(data: Dataset | None) -> Dataset:
    """Return the data, or raise if logistic regression cannot learn from them."""
    if data is None or data.numeric or data.y.ndim != 1 or data.x.dtype.kind == "i":
        raise ConfigError(
            "the theory is checked on samples of numbers with one class each, and these are not; "
            "use mnist5k, mnist, cifar10, femnist, or your own"
        )
    return data


def _configs(given: Mapping[str, Any], names: Sequence[str], tau: int) -> dict[str, Config]:
    """Return the configuration of every association, without the keys that belong to others of them alone."""
    settings = {name: {**given, "federation.association": name, "cloud.threshold": tau} for name in names}
    method = str(given["method"])
    known = method in METHODS  # if not, loading says so
    recipe = METHODS[method].settings if known else {}
    if recipe.get("cloud.schedule", "async") != "async" or recipe.get("federation.flat"):
        raise ConfigError(f"the theory is of asynchronous methods with edges, and {method} is none; use hifl")
    left_out = [inapplicable(method, own) if known else set[str]() for own in settings.values()]
    nowhere = set.intersection(*left_out)  # not dropped, so that loading says so
    return {
        name: Config.load(None, {key: value for key, value in own.items() if key not in left - nowhere})
        for (name, own), left in zip(settings.items(), left_out, strict=True)
    }


def _taus(taus: Any) -> tuple[int, ...]:
    good = isinstance(taus, Sequence) and not isinstance(taus, str) and len(taus) > 0
    if not good or not all(
        isinstance(tau, int) and not isinstance(tau, bool) and 0 <= tau <= MOST_TAU for tau in taus
    ):
        raise ConfigError(f"taus must be whole numbers >= 0, like [0, 1, 2, 4, 8], got {taus!r}")
    if len(set(taus)) < len(taus):
        raise ConfigError(f"taus has a number twice: {list(taus)}")
    return tuple(sorted(taus))


def _check_assumptions(config: Config) -> None:
    problems = []
    for key, assumed, why in ASSUMED:
        section, name = key.split(".")
        got = getattr(getattr(config, section), name)
        if got != assumed:
            told = "mobility.* is set" if key == "mobility.active" else f"{key} is {got}"
            problems.append(f"the theory assumes {why}, and {told}; leave it out")
    if not config.client.weight_decay > 0:
        problems.append("Theorem 1 needs strong convexity; set client.weight_decay above 0")
    if problems:
        raise ConfigError(problems)
