"""A simulation in which a surrogate stands in for training."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hiflash.config import Config
from hiflash.control.surrogate.model import Surrogate, SurrogateRun
from hiflash.data import Dataset
from hiflash.errors import ConfigError
from hiflash.sim.build import Materials, simulator
from hiflash.sim.machines import StartModel
from hiflash.sim.population import Population, populate
from hiflash.sim.simulator import Simulator
from hiflash.weights import Spec

__all__ = ["check_representable", "edge_labels", "surrogate_simulator"]

Floats = npt.NDArray[np.float64]


def surrogate_simulator(
    config: Config, data: Dataset | None, spec: Spec, surrogate: Surrogate, draw: int
) -> tuple[Simulator, SurrogateRun]:
    """Return the simulation of a configuration at its start, and its surrogate run.

    The configuration's seed decides the federation, `draw` the speed and noise of the surrogate.
    """
    check_representable(config)
    population = populate(config, data, None, spec.size)
    shares, overall = edge_labels(population)
    learning = SurrogateRun(surrogate, shares, overall, target=float(config.stop.target), seed=draw)
    start = StartModel(learning.initial, spec, trained=len(learning.initial))
    return simulator(config, population, start, Materials(stand_in=learning.train)), learning


def check_representable(config: Config) -> None:
    """Raise if a surrogate cannot replace training under this configuration, and say why."""
    cloud, method = config.cloud, config.method
    problems = []
    if cloud.schedule != "async" or config.federation.flat:
        problems.append(
            f"a surrogate is for asynchronous methods with edges, and {method} is not one; "
            "use hiflash or hifl"
        )
    elif cloud.mixing not in ("interpolate", "delta"):
        problems.append(
            "a surrogate follows the global model from update to update, and cloud.mixing = "
            f'"{cloud.mixing}" combines several updates; use "interpolate" or "delta"'
        )
    if not config.judged_by_accuracy:
        problems.append(
            "a surrogate models accuracy on classes, and here data.task is "
            f"{config.data.task} and stop.metric {config.stop.metric}; use real training"
        )
    if config.stop.target == "none":
        problems.append("a surrogate is for runs with a target; set stop.target")
    elif config.stop.target == 1:
        problems.append("a surrogate never reaches an accuracy of 1; set stop.target below 1")
    if config.data.name == "none" or config.trainer == "none":
        problems.append(
            "a surrogate replaces training, and this configuration trains nothing; "
            'use a data.name and a trainer other than "none"'
        )
    if config.mobility.active:
        problems.append("a surrogate needs edges whose labels stay the same; leave out mobility.*")
    if config.client.batch_norm == "local":
        problems.append(
            'a surrogate follows one model, and client.batch_norm = "local" makes many; leave it out'
        )
    if config.client.algorithm != "sgd":
        problems.append(
            "a surrogate models plain SGD, and knows no states or corrections; leave out client.algorithm = "
            f'"{config.client.algorithm}"'
        )
    if config.attack.kind != "none":
        problems.append("a surrogate cannot model malicious clients; leave out attack.*")
    if config.edge.aggregate != "mean":
        problems.append("a surrogate models only the mean of an edge's clients; leave out edge.aggregate")
    if cloud.norm_bound != "none":
        problems.append("a surrogate's updates have no norm; leave out cloud.norm_bound")
    if problems:
        raise ConfigError(problems)


def edge_labels(population: Population) -> tuple[Floats, Floats]:
    """Return the label distributions of every edge and of all clients; an empty edge gets the latter."""
    if population.labels is None:
        raise ConfigError('a surrogate looks at the labels of edges, and data.name = "none" has no labels')
    overall = population.labels.sum(axis=0) / population.labels.sum()
    held = [population.labels[cluster].sum(axis=0) for cluster in population.clusters]
    return np.array([counts / counts.sum() if counts.sum() else overall for counts in held]), overall
