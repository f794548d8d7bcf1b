"""Who holds what and belongs where: sample counts, labels and clusters of the clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hiflash.config import Config
from hiflash.core.association import js_per_edge, random_association
from hiflash.data import Dataset, Partition, label_counts, own_parts, partition
from hiflash.errors import ConfigError
from hiflash.seeding import rng

__all__ = ["Population", "populate"]

EXAMPLES, FEATURES = 600, 28 * 28  # what a client counts as holding where there is no data: MNIST's share


@dataclass(frozen=True)
class Population:
    """The clients of a federation. A flat one has clusters of one; `edge_clusters` are there all the same."""

    examples: np.ndarray
    features: int
    clusters: list[list[int]]
    edge_clusters: list[list[int]]
    split: Partition
    labels: np.ndarray | None

    def js_per_edge(self) -> list[float]:
        """Return how far each edge's label distribution is from the global one; nothing without labels."""
        return [] if self.labels is None else js_per_edge(self.labels, self.clusters)


def populate(config: Config, data: Dataset | None, parts: Sequence[Any] | None) -> Population:
    """Return the clients that a configuration asks for."""
    clients, edges = config.federation.clients, config.federation.edges
    edge_clusters = random_association(clients, edges, rng(config.seed, "association"))
    clusters = [[client] for client in range(clients)] if config.federation.flat else edge_clusters
    if data is None:
        examples = np.full(clients, EXAMPLES)
        return Population(examples, FEATURES, clusters, edge_clusters, Partition([], 0.0, "none"), None)
    features = int(np.prod(data.x.shape[1:]))
    if config.cloud.schedule == "centralized":
        pooled = Partition([np.arange(len(data.y))], 0.0, "pooled")
        return Population(np.array([len(data.y)]), features, [[0]], edge_clusters, pooled, None)
    if parts is None:
        stream = rng(config.seed, "partition")
        split = partition(
            config.data.partition, data.y, clients, stream, classes=data.classes, writers=data.writers
        )
    elif len(parts) == clients:
        split = own_parts(parts, len(data.y))
    else:
        raise ConfigError(f"parts has {len(parts)} clients, federation.clients is {clients}; make them equal")
    examples = np.array([len(part) for part in split.parts])
    labels = label_counts(data.y, split.parts, data.classes)
    return Population(examples, features, clusters, edge_clusters, split, labels)
