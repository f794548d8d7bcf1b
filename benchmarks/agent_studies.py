"""Agents outside their training conditions: `python -m benchmarks.agent_studies edges|slow_edge|sigma`.

`edges`: one agent, trained with 10 edges, in federations with 5, 10 and 20. `slow_edge`: the refusals of each
edge when edge 0 is ten times as slow. `sigma`: agents trained for costly resources and for costly time. A
surrogate replaces training here. `hiflash evaluate-agent` with `--federation.edges` or
`--resources.slow_edge` does the first two studies with real training.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from hiflash.config import Config
from hiflash.control.environment import StalenessEnv
from hiflash.control.surrogate.file import load_surrogate
from hiflash.control.surrogate.rehearsal import rehearse
from hiflash.control.train import Training, TrainingSettings
from hiflash.report.agent_figures import draw_sigma
from hiflash.sim.federation import outline

__all__ = ["edges", "main", "sigma", "slow_edge"]

POLICIES: dict[str, dict[str, Any]] = {
    "random": {"cloud.threshold": "random"},
    **{f"fixed-{k}": {"cloud.threshold": k} for k in (0, 1, 2, 4)},
    "agent": {"cloud.threshold": "agent"},
}
SIGMAS = {"resources x 4": 4.0, "balanced": 1.0, "time x 4": 0.25}


def edges(data: str, seeds: int) -> dict[str, Any]:
    """Return the mean total cost of every policy with 5, 10 and 20 edges of ten clients each."""
    found: dict[str, Any] = {}
    for count in (5, 10, 20):
        size = {"federation.edges": count, "federation.clients": 10 * count}
        costs = {name: _costs(data, {**size, **policy}, seeds) for name, policy in POLICIES.items()}
        found[str(count)] = {name: statistics.mean(values) for name, values in costs.items()}
    return found


def slow_edge(data: str, seeds: int) -> dict[str, Any]:
    """Return how often the agent refuses edge 0, which is ten times as slow, and the others, by seed."""
    from hiflash.core.thresholds.agent import Forward, permitted
    from hiflash.methods.registry import threshold_policy

    base = {"method": "hiflash", "data.name": data, "resources.slow_edge": 10.0}
    policy: Any = threshold_policy(Config(**base))
    values = Forward(policy.agent.arrays)
    env, rows = StalenessEnv(base), []
    for seed in range(seeds):
        state, info = env.reset(seed=seed)
        asked, refused = [0] * env.config.federation.edges, [0] * env.config.federation.edges
        over = False
        while not over:
            edge, action = info["edge"], int(permitted(values(state), state).argmax())
            asked[edge] += 1
            refused[edge] += action == 0
            state, _, terminated, truncated, info = env.step(action)
            over = terminated or truncated
        rates = [no / max(of, 1) for no, of in zip(refused, asked, strict=True)]
        rows.append({"slow": rates[0], "others": statistics.mean(rates[1:]), "highest_other": max(rates[1:])})
    return {"seeds": rows, **{name: statistics.mean(row[name] for row in rows) for name in rows[0]}}


def sigma(data: str, episodes: int, folder: Path) -> list[dict[str, Any]]:
    """Train an agent for each pair of weights, draw their thresholds, and return them."""
    rows = []
    for label, weight in SIGMAS.items():
        weights = {"cost.compute_weight": weight, "cost.send_weight": weight}
        config = Config(method="hiflash", **{"data.name": data, **weights})
        training = Training(
            config, "auto", TrainingSettings(episodes=episodes), folder / label.replace(" ", "-")
        )
        training.run()
        best = min((check for check in training.checks if check["episode"]), key=lambda check: check["cost"])
        rows.append({"label": label, "sigma": [weight, weight], **best})
    draw_sigma(rows, folder / "sigma")
    return rows


def main() -> None:
    """Run a study and print its findings."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agent_studies", description=__doc__)
    parser.add_argument("study", choices=("edges", "slow_edge", "sigma"))
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=150)
    parser.add_argument("--folder", type=Path, default=Path("runs/sigma"))
    options = parser.parse_args()
    if options.study == "edges":
        found: Any = edges(options.data, options.seeds)
    elif options.study == "slow_edge":
        found = slow_edge(options.data, options.seeds)
    else:
        rows = sigma(options.data, options.episodes, options.folder)
        found = {row["label"]: _told(row) for row in rows}
    print(json.dumps(found, indent=1))


def _told(row: dict[str, Any]) -> dict[str, float]:
    thresholds = row["thresholds"]
    granted = [threshold for threshold in thresholds if threshold >= 0]
    return {
        "mean_granted_threshold": statistics.mean(granted),
        "mean_action": statistics.mean(thresholds),
        "refused": 1 - len(granted) / len(thresholds),
        "parallelism": row["parallelism"],
        "cost": row["cost"],
    }


def _costs(data: str, settings: dict[str, Any], seeds: int) -> list[float]:
    base = Config(method="hiflash", **{"data.name": data, "stop.communications": 2000, **settings})
    surrogate, (dataset, spec) = load_surrogate("auto", base), outline(base)
    return [
        rehearse(base.with_settings({"seed": seed}), dataset, spec, surrogate, number).total_cost
        for seed in range(seeds)
        for number in range(3)
    ]


if __name__ == "__main__":
    main()
