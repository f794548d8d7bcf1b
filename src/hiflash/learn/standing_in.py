"""A simulation in which a surrogate stands in for training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from hiflash.assembly import simulator
from hiflash.config import Config
from hiflash.core.surrogate import Surrogate, SurrogateRun
from hiflash.data import Dataset
from hiflash.engine.simulator import Simulator
from hiflash.errors import ConfigError
from hiflash.population import Population, populate
from hiflash.weights import Spec

__all__ = ["edge_labels", "surrogate_simulator"]

Floats = npt.NDArray[np.float64]


def surrogate_simulator(
    config: Config, data: Dataset | None, spec: Spec, surrogate: Surrogate, draw: int
) -> tuple[Simulator, SurrogateRun]:
    """Return the simulation of a configuration at its start, and what learns in it.

    The federation is that of the configuration's seed; `draw` is the seed of what the surrogate leaves to
    chance.
    """
    if config.stop.target == "none":
        raise ConfigError("a surrogate is for runs with a target; set stop.target")
    if config.mobility.active:
        raise ConfigError("a surrogate knows the edges' labels from the start; leave out mobility.*")
    population = populate(config, data, None, spec.size)
    shares, overall = edge_labels(population)
    learning = SurrogateRun(surrogate, shares, overall, target=config.stop.target, seed=draw)
    size = len(learning.initial)
    made = simulator(
        config, population, learning.initial, spec, size, None, None, _unheard, learning.train
    )
    return made, learning


def edge_labels(population: Population) -> tuple[Floats, Floats]:
    """Return the label distribution of every edge, and of all clients; an edge without clients has the latter."""
    if population.labels is None:
        raise ConfigError('a surrogate looks at the labels of edges, and data.name = "none" has no labels')
    overall = population.labels.sum(axis=0) / population.labels.sum()
    held = [population.labels[cluster].sum(axis=0) for cluster in population.clusters]
    return np.array([counts / counts.sum() if counts.sum() else overall for counts in held]), overall


def _unheard(now: float, kind: str, row: Mapping[str, Any]) -> None:
    """Keep no log."""
