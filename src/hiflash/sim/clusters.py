"""The association strategies by name: which client belongs to which edge."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from hiflash.config import Config
from hiflash.core.association.fast import associate
from hiflash.core.association.greedy import Problem
from hiflash.core.association.strategies import (
    Clusters,
    edge_iid,
    edge_noniid,
    label_distribution,
    latency_tiers,
    random_association,
)
from hiflash.data.federation import read_federation
from hiflash.errors import ConfigError
from hiflash.seeding import rng
from hiflash.sim.resources import Resources

__all__ = ["cluster_clients", "send_s"]


def cluster_clients(
    config: Config,
    resources: Resources,
    labels: npt.NDArray[np.int64] | None,
    progress: Callable[[int], None] = lambda placed: None,
) -> Clusters:
    """Return the clusters that `federation.association` asks for; `labels` are counts by client and class."""
    federation = config.federation
    clusters = _clusters(config, resources, labels, progress)
    _check_reach(config, resources, clusters)
    largest = max(len(cluster) for cluster in clusters)
    if federation.capacity != "none" and largest > federation.capacity:
        raise ConfigError(
            f"the association {federation.association} puts {largest} clients on one edge, and "
            f"federation.capacity is {federation.capacity}; raise it, or use the association heterogeneity"
        )
    for edge, cluster in enumerate(clusters):
        if not cluster:
            raise ConfigError(
                f"the association {federation.association} leaves edge {edge} without a client; "
                "use fewer federation.edges, or a larger federation.reach"
            )
    return clusters


def _check_reach(config: Config, resources: Resources, clusters: Clusters) -> None:
    """Raise if a client is on an edge that does not reach it; a latency tier is no place to reach."""
    reachable = resources.reachable
    if reachable is None or config.federation.association == "latency":
        return
    for edge, cluster in enumerate(clusters):
        out = [client for client in cluster if not reachable[edge, client]]
        if out:
            raise ConfigError(
                f"the association {config.federation.association} puts client {out[0]} on edge {edge}, which "
                "does not reach it; use heterogeneity, data, random or given"
            )


def send_s(config: Config, resources: Resources, clusters: Clusters) -> npt.NDArray[np.float64]:
    """Return the seconds every client takes to send a model to its own edge.

    A latency tier is not a location. Its clients use the access hop of their best edge, as in flat methods.
    """
    if config.federation.flat or config.federation.association == "latency":
        return resources.best_send_s
    return resources.own_send_s(clusters)


def _clusters(
    config: Config,
    resources: Resources,
    labels: npt.NDArray[np.int64] | None,
    progress: Callable[[int], None],
) -> Clusters:
    federation, stream = config.federation, rng(config.seed, "association")
    if federation.association == "random":
        return random_association(federation.clients, federation.edges, stream, resources.reachable)
    if federation.association == "given":
        return _given(config)
    if federation.association == "latency":
        return latency_tiers(resources.compute_s + resources.best_send_s, federation.edges)
    if labels is None:
        raise ConfigError(
            f"the association {federation.association} needs the labels of the clients' data, and there are "
            "none; set data.name, give labels in federation.files, or use the association random"
        )
    if federation.association == "edge-iid":
        return edge_iid(labels, federation.edges, stream)
    if federation.association == "edge-noniid":
        return edge_noniid(labels, federation.edges, federation.classes_per_edge, stream)
    return associate(_problem(config, resources, labels), stream, progress)


def _given(config: Config) -> Clusters:
    """Return the clusters of the association file."""
    home = read_federation(config.federation.files).association
    if home is None:
        raise ConfigError('federation.association = "given" needs an association; use another one')
    order = np.argsort(home, kind="stable")
    bounds = np.searchsorted(home[order], np.arange(config.federation.edges + 1))
    return [order[start:end].tolist() for start, end in pairwise(bounds.tolist())]


def _problem(config: Config, resources: Resources, labels: npt.NDArray[np.int64]) -> Problem:
    federation = config.federation
    reachable = resources.reachable
    if federation.association == "heterogeneity" or federation.reach != "all":
        latency_ms = resources.latency_s()
        latency_ms *= 1000
    if federation.reach != "all" and federation.reach < federation.edges:
        # Compute time is the same for every edge, so a client's fastest edges have its best bandwidth.
        best = np.argsort(latency_ms, axis=0, kind="stable")[: federation.reach]
        near = np.zeros(latency_ms.shape, np.bool_)
        np.put_along_axis(near, best, values=True, axis=0)
        reachable = near if reachable is None else near & reachable
    if resources.reachable is not None and federation.association == "heterogeneity":
        latency_ms[~resources.reachable] = 0.0  # the mask says it; bounds on costs need finite numbers
    weight = federation.heterogeneity_weight
    if federation.association == "data":
        latency_ms, weight = np.broadcast_to(0.0, (federation.edges, federation.clients)), 1.0
    classes = labels.shape[1]
    return Problem(
        latency_ms,
        labels,
        weight,
        np.full(classes, 1 / classes)
        if federation.target_distribution == "uniform"
        else label_distribution(labels.sum(axis=0)),
        reachable,
        None if federation.capacity == "none" else federation.capacity,
    )
