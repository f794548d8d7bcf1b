"""The association: its time for 100,000 clients and 1,000 edges, and its gap to the optimum."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import numpy as np

from hiflash.core.association.fast import associate
from hiflash.core.association.greedy import Problem
from hiflash.core.association.strategies import label_distribution
from hiflash.core.cost import compute_seconds, send_seconds
from hiflash.seeding import rng

__all__ = ["association_100k_s", "association_gap"]

PARAMETERS = 214_590  # of the FEMNIST model, which has 62 classes
WEIGHTS = (300, 1000)


def association_100k_s() -> dict[str, float]:
    """Return seconds on one core for lambda 300 and 1,000, and the peak memory, instance included."""
    found: dict[str, float] = {}
    one_thread = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    for weight in WEIGHTS:
        code = f"from benchmarks.association import measure; measure(100_000, 1_000, {weight})"
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True, text=True, check=True, env={**os.environ, **one_thread},
        )  # fmt: skip
        seconds, gib, cpu_s = json.loads(done.stdout)
        suffix = "" if weight == WEIGHTS[0] else f"_lambda{weight}"
        found |= {
            f"association_100k{suffix}_s": seconds,
            f"association_100k{suffix}_cpu_s": cpu_s,
            f"association_100k{suffix}_gib": gib,
        }
    return found


def measure(clients: int, edges: int, weight: float) -> None:
    """Print wall seconds, peak GiB and processor seconds of one association as JSON."""
    import resource

    problem = instance(clients, edges, 62, weight)
    begun, used = time.perf_counter(), time.process_time()
    clusters = associate(problem, rng(0, "association"))
    seconds, cpu_s = time.perf_counter() - begun, time.process_time() - used
    if sorted(client for cluster in clusters for client in cluster) != list(range(clients)):
        raise AssertionError("not every client has one edge")
    print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, cpu_s]))


def instance(clients: int, edges: int, classes: int, weight: float, seed: int = 0) -> Problem:
    """Return clients of 50 to 500 samples, Dirichlet(0.5) over the classes, and latencies in ms."""
    stream = rng(seed, "instance")
    sizes = stream.integers(50, 501, clients)
    counts = stream.multinomial(sizes, stream.dirichlet(np.full(classes, 0.5), clients))
    compute_s = compute_seconds(
        np.full(clients, 3.0),
        np.minimum(60, sizes) * 784 * 8.0,
        np.full(clients, 20.0),
        stream.uniform(1e9, 2e9, clients),
    )
    latency_ms = np.empty((edges, clients))
    for row in latency_ms:
        row[:] = 1000 * (compute_s + send_seconds(PARAMETERS, stream.uniform(1e6, 1e7, clients), 17.0))
    return Problem(latency_ms, counts, weight, label_distribution(counts.sum(axis=0)))


def association_gap() -> dict[str, float]:
    """Return the gap of greedy clusters to the best clusters of the same sizes, over 20 small instances.

    The objective is `sum of L^{m,k} over clients + lambda * total JS`. Twelve clients can be halved between
    two edges in 924 ways, so trying all finds the optimum. Larger instances have a lower bound instead: the
    cheapest assignment by latency alone (scipy) with a divergence of 0.
    """
    from itertools import combinations

    from scipy.optimize import linear_sum_assignment

    exact, bound = [], []
    for seed in range(20):
        problem = instance(12, 2, 10, 300, seed)
        clusters = associate(Problem(*_fields(problem), capacity=6), rng(seed, "association"))
        greedy = objective(problem, clusters)
        everyone = set(range(12))
        optimum = min(
            objective(problem, [list(half), sorted(everyone - set(half))])
            for half in combinations(range(12), 6)
        )
        exact.append(greedy / optimum - 1)
        problem = instance(100, 10, 10, 300, seed)
        clusters = associate(Problem(*_fields(problem), capacity=10), rng(seed, "association"))
        rows = np.repeat(problem.latency_ms, 10, axis=0)
        least = rows[linear_sum_assignment(rows)].sum()
        bound.append(objective(problem, clusters) / least - 1)
    return {
        "association_gap": float(np.mean(exact)),
        "association_gap_largest": float(np.max(exact)),
        "association_gap_to_bound": float(np.mean(bound)),
    }


def objective(problem: Problem, clusters: list[list[int]]) -> float:
    """Return the latencies of all clients to their edges plus lambda times the total divergence."""
    from hiflash.core.association.strategies import js_per_edge

    latency = sum(float(problem.latency_ms[edge, cluster].sum()) for edge, cluster in enumerate(clusters))
    return latency + problem.weight * sum(js_per_edge(problem.counts, clusters))


def _fields(problem: Problem) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
    return problem.latency_ms, problem.counts, problem.weight, problem.target
