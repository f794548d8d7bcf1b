"""Clusters of clients: the chosen association, and whether its clusters suit the federation."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import numpy as np
import numpy.typing as npt

from hiflash.config import Config
from hiflash.core.association.groups import Groups, form_groups
from hiflash.core.association.parts import BY_LABELS, Scene, reach_mask
from hiflash.core.association.strategies import Clusters
from hiflash.data.federation import read_federation
from hiflash.errors import ConfigError
from hiflash.methods.registry import make
from hiflash.privacy.group_sums import group_histograms
from hiflash.privacy.histograms import Histograms, release_of
from hiflash.privacy.randomness import SeededRandomness
from hiflash.seeding import rng
from hiflash.sim.resources import Resources

__all__ = ["cluster_clients", "groups_of", "known_labels", "send_s"]

Ints = npt.NDArray[np.int64]


def cluster_clients(
    config: Config,
    resources: Resources,
    labels: Ints | None,
    progress: Callable[[int], None] = lambda placed: None,
    draw: int = 0,
) -> Clusters:
    """Return the clusters that `federation.association` asks for; `labels` are counts by client and class.

    The association sees of them what `privacy.*` lets out of a client, under this draw of the noise.
    """
    federation = config.federation
    groups = None if labels is None else groups_of(config, resources)
    known = None if labels is None else known_labels(config, labels, groups, draw)
    clusters = _clusters(config, resources, known, groups, progress)
    _check_reach(config, resources, clusters)
    largest = max(len(cluster) for cluster in clusters)
    if federation.capacity != "none" and largest > federation.capacity:
        raise ConfigError(
            f"the association {federation.association} puts {largest} clients on one edge, and "
            f"federation.capacity is {federation.capacity}; raise it, or use the association heterogeneity"
        )
    fewer = "" if groups is None else "a smaller privacy.group "
    for edge, cluster in enumerate(clusters):
        if not cluster:
            raise ConfigError(
                f"the association {federation.association} leaves edge {edge} without a client; "
                f"use fewer federation.edges, {fewer}or a larger federation.reach"
            )
    return clusters


def groups_of(config: Config, resources: Resources) -> Groups | None:
    """Return the groups that are associated as units, None if clients are associated one by one."""
    if config.privacy.histograms != "group" or config.federation.association not in BY_LABELS:
        return None
    latency_ms = 1000 * resources.latency_s()
    reachable = reach_mask(config, latency_ms, resources.reachable)
    return form_groups(latency_ms, config.privacy.group, reachable)


def known_labels(config: Config, labels: Ints, groups: Groups | None = None, draw: int = 0) -> Ints:
    """Return the histograms of clients, or of groups, as others know them in this simulation.

    A client sends its histogram once, so all who ask get the same. `draw` numbers other draws of the noise,
    for studies.
    """
    release = release_of(config.privacy, deployed=False)
    if release is None and groups is None:
        return labels
    histograms = Histograms(release)
    stream = SeededRandomness(config.seed).stream("histograms", draw)
    if groups is None:
        return histograms.read(histograms.sent(labels, stream))
    return group_histograms(labels, groups, histograms, stream, config.privacy.group, config.seed)


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
    labels: Ints | None,
    groups: Groups | None,
    progress: Callable[[int], None],
) -> Clusters:
    """Return the clusters that the chosen association makes, with every client in exactly one."""
    stream = rng(config.seed, "association")
    scene = Scene(
        resources.compute_s,
        lambda: resources.best_send_s,  # drawn if it is asked for: a million clients take seconds
        resources.latency_s,
        labels,
        stream,
        progress,
        resources.reachable,
        read_federation(config.federation.files).association if config.federation.files else None,
        groups,
    )
    clusters: Clusters = make("association", config, scene)
    name, edges, clients = config.federation.association, config.federation.edges, config.federation.clients
    try:
        placed = np.fromiter(chain.from_iterable(clusters), np.int64)
        fits = len(clusters) == edges and np.bincount(placed, minlength=clients).tolist() == [1] * clients
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise ConfigError(
            f"the association {name} must return {edges} lists with each of {clients} clients in one of them"
        )
    return clusters
