"""From a federation that has run, simulated or deployed, to its `Result`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hiflash.agents import acting_agent
from hiflash.core.metrics import ACCURACY
from hiflash.sim.client_scores import client_scores
from hiflash.sim.federation import Federation
from hiflash.sim.record import Goals, Record, Tally
from hiflash.sim.result import Result
from hiflash.sim.validation_scores import validation_scores
from hiflash.weights import digest

__all__ = ["edges_of", "goals_of", "result_of"]


def goals_of(federation: Federation) -> Goals:
    """Return how often a run is evaluated, and what ends it."""
    config = federation.config
    # A centralized run takes all its steps, to show the level.
    aims = federation.pool is not None and config.cloud.schedule != "centralized"
    target = None if config.stop.target == "none" or not aims else config.stop.target
    return Goals(
        config.evaluate.every,
        target,
        federation.chance(),
        federation.metric,
        federation.task.measured,
        federation.validated,
    )


def edges_of(federation: Federation, tally: Tally) -> dict[str, Any]:
    """Return what there is to know of every edge at any time."""
    clusters = tally.clusters  # a copy each time
    return {
        "cluster_sizes": [len(cluster) for cluster in clusters],
        # Clients are no edges: a sum over them cannot be compared with one over edges (decision 33).
        "js_per_edge": []
        if federation.config.federation.flat
        else federation.population.js_per_edge(clusters),
        **tally.edges_ms(),
    }


def result_of(
    federation: Federation,
    tally: Tally,
    record: Record,
    *,
    name: str,
    reason: str,
    wall_s: float,
    path: Path | None,
    made_by: list[dict[str, Any]],
) -> Result:
    """Return the result of a run that has ended for `reason`."""
    config, figures = federation.config, tally.figures()
    last, metric = record.evaluations[-1] if record.evaluations else {}, record.goals.metric
    scores = {each.name: last.get(each.name) for each in record.goals.metrics}
    edges, agent = edges_of(federation, tally), acting_agent(config)
    return Result(
        name=name,
        method=config.method,
        data=config.data.name if federation.data is None else federation.data.name,
        partition=federation.population.split.name,
        model=federation.model_name,
        seed=config.seed,
        config_digest=config.digest(),
        digest=digest(tally.weights),
        trainer=federation.trainer,
        stop_reason=reason,
        stop_set=None if federation.pool is None else "validation" if federation.validated else "test",
        stop_target=None if federation.pool is None or config.stop.target == "none" else config.stop.target,
        parameters=federation.parameters,
        version=tally.version,
        total_js=sum(edges["js_per_edge"]) if edges["js_per_edge"] else None,
        **edges,
        sample_overlap=federation.population.split.overlap,
        accuracy=scores.get("accuracy"),
        best_accuracy=ACCURACY.best(row.get("accuracy") for row in record.evaluations),
        loss=scores["loss"],
        task=federation.task.name,
        metric=metric.name,
        metric_better=metric.better,
        metric_unit=metric.unit,
        scores=scores,
        best=metric.best(row[metric.name] for row in record.evaluations),
        chance=record.goals.chance,
        validation=validation_scores(federation, record),
        clients=client_scores(federation, tally.weights, tally.clusters, tally.kept),
        evaluations=record.evaluations,
        targets=record.targets,
        targets_stable=record.targets_stable,
        targets_interpolated=record.targets_interpolated,
        wall_s=wall_s,
        made_by=made_by,
        warnings=record.signs(figures["rejections"]),
        privacy=tally.spent(),
        agent=None if agent is None else agent.digest,
        path=path,
        weights=tally.weights,
        **tally.totals(),
        **figures,
    )
