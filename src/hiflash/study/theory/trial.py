"""Runs of the real simulator, cloud and mixing rule; edges take full-gradient steps and are measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hiflash.config import Config
from hiflash.errors import ConfigError
from hiflash.messages import Weights
from hiflash.sim.build import Materials, simulator
from hiflash.sim.machines import StartModel
from hiflash.sim.population import Population
from hiflash.study.theory.bounds import Schedule
from hiflash.study.theory.constants import Visited
from hiflash.study.theory.logistic import Floats, LogisticTask
from hiflash.study.theory.virtual import EdgeRound, train_edge
from hiflash.weights import Spec

__all__ = ["Trial", "run_trial"]

MOST_EVENTS = 10_000  # between two updates; more means that nothing will ever be applied


@dataclass(frozen=True, eq=False)
class Trial:
    """One run of a federation with staleness up to `tau`: its edge rounds, and F of every cloud model.

    `staleness` has one value per applied update, `losses` one more: the first is that of the initial model.
    """

    association: str
    tau: int
    rounds: list[EdgeRound]
    staleness: list[int]
    losses: Floats


def run_trial(
    config: Config,
    population: Population,
    task: LogisticTask,
    schedule: Schedule,
    updates: int,
    visited: Visited,
    progress: Callable[[int], None],
) -> Trial:
    """Run until the cloud has applied this many updates. `visited` gathers the constants on the way."""
    rounds: list[EdgeRound] = []
    staleness: list[int] = []

    def train(edge: int, received: Weights, count: int) -> Weights:
        model = received.astype(np.float64)
        lease = train_edge(task, edge, population.clusters[edge], model, count, schedule.c, schedule.eta)
        rounds.extend(lease.rounds)
        visited.add(lease)
        return lease.model.astype(np.float32)

    def log(now: float, kind: str, row: Mapping[str, Any]) -> None:
        if kind == "upload" and row["status"] == "applied":
            staleness.append(row["staleness"])

    features = task.size // task.classes
    spec = Spec((("weight", (task.classes, features)),))
    start = StartModel(np.zeros(task.size, np.float32), spec, task.size)
    engine = simulator(config, population, start, Materials(stand_in=train, log=log))
    engine.start()
    models = [engine.weights]
    waiting = 0
    while engine.version < updates:
        engine.step()
        waiting += 1
        if engine.version == len(models):
            models.append(engine.weights)
            progress(engine.version)
            waiting = 0
        if waiting > MOST_EVENTS:
            raise ConfigError(
                f"the cloud has applied {engine.version} updates and no more in {MOST_EVENTS:,} events; "
                "use a larger tau, or other resources"
            )
    losses = task.losses(_wide(models))
    tau = int(config.cloud.threshold)
    return Trial(config.federation.association, tau, rounds, staleness, losses)


def _wide(models: Sequence[Weights]) -> Floats:
    return np.array(models, np.float64)
