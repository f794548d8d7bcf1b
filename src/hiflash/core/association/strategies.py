"""Which client belongs to which edge, and how balanced the clusters' data are (paper, section 5.3)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hiflash.errors import ConfigError

__all__ = [
    "Clusters",
    "edge_iid",
    "edge_noniid",
    "js_divergence",
    "js_divergences",
    "js_per_edge",
    "label_distribution",
    "latency_per_edge_ms",
    "latency_tiers",
    "mean_of_peopled",
    "random_association",
    "waiting_per_edge_ms",
]

Clusters = list[list[int]]
Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def random_association(
    clients: int, edges: int, stream: np.random.Generator, reachable: Mask | None = None
) -> Clusters:
    """Return clusters drawn at random whose sizes differ by at most one.

    With a mask `[edges, clients]`, clients in random order go to the smallest cluster that they reach.
    """
    order = stream.permutation(clients)
    if reachable is None:
        return [sorted(part.tolist()) for part in np.array_split(order, edges)]
    shuffled = stream.permutation(edges)  # which of equally small clusters is taken
    mask, sizes = reachable[shuffled].T, np.zeros(edges, np.int64)
    clusters: Clusters = [[] for _ in range(edges)]
    for client in order.tolist():
        place = int(np.argmin(np.where(mask[client], sizes, clients)))
        sizes[place] += 1
        clusters[shuffled[place]].append(client)
    return [sorted(cluster) for cluster in clusters]


def latency_tiers(latency_s: Floats, tiers: int) -> Clusters:
    """Return tiers of clients by latency, the fastest first; their sizes differ by at most one.

    >>> latency_tiers(np.array([0.3, 0.1, 0.2, 0.1, 0.9]), 2)
    [[1, 2, 3], [0, 4]]
    """
    order = np.argsort(latency_s, kind="stable")  # of equal latencies the lowest client id comes first
    return [sorted(tier.tolist()) for tier in np.array_split(order, tiers)]


def edge_iid(counts: Counts, edges: int, stream: np.random.Generator) -> Clusters:
    """Return clusters that share every class evenly: clients are dealt out by their main class."""
    shuffled = stream.permutation(len(counts))
    by_class = shuffled[np.argsort(_main_class(counts)[shuffled], kind="stable")]
    return [sorted(by_class[edge::edges].tolist()) for edge in range(edges)]


def edge_noniid(counts: Counts, edges: int, classes_per_edge: int, stream: np.random.Generator) -> Clusters:
    """Return clusters that hold only some classes each: a client joins an edge that has its main class.

    Every class belongs to equally many edges (+-1), and its clients are dealt out to those in turn.
    """
    main = _main_class(counts)
    present = np.unique(main)
    if classes_per_edge * edges < len(present):
        raise ConfigError(
            f"federation.classes_per_edge ({classes_per_edge}) x federation.edges ({edges}) leaves some of "
            f"{len(present)} classes without an edge; use at least {-(-len(present) // edges)} classes"
        )
    per_edge = min(classes_per_edge, len(present))
    dealt = stream.permutation(present).tolist()
    owners: dict[int, list[int]] = {label: [] for label in dealt}
    for edge in range(edges):
        for place in range(edge * per_edge, (edge + 1) * per_edge):
            owners[dealt[place % len(dealt)]].append(edge)
    clusters: Clusters = [[] for _ in range(edges)]
    for label in dealt:
        turns = sorted(owners[label], key=lambda edge: (len(clusters[edge]), edge))
        for turn, client in enumerate(stream.permutation(np.flatnonzero(main == label)).tolist()):
            clusters[turns[turn % len(turns)]].append(client)
    return [sorted(cluster) for cluster in clusters]


def latency_per_edge_ms(latency_s: Floats, clusters: Clusters | list[Counts]) -> list[float]:
    """Return L^m of every edge: the latency of its slowest client, 0 without clients.

    `latency_s` has the latency of every client to its own edge.
    """
    return [1000 * float(latency_s[cluster].max()) if len(cluster) else 0.0 for cluster in clusters]


def waiting_per_edge_ms(latency_s: Floats, clusters: Clusters | list[Counts]) -> list[float]:
    """Return, per edge, the mean extra latency of its clients over the fastest of them."""
    own = [latency_s[cluster] for cluster in clusters]
    return [1000 * float((latency - latency.min()).mean()) if len(latency) else 0.0 for latency in own]


def mean_of_peopled(values: list[float], clusters: Clusters | list[Counts]) -> float:
    """Return the mean value of the edges that have clients."""
    return float(np.mean([value for edge, value in enumerate(values) if len(clusters[edge])]))


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
    return float(js_divergences(p[None], q)[0])


def js_divergences(rows: Floats, q: Floats) -> Floats:
    """Return the divergence of every row from `q`; a row's value does not depend on the other rows."""
    middle = (rows + q) / 2
    both: Floats = (_kl(rows, middle) + _kl(q, middle)) / 2
    return np.clip(both, 0.0, 1.0)  # rounding may leave [0, 1]


def js_per_edge(counts: Counts, clusters: Clusters) -> list[float]:
    """Return each cluster's divergence from the global label distribution; 0 without samples."""
    overall = label_distribution(counts.sum(axis=0))
    held = [counts[cluster].sum(axis=0) for cluster in clusters]
    return [js_divergence(label_distribution(own), overall) if own.any() else 0.0 for own in held]


def _main_class(counts: Counts) -> Counts:
    """Return every client's most frequent label; ties go to the lowest label."""
    labels: Counts = counts.argmax(axis=1)
    return labels


def _kl(p: Floats, q: Floats) -> Floats:
    ratio = np.divide(p, q, out=np.ones_like(q), where=p > 0)  # 0 log 0 = 0
    total: Floats = (p * np.log2(ratio)).sum(axis=-1)
    return total
