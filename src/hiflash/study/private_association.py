"""What privacy of label histograms costs an association: total JS and latency against epsilon.

Associations are made from what clients let out. Divergences are those of the true labels, which a simulation
knows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from hiflash.config import Config
from hiflash.core.association.membership import homes
from hiflash.core.association.parts import BY_LABELS
from hiflash.core.association.strategies import (
    Clusters,
    js_per_edge,
    latency_per_edge_ms,
    mean_of_peopled,
    waiting_per_edge_ms,
)
from hiflash.data.federation import FederationData
from hiflash.errors import ConfigError
from hiflash.privacy.histograms import histogram_charge
from hiflash.privacy.sums.packages import has_packages
from hiflash.sim.clusters import cluster_clients, send_s
from hiflash.sim.federation import survey
from hiflash.sim.population import Population
from hiflash.store.files import write_atomic
from hiflash.study.arguments import check_arguments
from hiflash.study.associate import chosen_strategies
from hiflash.study.cells import saved, split_own

if TYPE_CHECKING:
    from hiflash.config.typed import DataSettings, FederationSettings, ModelSettings, Settings

__all__ = ["DRAWS", "EPSILONS", "PrivacyRow", "PrivacyStudy", "parse_epsilons", "price_of_privacy"]

EPSILONS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
DRAWS = 10
MOST_DRAWS = 10_000


@dataclass(frozen=True)
class PrivacyRow:
    """One association in numbers: means over draws of the noise, and their standard deviations.

    `histograms` says what the association saw: `exact` or noised histograms of clients (`single`), sums of a
    `group`, or `none` for a strategy that looks at no labels. Without noise, `epsilon` is None.
    """

    strategy: str
    histograms: str
    group: int | None
    noise: str | None
    epsilon: float | None
    delta: float | None
    unit: str | None
    draws: int
    total_js: float
    total_js_sd: float
    mean_latency_ms: float
    mean_latency_ms_sd: float
    waiting_ms: float
    chosen: bool


@dataclass(frozen=True)
class PrivacyStudy:
    """The rows of all values of epsilon, for single histograms and for groups."""

    title: str
    rows: list[PrivacyRow]
    files: list[Path] = field(default_factory=list)
    clusters: Clusters = field(default_factory=list, repr=False)
    """The clusters that a run with the given configuration has."""

    def save(self, directory: Path) -> list[Path]:
        """Write the rows as JSON and the figure as PNG and PDF, and return the paths."""
        from hiflash.report.private_association import draw_privacy

        write_atomic(directory / "privacy.json", json.dumps(self.to_json()) + "\n")
        return [directory / "privacy.json", *draw_privacy(self, directory / "privacy")]

    def write_association(self, path: Path) -> None:
        """Write the clusters of the given configuration as an `association.csv` (docs/federation.md)."""
        home = homes(self.clusters, sum(map(len, self.clusters))).tolist()
        lines = ["client,edge", *(f"{client},{edge}" for client, edge in enumerate(home))]
        write_atomic(path, "\n".join(lines) + "\n")

    def to_json(self) -> list[dict[str, Any]]:
        """Return the rows for JSON."""
        return [asdict(row) for row in self.rows]


def price_of_privacy(
    config: Config | str | Path | None = None,
    *,
    epsilons: Sequence[float] | str = (),
    draws: int = DRAWS,
    directory: str | Path | None = None,
    progress: Callable[[str, int], None] | None = None,
    data: DataSettings | Mapping[str, Any] | None = None,
    model: ModelSettings | Mapping[str, Any] | None = None,
    federation: FederationData | FederationSettings | Mapping[str, Any] | None = None,
    **settings: Unpack[Settings],
) -> PrivacyStudy:
    """Return an association's total JS and latency against epsilon, and save them if there is a `directory`.

    `hiflash.price_of_privacy(privacy={"epsilon": 1.0}).rows`. The association is `federation.association`, or
    heterogeneity if that is not given. `epsilons` are a list or a text like "0.1,1,inf"; `EPSILONS` without.
    Every value is the mean of `draws` draws of the noise. The random association stands beside them.
    """
    check_arguments(config=config, directory=directory, progress=progress, federation=federation)
    given, _ = split_own({**settings}, None, None, federation, None)
    given |= {name: each for name, each in (("data", data), ("model", model)) if each is not None}
    chosen, _ = chosen_strategies(config, None, (), given)
    if chosen.federation.association not in BY_LABELS:
        raise ConfigError(
            f"the price of privacy is that of histograms, and federation.association = "
            f'"{chosen.federation.association}" looks at none; use {", ".join(BY_LABELS)}'
        )
    if type(draws) is not int or not 1 <= draws <= MOST_DRAWS:
        raise ConfigError(f"draws must be a whole number from 1 to {MOST_DRAWS:,}, got {draws}")
    return saved(_study(chosen, _wanted(epsilons, chosen.privacy.epsilon), draws, progress), directory)


def parse_epsilons(text: str) -> list[float]:
    """Return the values of epsilon between commas; `inf` is no noise.

    >>> parse_epsilons("0.1, 1, inf")
    [0.1, 1.0, inf]
    """
    values = []
    for word in text.split(","):
        try:
            value = float(word)
        except ValueError:
            value = -1.0
        if not (0 < value <= 1e6 or value == math.inf):
            raise ConfigError(f"epsilons must be numbers > 0 and <= 1e6, or inf, like 0.1,1,10, got {text}")
        values.append(value)
    return values


def _wanted(epsilons: Sequence[float] | str, own: float | str) -> list[float]:
    """Return the values of epsilon to compare, with that of the configuration."""
    text = epsilons if isinstance(epsilons, str) else ",".join(map(str, epsilons))
    wanted = parse_epsilons(text) if text else list(EPSILONS)
    return sorted({*wanted, *([] if isinstance(own, str) else [own])})


def _study(
    config: Config, epsilons: Sequence[float], draws: int, progress: Callable[[str, int], None] | None
) -> PrivacyStudy:
    data, population = survey(config)
    if population.labels is None:
        raise ConfigError("there are no labels here, so there is no price; set data.name")
    rows = [
        _row(each, population, draws, progress, chosen=each == config)
        for each in _configurations(config, epsilons)
    ]
    clusters = cluster_clients(config, population.resources, population.labels)
    title = f"{data.name if data else 'no data'}, {population.split.name}"
    return PrivacyStudy(title, rows, clusters=clusters)


def _configurations(config: Config, epsilons: Sequence[float]) -> Iterator[Config]:
    """Yield the configurations to compare: exact, noised and grouped ones, and the random association."""
    names = ("noise", "delta", "unit")
    rules = {name: getattr(config.privacy, name) for name in names}
    if rules["noise"] != "gaussian":
        del rules["delta"]
    kinds = ["single"]
    fits = config.privacy.group * config.federation.edges <= config.federation.clients
    if fits and (has_packages() or config.privacy.histograms == "group"):  # if asked for, they are an error
        kinds.append("group")
    for kind in kinds:
        shared: dict[str, Any] = {"privacy.histograms": kind}
        if kind == "group":
            shared["privacy.group"] = config.privacy.group
        plain = config.with_choices({"privacy.epsilon": "off", "privacy.histograms": kind})
        for epsilon in sorted({*epsilons, math.inf}):
            if epsilon == math.inf:
                yield plain.with_settings(shared)
            else:
                noised = {f"privacy.{name}": value for name, value in rules.items()}
                yield plain.with_settings({**shared, **noised, "privacy.epsilon": epsilon})
    yield config.with_choices({"federation.association": "random"})


def _row(
    config: Config,
    population: Population,
    draws: int,
    progress: Callable[[str, int], None] | None,
    *,
    chosen: bool,
) -> PrivacyRow:
    federation, privacy, labels = config.federation, config.privacy, population.labels
    sees = federation.association in BY_LABELS
    charge = histogram_charge(privacy, deployed=False) if sees else None
    grouped = sees and privacy.histograms == "group"
    found = []
    for draw in range(draws if charge is not None else 1):
        clusters = cluster_clients(config, population.resources, labels, draw=draw)
        latency_s = population.resources.compute_s + send_s(config, population.resources, clusters)
        js = sum(js_per_edge(labels, clusters)) if labels is not None else 0.0
        latency_ms = mean_of_peopled(latency_per_edge_ms(latency_s, clusters), clusters)
        waiting_ms = mean_of_peopled(waiting_per_edge_ms(latency_s, clusters), clusters)
        found.append((js, latency_ms, waiting_ms))
    if progress is not None:
        progress(f"epsilon {'off' if charge is None else format(charge[1], 'g')}", federation.clients)
    mean, spread = np.mean(found, axis=0).tolist(), np.std(found, axis=0).tolist()
    noise, epsilon, delta = charge or (None, None, None)
    return PrivacyRow(
        federation.association,
        ("group" if grouped else "single" if charge else "exact") if sees else "none",
        privacy.group if grouped else None,
        noise,
        epsilon,
        delta,
        None if charge is None else privacy.unit,
        len(found),
        mean[0],
        spread[0],
        mean[1],
        spread[1],
        mean[2],
        chosen,
    )
