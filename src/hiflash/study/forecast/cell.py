"""One forecast: a simulation in which numbers stand for models."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hiflash.config import Config
from hiflash.core.metrics import Metric
from hiflash.core.mixing import Interpolate
from hiflash.messages import Weights
from hiflash.methods.registry import make
from hiflash.sim.build import Materials, simulator
from hiflash.sim.federation import Federation
from hiflash.sim.machines import StartModel
from hiflash.sim.resources import local_steps
from hiflash.sim.simulator import Simulator
from hiflash.sim.targets import FIGURES, interpolated
from hiflash.study.forecast.closed_form import expected_communications
from hiflash.study.forecast.numbers import ClassNumbers
from hiflash.study.forecast.outline import Outline

__all__ = ["forecast_cell"]

PROGRESS = Metric("progress", "higher")
MOST = 1000
"""Communications per round of FedAvg, at least: a method that needs more is given up."""


def forecast_cell(outline: Outline, rounds: float, *, by_class: bool = True) -> dict[str, Any]:
    """Return what a federation needs until its numbers are those of FedAvg after `rounds` rounds."""
    config, federation = outline.config, outline.federation
    numbers = ClassNumbers(federation.population.labels if by_class else None, rounds)
    done: list[int] = []

    def train(edge: int, received: Weights, edge_rounds: int) -> Weights:
        done.append(edge_rounds)
        return numbers.trained(received, engine.edges[edge].everyone, edge_rounds)

    recall = None if numbers.labels is None else numbers.recall
    start = StartModel(numbers.initial, federation.start.spec, federation.start.trained)
    engine = simulator(config, federation.population, start, Materials(stand_in=train, recall=recall))
    reached, costs = _to_the_target(engine, numbers, config)
    figures = engine.figures()
    told = {
        "reached": reached,
        **costs,
        "staleness": figures["staleness"]["mean"],
        "accepted": sum(figures["applied_per_edge"]) / max(engine.ledger.communications, 1),
        "edge_rounds": math.fsum(done) / max(len(done), 1),
        "progress": numbers.progress(engine.weights),
    }
    return {
        **told,
        "closed_form": _closed_form(config, rounds, engine, told),
        "over_budget": _over_budget(config, costs),
        "mean_js": _mean_js(federation, config),
        "local_steps": _local_steps(federation, config),
        "notes": list(outline.notes),
    }


def _to_the_target(engine: Simulator, numbers: ClassNumbers, config: Config) -> tuple[bool, dict[str, float]]:
    """Run until the target, whatever the budgets, and return whether it was reached, and the costs.

    Like measured ones, costs are those where a line crosses the target, here between two updates of the
    cloud: how often a run would be evaluated does not matter.
    """
    at_once = 2 * config.cloud.participants if config.cloud.schedule == "sync" else 0
    most = max(MOST, at_once) * math.ceil(numbers.rounds)
    engine.start()
    before, version = _state(engine, numbers), engine.version
    while engine.ledger.communications < most:
        engine.step()
        if engine.version == version:
            continue
        now, version = _state(engine, numbers), engine.version
        if (costs := interpolated([before, now], PROGRESS, ["1"])["1"]) is not None:
            return True, costs
        before = now
    return False, {name: float(engine.totals()[name]) for name in FIGURES}


def _state(engine: Simulator, numbers: ClassNumbers) -> dict[str, Any]:
    return {**engine.totals(), PROGRESS.name: numbers.progress(engine.weights)}


def _closed_form(config: Config, rounds: float, engine: Simulator, told: dict[str, Any]) -> float | None:
    """Return the communications by the closed form, None where the cloud does not interpolate."""
    histogram = engine.ledger.staleness
    if config.cloud.schedule != "async" or not histogram:
        return None
    rule = make("mixing", config, 1)
    if type(rule) is not Interpolate:
        return None
    count = sum(histogram.values())
    weight = math.fsum(rule.alpha * rule.weighting(tau) * times for tau, times in histogram.items()) / count
    return expected_communications(
        rounds,
        weight=weight,
        staleness=told["staleness"],
        edge_rounds=told["edge_rounds"],
        accepted=min(told["accepted"], 1.0),
    )


def _over_budget(config: Config, costs: dict[str, Any]) -> list[str]:
    """Return the budgets of the configuration that a real run would exceed before its target."""
    limits = {name: getattr(config.stop, name) for name in ("communications", "client_steps", "virtual_s")}
    return [name for name, limit in limits.items() if limit != "none" and costs[name] > limit]


def _mean_js(federation: Federation, config: Config) -> float | None:
    """Return the mean divergence of the edges' labels from all labels; None without edges or labels."""
    population = federation.population
    found = [] if config.federation.flat else population.js_per_edge(population.edge_clusters)
    return math.fsum(found) / len(found) if found else None


def _local_steps(federation: Federation, config: Config) -> float:
    """Return the local steps of a client task, the mean over all clients."""
    sizes, clients = np.unique(federation.population.examples, return_counts=True)
    steps = [local_steps(config, size) for size in sizes.tolist()]
    return float(np.average(steps, weights=clients))
