"""Methods are recipes: each is a set of settings over the same parts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["METHODS", "Recipe"]


@dataclass(frozen=True)
class Recipe:
    """The description of a method, and its settings that differ from the defaults."""

    about: str
    settings: dict[str, Any] = field(default_factory=dict)


_FLAT = {"federation.flat": True, "edge.edge_rounds": [1]}
_FEDAVG = {**_FLAT, "cloud.schedule": "sync", "cloud.participants": 10}

METHODS: dict[str, Recipe] = {
    "centralized": Recipe(
        "all data in one place: the level that federated training is measured against",
        {"cloud.schedule": "centralized"},
    ),
    "fedavg": Recipe("10 clients a round, averaged by samples (McMahan et al. 2017)", _FEDAVG),
    "fedprox": Recipe(
        "FedAvg with a proximal term that keeps clients near the global model (Li et al. 2020)",
        {**_FEDAVG, "client.mu": 0.01},
    ),
    "scaffold": Recipe(
        "FedAvg with control variates against the drift of clients (Karimireddy et al. 2020)",
        {**_FEDAVG, "client.algorithm": "scaffold"},
    ),
    "feddyn": Recipe(
        "FedAvg with a linear term that each client learns (Acar et al. 2021)",
        {**_FEDAVG, "client.algorithm": "feddyn"},
    ),
    "fednova": Recipe(
        "FedAvg that averages changes per step, for clients with unequal steps (Wang et al. 2020)",
        {**_FEDAVG, "client.algorithm": "fednova"},
    ),
    "fedavgm": Recipe(
        "FedAvg with momentum in the cloud (Hsu et al. 2019)",
        {**_FEDAVG, "cloud.optimizer": "momentum", "cloud.momentum": 0.9},
    ),
    "fedadam": Recipe(
        "FedAvg whose cloud takes Adam's steps (Reddi et al. 2021)",
        {**_FEDAVG, "cloud.optimizer": "adam"},
    ),
    "fedyogi": Recipe(
        "FedAvg whose cloud takes Yogi's steps (Reddi et al. 2021)",
        {**_FEDAVG, "cloud.optimizer": "yogi"},
    ),
    "tifl": Recipe(
        "FedAvg whose rounds draw one of 5 latency tiers, by accuracy and credits (Chai et al. 2020)",
        {**_FEDAVG, "cloud.selection": "tiers"},
    ),
    "fedasync": Recipe(
        "10 clients at a time, each mixed in as it arrives (Xie et al. 2019)",
        {**_FLAT, "cloud.concurrency": 10, "cloud.weighting": "polynomial", "client.mu": 0.005},
    ),
    "fedbuff": Recipe(
        "10 clients at a time, mixed in groups of 10 (Nguyen et al. 2022)",
        {
            **_FLAT,
            "cloud.concurrency": 10,
            "cloud.mixing": "buffer",
            "cloud.weighting": "polynomial",
            "cloud.alpha": 1.0,
        },
    ),
    "fedat": Recipe(
        "synchronous latency tiers, asynchronous between them, slow ones weighted up (Chai et al. 2021)",
        {
            "federation.association": "latency",
            "edge.edge_rounds": [1],
            "cloud.mixing": "tiers",
            "client.mu": 0.4,
        },
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
    "hiflash": Recipe(
        "HiFL with heterogeneity-aware association and learned thresholds (Wu et al.)",
        {"federation.association": "heterogeneity", "cloud.threshold": "agent"},
    ),
    "hidelta": Recipe(
        "aware clusters, half of each a round, their changes added with momentum (ours, not the paper's)",
        {
            "federation.association": "heterogeneity",
            "edge.clients_per_round": 0.5,
            "cloud.mixing": "delta",
            "cloud.alpha": 1.0,
            "cloud.momentum": 0.5,
            "cloud.threshold": 2,
        },
    ),
}
