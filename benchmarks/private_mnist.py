"""Accuracy of MNIST Non-IID(2) with 1,000 clients under client-level privacy, as in docs/dp.md.

`python -m benchmarks.private_mnist` runs every row with 40 rounds, `--rounds 20` half of that, `--rows 1,2`
some of them. `--seeds 3` gives means. Settings were fixed before the first run, and every row that was tried
is printed. "A fifth, not private" and HiFL were added afterwards.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import hiflash

__all__ = ["main", "rows"]

CLIENTS, EPSILON, DELTA, CLIP = 1000, 8.0, 1e-5, 0.5
BATCH, STEPS, LR = 20, 3, 0.1  # a client has 60 samples: one pass
COMMON = {
    "data.name": "mnist",
    "data.partition": "noniid2",
    "federation.clients": CLIENTS,
    "client.batch": BATCH,
    "client.local_steps": STEPS,
    "client.lr": LR,
    "stop.target": "none",
    "stop.client_steps": "none",
}
BUDGET = {"dp.unit": "client", "dp.epsilon": EPSILON, "dp.delta": DELTA, "dp.clip": CLIP}


def rows(rounds: int) -> list[tuple[str, dict[str, Any]]]:
    """Return the name and the settings of every row; each client trains in about so many rounds."""
    private = {**BUDGET, "dp.rounds": rounds}
    # A fifth of the clients in five times as many rounds: as much training for every client.
    fifth = {"cloud.participants": CLIENTS // 5, "dp.sampling": "poisson", "stop.communications": 10**7}
    fifth |= {**BUDGET, "dp.rounds": 5 * rounds}
    return [
        ("FedAvg, all clients, not private", _flat(rounds)),
        ("FedAvg, all clients", _flat(rounds, **private)),
        ("FedAvg, a fifth by Poisson sampling", _flat(rounds, **fifth)),
        ("FedAvg, a fifth, not private", _flat(rounds, **{"cloud.participants": CLIENTS // 5})),
        ("FedAvgM, all clients", _flat(rounds, **private, **{"method": "fedavgm", "cloud.momentum": 0.5})),
        ("HierFAVG, 2 edges, not private", _edges(rounds, 2)),
        ("HierFAVG, 2 edges", _edges(rounds, 2, **private)),
        ("HierFAVG, 10 edges", _edges(rounds, 10, **private)),
        ("HiFL, 10 edges, not private", _hifl(rounds, 10)),
        ("HiFL, 10 edges", _hifl(rounds, 10, **private)),
    ]


def _flat(rounds: int, **more: Any) -> dict[str, Any]:
    sizes = {"cloud.participants": CLIENTS, "stop.communications": rounds * CLIENTS}
    return {**COMMON, "method": "fedavg", **sizes, "evaluate.every": 5 * CLIENTS, **more}


def _edges(rounds: int, count: int, **more: Any) -> dict[str, Any]:
    sizes = {"federation.edges": count, "cloud.participants": count, "stop.communications": rounds * count}
    whole = {"edge.clients_per_round": "all", "edge.edge_rounds": [1], "evaluate.every": 5 * count}
    return {**COMMON, "method": "hierfavg", **sizes, **whole, **more}


def _hifl(rounds: int, count: int, **more: Any) -> dict[str, Any]:
    sizes = {"federation.edges": count, "stop.communications": rounds * count, "evaluate.every": 5 * count}
    return {**COMMON, "method": "hifl", **sizes, "edge.edge_rounds": [1], "cloud.threshold": 2, **more}


def main() -> None:
    """Run the rows and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rows", default="", help="numbers of the rows to run, from 0; all if not given")
    options = parser.parse_args()
    chosen = rows(options.rounds)
    if options.rows:
        chosen = [chosen[int(number)] for number in options.rows.split(",")]
    print("| Run | Noise | Rounds | Epsilon (models) | Epsilon (participation) | Accuracy | Seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for name, settings in chosen:
        begun = time.perf_counter()
        results = [hiflash.run(hiflash.Config(**settings, seed=seed)) for seed in range(options.seeds)]
        took_s = (time.perf_counter() - begun) / options.seeds
        last, accuracy = results[-1], [result.accuracy or 0.0 for result in results]
        spread = f" ± {statistics.stdev(accuracy):.1%}" if len(accuracy) > 1 else ""
        spent = last.privacy
        numbers = ["-", str(last.version), "-", "-"]
        if spent:
            both = (spent["epsilon"], spent["epsilon_participation"])
            numbers = [f"{spent['noise']:.4g}", str(last.version), *(f"{each:.3f}" for each in both)]
        mean = f"{statistics.mean(accuracy):.1%}{spread}"
        print(f"| {name} | {' | '.join(numbers)} | {mean} | {took_s:.0f} |", flush=True)


if __name__ == "__main__":
    main()
