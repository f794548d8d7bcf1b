"""The price of secure sums: a deployed round against one without, and a sum of a hundred large models."""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["secagg_round_ratio", "secagg_sum_large_s"]

CLIENTS, ROUNDS, WARM_UP = 10, 10, 4
LARGE_CLIENTS, RESNET = 100, 3_504_554
SETTINGS: dict[str, Any] = {
    "method": "hierfavg",
    "cloud.participants": 1,
    "edge.clients_per_round": "all",
    "edge.edge_rounds": [1],
    "client.local_steps": 3,
    "evaluate.every": 1_000,
    "stop.target": "none",
    "stop.communications": WARM_UP + ROUNDS,
}


def secagg_round_ratio(repeats: int = 2) -> dict[str, float]:
    """Return the median seconds of an edge round with secure sums over that without.

    An edge and ten clients are processes with mutual TLS; each client takes three LeNet steps. Runs with and
    without alternate, because the machine is not always equally fast.
    """
    took: dict[str, list[float]] = {"off": [], "secagg": []}
    for _ in range(repeats):
        for secure, seconds in took.items():
            seconds += _rounds_s(secure)
    plain, secure_s = (statistics.median(seconds) for seconds in took.values())
    return {
        "secagg_round_ratio": secure_s / plain,
        "secagg_round_ms": 1e3 * secure_s,
        "plain_round_ms": 1e3 * plain,
    }


def secagg_sum_large_s(clients: int = LARGE_CLIENTS, size: int = RESNET, lost: int = 3) -> dict[str, float]:
    """Return the seconds of a sum of large models in one process, and of a client's and the edge's part.

    All clients take part to the end but a few, whose masks the edge must remove.
    """
    from hiflash.privacy.sums.edge import Ask, Gone, Heard, Opened, SumEdge
    from hiflash.privacy.sums.fixed_point import FixedPoint
    from hiflash.privacy.sums.in_memory import answer, make_client
    from hiflash.privacy.sums.messages import Terms, Words
    from hiflash.privacy.sums.signing import SeededVerifier

    terms = Terms("bench", 0, 1, 0, tuple(range(clients)), size, 8.0, 1024 * clients)
    form, verifier = FixedPoint.of(terms), SeededVerifier(0)
    change = np.random.default_rng(0).normal(scale=0.01, size=size).astype(np.float32)

    def vector_of(client: int) -> Words | None:
        return None if client < lost else form.encode(change, 600)

    edge = SumEdge(terms, verifier)
    machines = {client: make_client(terms, client, 0, verifier) for client in terms.clients}
    begun, client_s, edge_s = time.perf_counter(), 0.0, 0.0
    effects: list[Any] = edge.start(0.0)
    while isinstance(effects[0], Ask):
        requests, effects = effects[0].requests, []
        for client, request in requests.items():
            started = time.perf_counter()
            said = answer(machines[client], request, vector_of)
            client_s += time.perf_counter() - started
            started = time.perf_counter()
            event = Gone(client, "lost", 0.0) if said is None else Heard(client, said, 0.0)
            effects = effects or edge.handle(event)
            edge_s += time.perf_counter() - started
            if effects:
                break
    (opened,) = effects
    if not isinstance(opened, Opened) or opened.clients != terms.clients[lost:]:
        raise RuntimeError(f"the sum was not opened: {opened}")
    error = float(np.abs(opened.summed.mean - change).max())
    if error > form.error(clients - lost, 600 * (clients - lost)):
        raise RuntimeError(f"the sum is off by {error}")
    return {
        "secagg_sum_large_s": time.perf_counter() - begun,
        "secagg_sum_large_client_s": client_s / clients,
        "secagg_sum_large_edge_s": edge_s,
    }


def _rounds_s(secure: str) -> list[float]:
    """Return the seconds of the edge rounds of a deployed run, without the first ones."""
    import hiflash

    folder = Path(tempfile.mkdtemp())
    try:
        settings = {**SETTINGS, "edge.secure": secure}
        hiflash.up(edges=1, clients=CLIENTS, directory=folder / "run", **settings)
        rows = map(json.loads, (folder / "run" / "events.jsonl").read_text().splitlines())
        return [row["round_s"] for row in rows if row["event"] == "edge_round"][WARM_UP:]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
