"""Cells, the runs of a study."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from hiflash.config import Config
from hiflash.config.settings import flatten
from hiflash.core.metrics import Metric, find_metric
from hiflash.data.federation import remember
from hiflash.errors import ConfigError
from hiflash.methods.kinds import THRESHOLDS
from hiflash.methods.tasks import TASKS

__all__ = [
    "MOST_CELLS",
    "Cell",
    "check_count",
    "listed",
    "make_cells",
    "policy_settings",
    "saved",
    "seed_numbers",
    "split_own",
    "target_metric",
]

MOST_CELLS = 100_000

Wanted = TypeVar("Wanted")


@dataclass(frozen=True)
class Cell:
    """One run of a study: the name of its folder, its configuration, and tags for its place in the study."""

    name: str
    config: Config
    tags: Mapping[str, Any] = field(default_factory=dict)


def make_cells(wanted: Iterable[Wanted], make: Callable[[Wanted], Cell]) -> list[Cell]:
    """Return a cell for everything wanted, or raise one error with the problems of all."""
    cells, problems = [], {}
    for each in wanted:
        try:
            cells.append(make(each))
        except ConfigError as error:
            problems.update(dict.fromkeys(error.problems))
    if problems:
        raise ConfigError(list(problems))
    return cells


def listed(kind: str, names: Sequence[Any] | str) -> list[Any]:
    """Return the names of a list, or of a text with commas; a repeated name is an error."""
    if isinstance(names, str):
        names = [name.strip() for name in names.split(",") if name.strip()]
    if not isinstance(names, Sequence):
        raise ConfigError(f"{kind} must be a list, got {names!r}")
    for place, name in enumerate(names):
        if name in names[:place]:
            raise ConfigError(f"{kind} has {name} twice; list it once")
    return list(names)


def target_metric(config: Config) -> Metric:
    """Return the metric of the target and of the tables, before any data are read."""
    task = "classification" if config.data.task == "auto" else config.data.task
    return find_metric(config.stop.metric, TASKS[task].build(config).measured, task)


def seed_numbers(seeds: int | Sequence[int]) -> list[int]:
    """Return the listed seeds; a number n stands for the seeds 0 to n - 1."""
    wanted = f"seeds must be a whole number from 1 to {MOST_CELLS:,} or a list of seeds, got {seeds}"
    if isinstance(seeds, int) and not 1 <= seeds <= MOST_CELLS:
        raise ConfigError(wanted)
    numbers = list(range(seeds)) if isinstance(seeds, int) else listed("seeds", seeds)
    if not numbers or not all(isinstance(number, int) and number >= 0 for number in numbers):
        raise ConfigError(wanted)
    return numbers


def check_count(cells: int) -> None:
    """Refuse a study with too many cells: building them alone would take minutes."""
    if cells > MOST_CELLS:
        raise ConfigError(
            f"these are {cells:,} cells, and at most {MOST_CELLS:,} are allowed; use fewer seeds or values"
        )


class Savable(Protocol):
    """The outcome of a study: it can write tables and figures, and lists what it wrote."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def save(self, directory: Path) -> list[Path]:
        """Write everything into a folder and return the paths."""
        ...


Outcome = TypeVar("Outcome", bound=Savable)


def saved(outcome: Outcome, directory: str | Path | None) -> Outcome:
    """Return an outcome with its tables and figures saved in a folder, if there is one."""
    return outcome if directory is None else replace(outcome, files=outcome.save(Path(directory)))


def policy_settings(policy: str) -> dict[str, Any]:
    """Return the settings for a policy; the error below lists the names of policies."""
    names = [name for name in THRESHOLDS if name != "skip_slowest"]  # that one is skip-K
    kind, _, number = str(policy).partition("-")
    if policy in names:
        return {"cloud.threshold": policy}
    if kind in ("fixed", "skip") and re.fullmatch(r"[0-9]{1,6}", number):
        if kind == "fixed":
            return {"cloud.threshold": int(number)}
        return {"cloud.threshold": "skip_slowest", "cloud.skipped": int(number)}
    raise ConfigError(f"policies may be {', '.join(names)}, fixed-K and skip-K, got {str(policy)[:60]!r}")


def split_own(
    settings: dict[str, Any], data: Any, model: Any, federation: Any, indices: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings and the user's own objects: all but `indices` may be sections of settings too."""
    if isinstance(data, Mapping):
        settings, data = {**settings, "data": data}, None
    if isinstance(model, Mapping):
        settings, model = {**settings, "model": model}, None
    if isinstance(federation, Mapping):
        settings, federation = {**settings, "federation": federation}, None
    if federation is not None:
        settings = {**settings, "federation.files": remember(federation)}
    for name, value in (("data.name", data), ("model.name", model)):
        if value is not None:
            settings = {**settings, name: "own"}
    task = getattr(data, "task", "classification")
    if task != "classification" and "data.task" not in flatten(settings):
        settings = {**settings, "data.task": task}
    return settings, {"data": data, "model": model, "federation": federation, "indices": indices}
