"""Federated evaluation: the final model on the held-out samples of every client."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any

import numpy as np

from hiflash.core.metrics import Metric
from hiflash.messages import Weights
from hiflash.sim.federation import Federation
from hiflash.weights import graft

__all__ = ["client_scores", "summary"]

WORST = 10  # the worst tenth of the clients

Sums = dict[int, tuple[float, ...]]


def client_scores(
    federation: Federation, weights: Weights, clusters: Sequence[Sequence[int]], kept: Mapping[int, Weights]
) -> dict[str, Any]:
    """Return the metric of a model on every client's own held-out samples; empty if none are held out.

    `kept` has the BatchNorm values that clients do not share. If there are any, `own_batch_norm` has the same
    numbers with each client's own values in the model.
    """
    sizes = [len(part) for part in federation.population.held_out]
    clients = [client for client, size in enumerate(sizes) if size]
    if federation.pool is None or not clients:
        return {}
    sums: Sums = dict(zip(clients, federation.client_sums(weights, clients), strict=True))
    told = {"metric": federation.metric.name, "share": federation.config.evaluate.clients, "samples": sizes}
    told |= summary(federation, sums, clusters)
    if federation.local:
        own = dict(sums)
        for client in clients:
            if client in kept:
                model = graft(weights, federation.local, kept[client])
                (own[client],) = federation.client_sums(model, [client])
        told["own_batch_norm"] = summary(federation, own, clusters)
    return told


def summary(federation: Federation, sums: Sums, clusters: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Return every client's metric, mean, spread, worst tenth, and the metric over each edge's clients."""
    sizes, metric = [len(part) for part in federation.population.held_out], federation.metric
    place = federation.task.measured.index(metric)

    def score(clients: Sequence[int]) -> float | None:
        held = [client for client in clients if client in sums]
        if not held:
            return None
        count = sum(sizes[client] for client in held)
        means = np.sum([sums[client] for client in held], axis=0) / count
        value = federation.task.results(means.tolist())[place]
        return value if math.isfinite(value) else None

    each = [score([client]) for client in range(len(sizes))]
    known = [value for value in each if value is not None]
    return {
        "mean": fmean(known) if known else None,
        "std": pstdev(known) if known else None,
        "worst_tenth": _worst_tenth(known, metric),
        "per_client": each,
        # A client of a flat method has no edge.
        "per_edge": [] if federation.config.federation.flat else [score(cluster) for cluster in clusters],
    }


def _worst_tenth(values: Sequence[float], metric: Metric) -> float | None:
    """Return the mean of the worst tenth of the values, at least one."""
    worst = sorted(values, reverse=metric.better == "lower")[: math.ceil(len(values) / WORST)]
    return fmean(worst) if worst else None
