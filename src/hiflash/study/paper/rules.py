"""The claims of every item by name; `bounds` has those of the theory study."""

from __future__ import annotations

from typing import Any

from hiflash.study.paper.accuracy_rules import accuracy_claims
from hiflash.study.paper.claims import Claim
from hiflash.study.paper.method_rules import (
    cifar10_communications,
    epochs_communications,
    femnist_communications,
    mnist_communications,
    trade_off_claims,
)
from hiflash.study.paper.other_rules import (
    agent_claims,
    example_claims,
    lambda_claims,
    model_claims,
    weight_claims,
)
from hiflash.study.paper.parameter_rules import mixing_claims, threshold_claims
from hiflash.study.paper.reading_rules import partition_claims, sensitivity_claims
from hiflash.study.paper.run_rules import (
    cost_claims,
    edge_iid_claims,
    js_accuracy_claims,
    latency_claims,
)

__all__ = ["CLAIMS"]

THREE = ("iid", "noniid2", "noniid1")

CLAIMS: dict[str, list[Claim[Any]]] = {
    "models": model_claims(),
    "association-example": example_claims(),
    "js-lambda": lambda_claims(),
    "latency": latency_claims(),
    "thresholds": threshold_claims(),
    "edge-iid": edge_iid_claims(),
    "mixing-grid": mixing_claims(),
    "accuracy-mnist": accuracy_claims(THREE),
    "communications-mnist": mnist_communications(),
    "communications-mnist-epochs": epochs_communications(),
    "sensitivity-mnist": sensitivity_claims(),
    "partitions-mnist": partition_claims(),
    "accuracy-femnist": accuracy_claims(("writer",)),
    "communications-femnist": femnist_communications(),
    "accuracy-cifar10": accuracy_claims(THREE),
    "communications-cifar10": cifar10_communications(),
    "trade-off": trade_off_claims(),
    "accuracy-js": js_accuracy_claims(),
    "agent-thresholds": agent_claims(),
    "agent-cost": cost_claims(),
    "agent-weights": weight_claims(),
}
