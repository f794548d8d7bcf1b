"""The worked example of the paper's association (Fig. 7): six clients of one class each, and two edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hiflash.core.association.greedy import Problem, associate_reference
from hiflash.seeding import rng

__all__ = ["associate_example"]

SAMPLES = 10  # of every client


def associate_example(
    classes: Sequence[int], latency_ms: Sequence[Sequence[float]], capacity: int, lambdas: Sequence[float]
) -> list[dict[str, Any]]:
    """Return a row per lambda: the clusters, and what the third client of edge 1 costs. Clients count from 1.

    >>> rows = associate_example([0, 1, 0, 1], [[1, 2, 3, 4], [9, 9, 9, 1]], 2, [0])
    >>> rows[0]["clusters"]
    [[1, 2], [3, 4]]
    """
    counts = np.eye(max(classes) + 1, dtype=np.int64)[list(classes)] * SAMPLES
    latency = np.asarray(latency_ms, np.float64)
    target = counts.sum(axis=0) / counts.sum()
    rows = []
    for weight in lambdas:
        problem = Problem(latency, counts, float(weight), target, capacity=capacity)
        clusters = associate_reference(problem, rng(0, "association"))
        held, rest = counts[:2].sum(axis=0), np.array([2, 3])
        costs = problem.costs(latency[0, rest], held, rest)
        rows.append(
            {
                "lambda": weight,
                "clusters": [[client + 1 for client in cluster] for cluster in clusters],
                "costs_ms": {str(client + 1): float(cost) for client, cost in zip(rest, costs, strict=True)},
            }
        )
    return rows
