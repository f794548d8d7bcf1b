"""Which client belongs to which edge, and how balanced the clusters' data are (paper, section 5.3)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = [
    "Clusters",
    "js_divergence",
    "js_per_edge",
    "label_distribution",
    "latency_tiers",
    "random_association",
]

Clusters = list[list[int]]
Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def random_association(clients: int, edges: int, stream: np.random.Generator) -> Clusters:
    """Return clusters drawn at random whose sizes differ by at most one."""
    order = stream.permutation(clients)
    return [sorted(part.tolist()) for part in np.array_split(order, edges)]


def latency_tiers(latency_s: Floats, tiers: int) -> Clusters:
    """Return clients by rising latency in tiers whose sizes differ by at most one, fastest first.

    >>> latency_tiers(np.array([0.3, 0.1, 0.2, 0.1, 0.9]), 2)
    [[1, 2, 3], [0, 4]]
    """
    order = np.argsort(latency_s, kind="stable")  # of equal latencies the lowest client id comes first
    return [sorted(tier.tolist()) for tier in np.array_split(order, tiers)]


def label_distribution(counts: Counts) -> Floats:
    """Return the share of every label.

    >>> label_distribution(np.array([1, 0, 2, 1])).tolist()
    [0.25, 0.0, 0.5, 0.25]
    """
    shares: Floats = counts / counts.sum()
    return shares


def js_divergence(p: Floats, q: Floats) -> float:
    """Return the Jensen-Shannon divergence of two label distributions, in [0, 1].

    >>> js_divergence(np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    1.0
    """
    middle = (p + q) / 2
    return min(1.0, max(0.0, (_kl(p, middle) + _kl(q, middle)) / 2))  # rounding may leave [0, 1]


def js_per_edge(counts: Counts, clusters: Clusters) -> list[float]:
    """Return each cluster's divergence from the global label distribution; an empty one has none."""
    overall = label_distribution(counts.sum(axis=0))
    return [
        js_divergence(label_distribution(counts[cluster].sum(axis=0)), overall) if cluster else 0.0
        for cluster in clusters
    ]


def _kl(p: Floats, q: Floats) -> float:
    held = p > 0  # 0 log 0 = 0
    return float(np.sum(p[held] * np.log2(p[held] / q[held])))
