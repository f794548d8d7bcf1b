"""A simulation as others see it: its parts, and what can be read of them at any time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hiflash.core.async_cloud import AsyncCloud
from hiflash.core.cloud import Cloud
from hiflash.core.edge import Edge
from hiflash.core.state import Stateful
from hiflash.core.timers import SlotTimer
from hiflash.messages import Slot, Weights
from hiflash.sim.events import Log, Recall, SimulatorEvent
from hiflash.sim.ledger import Ledger
from hiflash.sim.mobility import Mobility
from hiflash.sim.private import Spending
from hiflash.sim.sent_histograms import SentHistograms
from hiflash.sim.training import NoTraining
from hiflash.sim.world import Timeline, World

__all__ = ["Readings"]


class Readings(Stateful):
    """The parts of a simulation, and everything that others may read of it while it runs.

    `limits` are the run's budgets by name: communications, client_steps, virtual_s. `slot_s` is None if the
    cloud answers check-ins at once.
    """

    STATE = ("now", "heap", "counter", "timelines")

    def __init__(
        self,
        cloud: Cloud,
        edges: Sequence[Edge],
        world: World,
        ledger: Ledger,
        training: NoTraining,
        *,
        slot_s: float | None,
        limits: Mapping[str, float],
        log: Log,
        recall: Recall | None = None,
        mobility: Mobility | None = None,
        spending: Spending | None = None,
        histograms: SentHistograms | None = None,
    ) -> None:
        self.cloud = cloud
        self.edges = list(edges)
        self.world = world
        self.ledger = ledger
        self.training = training
        self.timer = SlotTimer(slot_s)
        self.limits = limits
        self._budgets = {name: f"{limit:,} {name.replace('_', ' ')}" for name, limit in limits.items()}
        self.recall = recall
        self.log = log
        self.mobility = mobility
        self.spending, self.histograms = spending, histograms
        # Here and not in `start`: readers of `clusters` must not see absent clients before the start either.
        self._opening = [] if mobility is None else mobility.start()
        self.now = 0.0
        self.heap: list[tuple[float, int, SimulatorEvent]] = []
        self.counter = 0
        self.timelines: dict[int, Timeline] = {}  # by lease, until its upload arrives
        self._metrics: Mapping[str, float] = {}  # of the upload that is arriving

    @property
    def weights(self) -> Weights:
        """Return the global model."""
        return self.cloud.weights

    @property
    def version(self) -> int:
        """Return the number of updates of the global model."""
        return self.cloud.version

    def evaluations_due(self, every: int) -> int:
        """Return the number of evaluations due so far."""
        return self.ledger.communications // every

    def used(self) -> dict[str, float]:
        """Return the used share of each budget. The next event's time counts: none runs past the end."""
        spent = {
            "communications": self.ledger.communications,
            "client_steps": self.ledger.client_steps,
            "virtual_s": self.heap[0][0] if self.heap else math.inf,
        }
        used = {self._budgets[name]: spent[name] / limit for name, limit in self.limits.items()}
        if self.spending is not None and self.spending.plan.budget.epsilon is not None:
            over = not self.heap or (self.spending.nobody_left and not self.cloud.leases)
            used[self.spending.plan.budget.text] = 1.0 if over else min(0.999, self.spending.used())
        return used

    def totals(self) -> dict[str, Any]:
        """Return the coordinates of an evaluation."""
        return self.ledger.totals(self.now)

    @property
    def kept(self) -> Mapping[int, Weights]:
        """Return the values that clients do not share, by client."""
        return self.training.kept

    @property
    def clusters(self) -> list[list[int]]:
        """Return the clients that belong to each edge."""
        if self.mobility is not None:
            return self.mobility.clusters()
        return [list(edge.everyone) for edge in self.edges]

    def figures(self) -> dict[str, Any]:
        """Return the other figures of a result."""
        return {
            **self.ledger.figures(),
            **({} if self.mobility is None else {"mobility": self.mobility.figures(self.now)}),
            "response_latency_ms": self.world.response_latency_ms,
            "waiting_ms": self.world.waiting_ms,
        }

    def spent(self) -> dict[str, Any]:
        """Return the privacy ledger, and the histograms that clients have sent; empty without them."""
        return {
            **({} if self.spending is None else self.spending.report()),
            **({} if self.histograms is None else {"histograms": self.histograms.report()}),
        }

    def edges_ms(self) -> dict[str, list[float]]:
        """Return response latency and waiting time of every edge."""
        return {
            "latency_per_edge_ms": self.world.latency_per_edge_ms(),
            "waiting_per_edge_ms": self.world.waiting_per_edge_ms(),
        }

    def decision(self) -> tuple[int, float] | None:
        """Return the edge that the next event answers, and the time; None if it answers no edge."""
        time, _, event = self.heap[0]
        if not (isinstance(event, Slot) and isinstance(self.cloud, AsyncCloud)):
            return None
        edge = self.cloud.asked(event)
        return None if edge is None else (edge, time)
