"""The clients of a federation: their sample counts, labels and clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hiflash.config import Config
from hiflash.core.association.strategies import Clusters, js_per_edge
from hiflash.data import (
    Dataset,
    Partition,
    hold_back,
    hold_out,
    label_counts,
    own_indices,
    partition,
    without_held,
)
from hiflash.data.federation import FederationData, read_federation
from hiflash.errors import ConfigError
from hiflash.seeding import rng
from hiflash.sim.clusters import cluster_clients
from hiflash.sim.resources import Resources, draw_resources

__all__ = ["Population", "populate", "validation_of"]

EXAMPLES, FEATURES = 600, 28 * 28  # assumed for each client if there is no data, as in MNIST


@dataclass(frozen=True)
class Population:
    """The clients of a federation.

    In a flat method each of `clusters` has one client. `edge_clusters` are always the clusters of the edges.
    `labels` counts each client's samples by category (`Dataset.categories`). `held_out` has the samples of
    each client that are not trained on; it is empty unless `evaluate.clients` is set. `validation` has the
    samples that no client gets (`validation_of`).
    """

    examples: np.ndarray
    features: int
    clusters: list[list[int]]
    edge_clusters: list[list[int]]
    split: Partition
    labels: np.ndarray | None
    resources: Resources
    measured: FederationData | None
    held_out: list[np.ndarray] = field(default_factory=list)
    validation: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    def mobile(self, config: Config) -> bool:
        """Return whether any client moves, joins, leaves or is absent, or repairs are due."""
        listed = self.measured is not None and self.measured.availability is not None
        return config.mobility.active or listed

    def js_per_edge(self, clusters: Clusters) -> list[float]:
        """Return the divergence of each edge's labels from those of all clients; empty without labels."""
        return [] if self.labels is None else js_per_edge(self.labels, clusters)


def populate(config: Config, data: Dataset | None, indices: Sequence[Any] | None, values: int) -> Population:
    """Return the clients of a configuration; `values` is the size of the model that they send."""
    clients = config.federation.clients
    features = FEATURES if data is None else int(np.prod(data.x.shape[1:]))
    measured = read_federation(config.federation.files) if config.federation.files else None
    labels, held_out, validation = None, list[np.ndarray](), np.zeros(0, np.int64)
    if config.trainer == "none" and measured is not None and measured.held is not None:
        # Nothing is trained, so a dataset is asked for nothing but the shape of its samples.
        split = Partition([], 0.0, "given")
        examples, labels = measured.held, measured.labels
    elif data is None:
        split = Partition([], 0.0, "none")
        examples = np.full(clients, EXAMPLES)
    elif config.cloud.schedule == "centralized":
        validation = validation_of(config, data)
        split = Partition([np.delete(np.arange(len(data.y)), validation)], 0.0, "pooled")
        examples = np.array([len(split.indices[0])])
    else:
        validation = validation_of(config, data)
        split = _split(config, data, indices, validation)
        if config.evaluate.clients:
            split, held_out = hold_out(split, config.evaluate.clients, rng(config.seed, "held out"))
        examples = np.array([len(part) for part in split.indices])
        category, categories = data.categories()
        labels = label_counts(category, split.indices, categories)
        if measured is not None:
            _check_partition(measured, split, examples, labels)
    resources = draw_resources(config, examples, features, values, measured)
    centralized = config.cloud.schedule == "centralized"
    edge_clusters = [[0]] if centralized else cluster_clients(config, resources, labels)
    clusters = [[client] for client in range(clients)] if config.federation.flat else edge_clusters
    return Population(
        examples, features, clusters, edge_clusters, split, labels, resources, measured, held_out, validation
    )


def validation_of(config: Config, data: Dataset | None) -> np.ndarray:
    """Return the training samples that no client gets: those of the validation set, if there is one."""
    share = config.evaluate.validation
    if not share or data is None:
        return np.zeros(0, np.int64)
    return hold_back(data, share, rng(config.seed, "validation"))


def _check_partition(
    measured: FederationData, split: Partition, examples: np.ndarray, labels: np.ndarray
) -> None:
    """Refuse given samples or labels that are not those of the training data."""
    for name, there, here in (
        ("samples", measured.samples, examples),
        ("labels", measured.labels, labels),
    ):
        if there is None or (there.shape == here.shape and (there == here).all()):
            continue
        if there.shape != here.shape:
            told = f"{there.shape[1]} classes, and the training data have {here.shape[1]}"
        else:
            client = int(np.argwhere(there != here)[0][0])
            told = f"{there[client]} for client {client}, and {split.name} gives it {here[client]}"
        raise ConfigError(
            f'{measured.origin(name)}: {name} has {told}; leave it out, or use trainer = "none", which takes '
            "samples and labels as they are given"
        )


def _split(config: Config, data: Dataset, indices: Sequence[Any] | None, validation: np.ndarray) -> Partition:
    """Return the samples of every client; those of the validation set are nobody's."""
    clients = config.federation.clients
    if indices is None:
        stream = rng(config.seed, "partition")
        category, categories = data.categories()
        kept = np.delete(np.arange(len(data.y)), validation)
        dealt = partition(
            config.data.partition,
            category[kept],
            clients,
            stream,
            classes=categories,
            groups=None if data.groups is None else data.groups[kept],
            config=config,
        )
        return replace(dealt, indices=[kept[part] for part in dealt.indices])
    if len(indices) != clients:
        raise ConfigError(
            f"indices has {len(indices)} clients, federation.clients is {clients}; make them equal"
        )
    own = own_indices(indices, len(data.y))
    return without_held(own, validation, len(data.y)) if len(validation) else own
