"""The association strategies by name: which client belongs to which edge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from hiflash.core.association.fast import associate
from hiflash.core.association.greedy import Problem
from hiflash.core.association.groups import Groups, expand, group_latency_ms, group_reach
from hiflash.core.association.strategies import (
    Clusters,
    Counts,
    Floats,
    Mask,
    edge_iid,
    edge_noniid,
    label_distribution,
    latency_tiers,
    random_association,
)
from hiflash.core.registry import Key, Part, by_name
from hiflash.errors import ConfigError

__all__ = ["ASSOCIATIONS", "BY_LABELS", "Scene", "reach_mask"]

BY_LABELS = ("heterogeneity", "data", "edge-iid", "edge-noniid")
"""The associations here that look at labels; all of them can place groups of clients."""


@dataclass(frozen=True, eq=False)
class Scene:
    """The clients and edges as an association sees them.

    `compute_s` has the seconds that every client computes, `best_send_s()` those that it sends to its best
    edge. `latency_s()` has both together for every edge and client, in an array of its own. `labels` are
    counts by client and class, None without data. `progress` takes the number of clients placed so far.
    `reachable` says which edge reaches which client, `[edges, clients]`; None if all reach all. `given` has
    the edge of every client if files name it. With `groups`, `labels` has a row for each group: nobody has
    seen those of a client.
    """

    compute_s: Floats
    best_send_s: Callable[[], Floats]
    latency_s: Callable[[], Floats]
    labels: Counts | None
    stream: np.random.Generator
    progress: Callable[[int], None]
    reachable: Mask | None = None
    given: Counts | None = None
    groups: Groups | None = None


def reach_mask(config: Any, latency_ms: Floats, given: Mask | None) -> Mask | None:
    """Return which edge reaches which client, after `federation.reach`; None if all reach all."""
    federation = config.federation
    if federation.reach == "all" or federation.reach >= federation.edges:
        return given
    # Compute time is the same for every edge, so a client's fastest edges have its best bandwidth.
    best = np.argsort(latency_ms, axis=0, kind="stable")[: federation.reach]
    reachable = np.zeros(latency_ms.shape, np.bool_)
    np.put_along_axis(reachable, best, values=True, axis=0)
    return reachable if given is None else reachable & given


def _random(config: Any, scene: Scene) -> Clusters:
    federation = config.federation
    return random_association(federation.clients, federation.edges, scene.stream, scene.reachable)


def _given(config: Any, scene: Scene) -> Clusters:
    if scene.given is None:
        raise ConfigError(
            'federation.association = "given" needs an association.csv; use another association'
        )
    order = np.argsort(scene.given, kind="stable")
    bounds = np.searchsorted(scene.given[order], np.arange(config.federation.edges + 1))
    return [order[start:end].tolist() for start, end in pairwise(bounds.tolist())]


def _latency(config: Any, scene: Scene) -> Clusters:
    return latency_tiers(scene.compute_s + scene.best_send_s(), config.federation.edges)


def _edge_iid(config: Any, scene: Scene) -> Clusters:
    return expand(edge_iid(_labels(config, scene), config.federation.edges, scene.stream), scene.groups)


def _edge_noniid(config: Any, scene: Scene) -> Clusters:
    federation = config.federation
    labels = _labels(config, scene)
    clusters = edge_noniid(labels, federation.edges, federation.classes_per_edge, scene.stream)
    return expand(clusters, scene.groups)


def _heterogeneity(config: Any, scene: Scene) -> Clusters:
    labels, latency_ms = _labels(config, scene), _latency_ms(scene)
    weight = config.federation.heterogeneity_weight
    reachable = reach_mask(config, latency_ms, scene.reachable)
    if scene.reachable is not None:
        latency_ms[~scene.reachable] = 0.0  # the mask says it; bounds on costs need finite numbers
    if scene.groups is not None:
        latency_ms = group_latency_ms(latency_ms, scene.groups)
    return _greedy(config, scene, labels, latency_ms, weight, reachable)


def _data(config: Any, scene: Scene) -> Clusters:
    labels, federation = _labels(config, scene), config.federation
    reachable = scene.reachable
    if federation.reach != "all":
        reachable = reach_mask(config, _latency_ms(scene), scene.reachable)
    nowhere = np.broadcast_to(0.0, (federation.edges, len(labels)))
    return _greedy(config, scene, labels, nowhere, 1.0, reachable)


def _greedy(
    config: Any, scene: Scene, labels: Counts, latency_ms: Floats, weight: float, reachable: Mask | None
) -> Clusters:
    """Return the clusters of Algorithm 3, of clients or of groups."""
    groups, capacity = scene.groups, config.federation.capacity
    most = None if capacity == "none" else capacity
    if groups is not None:
        reachable = group_reach(reachable, groups)
        most = None if most is None else _groups_of(most, groups, config.federation.edges)
    target = config.federation.target_distribution
    unit = "client" if groups is None else "group"
    problem = Problem(latency_ms, labels, weight, _target(labels, target), reachable, most, unit)
    return expand(associate(problem, scene.stream, scene.progress), groups)


def _latency_ms(scene: Scene) -> Floats:
    latency_ms = scene.latency_s()
    latency_ms *= 1000
    return latency_ms


def _target(labels: Counts, wanted: str) -> Floats:
    """Return LD_IID; noise may have left no sample at all, and then all labels count alike."""
    total, classes = labels.sum(axis=0), labels.shape[1]
    if wanted == "uniform" or not total.any():
        return np.full(classes, 1 / classes)
    return label_distribution(total)


def _groups_of(capacity: int, groups: Groups, edges: int) -> int:
    """Return how many groups an edge has room for, all of them as large as the largest."""
    largest = max(len(group) for group in groups)
    if capacity // largest * edges < len(groups):
        raise ConfigError(
            f"{edges} edges with a capacity of {capacity} have no room for {len(groups)} groups of up to "
            f"{largest} clients; raise federation.capacity to {largest * -(-len(groups) // edges)}"
        )
    return capacity // largest


def _labels(config: Any, scene: Scene) -> Counts:
    if scene.labels is None:
        raise ConfigError(
            f"the association {config.federation.association} needs the labels of the clients' data, and "
            "there are none; set data.name, give labels in federation.files, or use the association random"
        )
    return scene.labels


def _no_labels(config: Any) -> str | None:
    if config.data.name != "none" or config.federation.files:  # files may have labels
        return None
    return (
        f"federation.association = {config.federation.association} needs labels, and data.name is none; "
        "use random or latency"
    )


def _no_files(config: Any) -> str | None:
    if config.federation.files or config.federation.flat:
        return None
    return 'federation.association = "given" needs federation.files with an association.csv'


def _no_places(config: Any) -> str | None:
    if not config.mobility.active or config.cloud.schedule == "centralized" or config.federation.flat:
        return None
    return (
        f"mobility.* needs edges at places, and the edges of {config.method} are latency tiers "
        '(federation.association = "latency"); leave it out or use another association'
    )


HETEROGENEITY_WEIGHT = Key(
    "heterogeneity_weight",
    float,
    default=300.0,
    low=0,
    high=1e9,
    about="lambda, milliseconds of latency that a divergence of 1 is worth",
    anywhere=True,  # repairs under mobility weigh latency and labels too
)
TARGET_DISTRIBUTION = Key(
    "target_distribution",
    str,
    default="global",
    words=("global", "uniform"),
    about="LD_IID, the labels that a cluster should have",
    anywhere=True,
)
REACH = Key(
    "reach",
    int,
    default="all",
    low=1,
    high=10_000_000,
    words=("all",),
    about="edges that a client can reach: the ones with its best bandwidths",
)
CLASSES_PER_EDGE = Key(
    "classes_per_edge",
    int,
    default=5,
    low=1,
    high=10_000_000,
    about="edge-noniid: classes that an edge holds",
)

ASSOCIATIONS = by_name(
    Part("random", "at random, in clusters of equal size", _random),
    Part(
        "heterogeneity",
        "one client at a time to the edge with the least latency and divergence of labels (the paper)",
        _heterogeneity,
        keys=(HETEROGENEITY_WEIGHT, TARGET_DISTRIBUTION, REACH),
        problem=_no_labels,
    ),
    Part("latency", "tiers of clients of similar latency, not places (FedAT)", _latency, problem=_no_places),
    Part(
        "data",
        "as `heterogeneity`, by labels alone",
        _data,
        reads=("target_distribution", "reach"),
        problem=_no_labels,
    ),
    Part("edge-iid", "every edge gets all classes evenly", _edge_iid, problem=_no_labels),
    Part(
        "edge-noniid",
        "every edge gets clients of `classes_per_edge` classes only",
        _edge_noniid,
        keys=(CLASSES_PER_EDGE,),
        problem=_no_labels,
    ),
    Part("given", "that of the `association.csv` in `federation.files`", _given, problem=_no_files),
)
