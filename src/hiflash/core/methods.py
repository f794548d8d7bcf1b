"""Methods are recipes: each names the parts it is made of, as settings of the same engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["METHODS", "Recipe"]


@dataclass(frozen=True)
class Recipe:
    """What a method is, and the settings in which it differs from the defaults."""

    about: str
    settings: dict[str, Any] = field(default_factory=dict)


_FEDAVG = {
    "federation.flat": True,
    "edge.edge_rounds": [1],
    "cloud.schedule": "sync",
    "cloud.participants": 10,
}

METHODS: dict[str, Recipe] = {
    "centralized": Recipe(
        "all data in one place: the level that federated training is measured against",
        {"cloud.schedule": "centralized"},
    ),
    "fedavg": Recipe("10 clients a round, averaged by samples (McMahan et al. 2017)", _FEDAVG),
    "fedprox": Recipe(
        "FedAvg whose clients are held near the global model (Li et al. 2020)",
        {**_FEDAVG, "client.mu": 0.01},
    ),
    "hierfavg": Recipe(
        "edges and cloud both synchronous, 2 edges x 5 clients a round (Liu et al. 2020)",
        {
            "edge.edge_rounds": [2],
            "edge.clients_per_round": 5,
            "cloud.schedule": "sync",
            "cloud.participants": 2,
        },
    ),
    "hifl": Recipe("synchronous edges, asynchronous cloud, random thresholds (Wu et al.)"),
}
