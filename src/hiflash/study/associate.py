"""Compares association strategies and sweeps lambda, for `hiflash associate`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from hiflash.config import Config
from hiflash.config.settings import given_settings
from hiflash.core.association.membership import homes
from hiflash.core.association.strategies import (
    Clusters,
    js_per_edge,
    latency_per_edge_ms,
    mean_of_peopled,
    waiting_per_edge_ms,
)
from hiflash.data.federation import FederationData
from hiflash.errors import ConfigError
from hiflash.sim.clusters import cluster_clients, send_s
from hiflash.sim.federation import survey
from hiflash.store.files import write_atomic
from hiflash.study.arguments import check_arguments
from hiflash.study.cells import listed, saved, split_own

if TYPE_CHECKING:
    from hiflash.config.typed import DataSettings, FederationSettings, ModelSettings, Settings

__all__ = ["AssociationStudy", "Row", "associate", "chosen_strategies", "parse_sweep"]

SWEPT = "heterogeneity"
MOST = 1000  # values in a sweep


@dataclass(frozen=True)
class Row:
    """The clusters of one strategy in numbers; `weight` is lambda, where the strategy has one."""

    strategy: str
    weight: float | None
    total_js: float
    mean_latency_ms: float
    waiting_ms: float
    cluster_sizes: list[int]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the row for JSON, with `weight` under the name `lambda`."""
        named = asdict(self)
        return {"strategy": named.pop("strategy"), "lambda": named.pop("weight"), **named}


@dataclass(frozen=True)
class AssociationStudy:
    """The rows of all strategies and values of lambda, and the index of the chosen row."""

    title: str
    rows: list[Row]
    chosen: int | None
    files: list[Path] = field(default_factory=list)
    clusters: list[Clusters] = field(default_factory=list, repr=False)
    """The clusters of every row."""

    def save(self, directory: Path) -> list[Path]:
        """Write the rows as JSON and the figure as PNG and PDF, and return the paths."""
        from hiflash.report.association import draw_association

        write_atomic(directory / "associate.json", json.dumps(self.to_json()) + "\n")
        return [directory / "associate.json", *draw_association(self, directory / "associate")]

    def write_association(self, path: Path) -> None:
        """Write the clusters of the only or the chosen row as an `association.csv` (docs/federation.md)."""
        clusters = self.clusters[self.chosen or 0]
        home = homes(clusters, sum(map(len, clusters))).tolist()
        lines = ["client,edge", *(f"{client},{edge}" for client, edge in enumerate(home))]
        write_atomic(path, "\n".join(lines) + "\n")

    def to_json(self) -> dict[str, Any] | list[dict[str, Any]]:
        """Return one object, or a list if there are several rows."""
        rows = [row.to_dict() for row in self.rows]
        if self.chosen is not None:
            rows = [{**row, "chosen": place == self.chosen} for place, row in enumerate(rows)]
        return rows if len(rows) > 1 or self.chosen is not None else rows[0]


def associate(
    config: Config | str | Path | None = None,
    *,
    strategies: Sequence[str] | None = None,
    sweep: Sequence[float] | str = (),
    directory: str | Path | None = None,
    progress: Callable[[str, int], None] | None = None,
    data: DataSettings | Mapping[str, Any] | None = None,
    model: ModelSettings | Mapping[str, Any] | None = None,
    federation: FederationData | FederationSettings | Mapping[str, Any] | None = None,
    **settings: Unpack[Settings],
) -> AssociationStudy:
    """Return the clusters of each strategy in numbers, and save them if there is a `directory`.

    `hiflash.associate(strategies=["random", "heterogeneity"], federation={"clients": 50}).rows`. Without
    `strategies` it is `federation.association` if given, or else heterogeneity. `sweep` has values of lambda:
    a list, or a text like "0,50,...,1000". `federation` may also be arrays of your own. `progress` gets the
    name of the current strategy and the number of clients placed so far.
    """
    check_arguments(
        config=config,
        strategies=strategies,
        lambdas=sweep,
        directory=directory,
        progress=progress,
        federation=federation,
    )
    given, _ = split_own({**settings}, None, None, federation, None)
    sections = {"data": data, "model": model}
    given |= {name: section for name, section in sections.items() if section is not None}
    chosen, names = chosen_strategies(config, strategies, sweep, given)
    study = _study(chosen, names, parse_sweep(sweep) if isinstance(sweep, str) else sweep, progress)
    return saved(study, directory)


def chosen_strategies(
    config: Config | str | Path | None,
    strategies: Sequence[str] | str | None,
    sweep: Sequence[float] | str,
    settings: Mapping[str, Any],
) -> tuple[Config, list[str]]:
    """Return the configuration of the first strategy, and all strategies."""
    if isinstance(config, Config):
        given = config.with_settings(settings).settings()
    else:
        given = given_settings(config, settings)
    usual = SWEPT if sweep else str(given.get("federation.association", SWEPT))
    names = listed("strategies", strategies or usual) or [usual]
    above = {**settings, "federation.association": names[0]}
    return (config.with_settings(above) if isinstance(config, Config) else Config.load(config, above)), names


def _study(
    config: Config,
    strategies: Sequence[str],
    sweep: Sequence[float],
    progress: Callable[[str, int], None] | None,
) -> AssociationStudy:
    if sweep and SWEPT not in strategies:
        raise ConfigError(f"a sweep varies lambda, and only {SWEPT} has one; add it to the strategies")
    jobs: list[tuple[str, Config]] = []
    for name in strategies:
        own = config.with_settings({"federation.association": name})
        if name == SWEPT and sweep:
            jobs += [
                (f"{name}, lambda {value:g}", own.with_settings({"federation.heterogeneity_weight": value}))
                for value in sweep
            ]
        else:
            jobs.append((name, own))
    data, population = survey(jobs[0][1])
    labels, resources = population.labels, population.resources
    rows, found = [], []
    for what, own in jobs:
        begun = time.perf_counter()
        placing = (lambda placed: None) if progress is None else partial(progress, what)
        clusters = cluster_clients(own, resources, labels, placing)
        seconds = time.perf_counter() - begun
        found.append(clusters)
        latency_s = resources.compute_s + send_s(own, resources, clusters)
        name = own.federation.association
        rows.append(
            Row(
                name,
                own.federation.heterogeneity_weight if name == SWEPT else None,
                0.0 if labels is None else sum(js_per_edge(labels, clusters)),
                mean_of_peopled(latency_per_edge_ms(latency_s, clusters), clusters),
                mean_of_peopled(waiting_per_edge_ms(latency_s, clusters), clusters),
                [len(cluster) for cluster in clusters],
                seconds,
            )
        )
    swept = [place for place, row in enumerate(rows) if row.strategy == SWEPT]
    title = f"{data.name if data else 'no data'}, {population.split.name}"
    return AssociationStudy(title, rows, _choose(rows, swept) if sweep else None, clusters=found)


def _choose(rows: Sequence[Row], places: Sequence[int]) -> int:
    """Return the place with the smallest sum of total JS and mean latency, each scaled to 0..1."""
    sums = np.zeros(len(places))
    for values in (
        np.array([rows[place].total_js for place in places]),
        np.array([rows[place].mean_latency_ms for place in places]),
    ):
        sums += (values - values.min()) / (np.ptp(values) or 1.0)
    return places[int(sums.argmin())]  # the first of equal sums


def parse_sweep(text: str) -> list[float]:
    """Return the numbers of a list with commas; `...` continues in equal steps.

    >>> parse_sweep("0,50,...,200,1000")
    [0.0, 50.0, 100.0, 150.0, 200.0, 1000.0]
    """
    values: list[float] = []
    words = [word.strip() for word in text.split(",")]
    for place, word in enumerate(words):
        if word == "...":
            values += _between(values, words[place + 1 :], text)
            continue
        try:
            value = float(word)
        except ValueError:
            raise ConfigError(f"--sweep must be numbers like 0,50,...,1000, got {text}") from None
        if not 0 <= value <= 1e9:
            raise ConfigError(f"--sweep must have numbers >= 0 and <= 1e9, got {word}")
        values.append(value)
    if len(values) > MOST:
        raise ConfigError(f"--sweep has {len(values)} values; {MOST} are the most")
    if len(set(values)) < len(values):
        raise ConfigError(f"--sweep has a value twice: {text}")
    return values


def _between(before: Sequence[float], after: Sequence[str], text: str) -> list[float]:
    """Return the numbers that `...` stands for, between the two before it and the one after it."""
    try:
        first, second, last = *before[-2:], float(after[0])
    except (ValueError, IndexError):
        raise ConfigError(
            f"--sweep needs two numbers before ... and one after it, like 0,50,...,1000, got {text}"
        ) from None
    steps = (last - second) / (second - first) if second != first else 0.0
    if not (1 <= steps <= MOST and abs(steps - round(steps)) < 1e-9):
        raise ConfigError(f"--sweep: steps of {second - first:g} from {second:g} do not lead to {last:g}")
    return [second + (second - first) * step for step in range(1, round(steps))]
