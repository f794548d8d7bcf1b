"""Training on pooled data in one place: the reference for federated training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hiflash.core.edge import Workload
from hiflash.core.state import Stateful
from hiflash.messages import ClientTask, Weights
from hiflash.train.task import Trainer

__all__ = ["Centralized"]

STEPS_AT_ONCE = 100


class Centralized(Stateful):
    """An `Engine` without a federation: no communication, no clients, no virtual time."""

    def __init__(
        self,
        weights: Weights,
        workload: Workload,
        trainer: Trainer,
        *,
        steps: int,
        seed: int,
        log: Callable[[float, str, Mapping[str, Any]], None],
    ) -> None:
        self.weights = weights
        self.workload = workload
        self.trainer = trainer
        self.steps = steps
        self.seed = seed
        self.log = log
        self.taken = 0
        self.version = 0

    STATE = ("weights", "taken", "version")

    @property
    def clusters(self) -> list[list[int]]:
        """Return an empty list: there are no edges."""
        return []

    @property
    def kept(self) -> Mapping[int, Weights]:
        """Return nothing: there are no clients."""
        return {}

    def start(self) -> None:
        """Do nothing: there are no first events."""

    def step(self) -> None:
        """Take the next hundred steps, or fewer where the learning rate changes or the end is near."""
        until_decay = self.workload.lr_decay_steps - self.taken % self.workload.lr_decay_steps
        count = min(STEPS_AT_ONCE, until_decay, self.steps - self.taken)
        task = ClientTask(0, self.taken, count, self.workload.rate(self.taken), self.weights, self.seed)
        (result,) = self.trainer.train([task])
        self.weights = result.weights
        self.taken += count
        self.version += 1
        self.log(0.0, "train", {"steps": self.taken, "loss": result.loss})

    def evaluations_due(self, every: int) -> int:
        """Return the number of evaluations due so far: one per hundred steps."""
        return self.taken // STEPS_AT_ONCE

    def used(self) -> dict[str, float]:
        """Return the share of each budget that is used up."""
        return {f"{self.steps:,} steps": self.taken / self.steps}

    def totals(self) -> dict[str, Any]:
        """Return the coordinates of an evaluation."""
        nothing = ("communications", "client_steps", "wan_bytes", "lan_bytes")
        costs = ("virtual_s", "compute_cost", "send_cost", "total_cost")
        return dict.fromkeys(nothing, 0) | dict.fromkeys(costs, 0.0)

    def spent(self) -> dict[str, Any]:
        """Return no privacy ledger: all data are in one place."""
        return {}

    def edges_ms(self) -> dict[str, list[float]]:
        """Return empty lists: there are no edges."""
        return {"latency_per_edge_ms": [], "waiting_per_edge_ms": []}

    def figures(self) -> dict[str, Any]:
        """Return the other figures of a result."""
        counts = (
            "client_uploads", "wasted_client_steps", "wan_bytes_up", "wan_bytes_down", "lan_bytes_up",
            "lan_bytes_down", "refused", "waited", "cancelled", "discarded", "rejected", "abandoned",
        )  # fmt: skip
        return dict.fromkeys(counts, 0) | {
            "staleness": {"mean": 0.0, "max": 0, "histogram": {}},
            "thresholds": {},
            "rejections": {},
            "grants_per_edge": [],
            "applied_per_edge": [],
            "client_metrics": {},
            "response_latency_ms": 0.0,
            "waiting_ms": 0.0,
        }
