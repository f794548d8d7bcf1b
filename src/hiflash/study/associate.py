"""Compares association strategies and sweeps lambda, for `hiflash associate`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hiflash.config import Config
from hiflash.core.association.membership import homes
from hiflash.core.association.strategies import (
    Clusters,
    js_per_edge,
    latency_per_edge_ms,
    mean_of_peopled,
    waiting_per_edge_ms,
)
from hiflash.errors import ConfigError
from hiflash.sim.clusters import cluster_clients, send_s
from hiflash.sim.federation import survey
from hiflash.store.files import write_atomic

__all__ = ["Row", "Study", "associate", "parse_sweep"]

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
class Study:
    """The rows of all strategies and values of lambda, and the index of the chosen row."""

    title: str
    rows: list[Row]
    chosen: int | None
    clusters: list[Clusters] = field(default_factory=list, repr=False)
    """The clusters of every row."""

    def save(self, folder: Path) -> None:
        """Write the rows as JSON and the figure as PNG and PDF."""
        from hiflash.report.association import draw_association

        write_atomic(folder / "associate.json", json.dumps(self.to_json()) + "\n")
        draw_association(self, folder / "associate")

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
    config: Config,
    *,
    strategies: Sequence[str],
    sweep: Sequence[float] = (),
    progress: Callable[[str, int], None] = lambda what, placed: None,
) -> Study:
    """Return the clusters of each strategy in numbers; `sweep` lists values of lambda.

    `progress` gets the name of the current strategy and the number of clients placed so far.
    """
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
        clusters = cluster_clients(own, resources, labels, lambda placed, what=what: progress(what, placed))  # type: ignore[misc]
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
    return Study(title, rows, _choose(rows, swept) if sweep else None, found)


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
