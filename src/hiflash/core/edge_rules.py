"""What an edge is told about its clients and its rounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from hiflash.core.algorithms.algorithm import usable_extra
from hiflash.messages import Extra

__all__ = ["EdgePrivacy", "EdgeRules", "Workload", "Workloads", "taking_part"]


@dataclass(frozen=True, slots=True)
class Workload:
    """A client's share in every task: its samples, its steps, and its learning rate by its own steps."""

    examples: int
    steps: int
    lr: float
    lr_decay: float
    lr_decay_steps: int

    def rate(self, taken: int) -> float:
        """Return the learning rate of a task that begins after `taken` steps; a task keeps its rate.

        >>> round(Workload(600, 3, 0.01, 0.99, 100).rate(250), 8)
        0.009801
        """
        return float(self.lr * self.lr_decay ** (taken // self.lr_decay_steps))


class Workloads(Protocol):
    """The workloads of all clients, inside and outside clusters; all edges share them."""

    def __getitem__(self, client: int, /) -> Workload:
        """Return the workload of a client."""
        ...


@dataclass(frozen=True, slots=True)
class EdgeRules:
    """How the edges of a federation run their rounds.

    `least` is the smallest number of models that the aggregation rule accepts. `gathers` says what becomes of
    the arrays that clients send beside their models, and `usable` whether they are the right ones. Without
    `trains` a round has no assignments: only its timing counts. `clients_per_round` is a number of clients, a
    share of the cluster below 1, or None for all (`taking_part`). `opens` says how many clients of a round
    must stay so that its secure sum can be opened, None without secure sums.
    """

    edge_rounds: tuple[int, ...]
    seed: int
    redraw: str = "setup"
    clients_per_round: float | None = None
    deadline_s: float = math.inf
    quorum: float = 1.0
    least: int = 1
    asks_between_rounds: bool = False
    trains: bool = True
    gathers: str = "sum"
    usable: Callable[[Extra], bool] = usable_extra
    opens: Callable[[int], int] | None = None


@dataclass(frozen=True, slots=True)
class EdgePrivacy:
    """What an edge heeds if its clients have a privacy budget.

    Its uploads claim the fixed number `weight` instead of samples, unless it is None. `left` returns the edge
    rounds that clients can still pay for, if somebody counts them. `draw` takes lease, round and clients, and
    returns those that join the round; without it a fixed number of them does.
    """

    weight: int | None
    left: Callable[[Sequence[int]], Sequence[int]] | None = None
    draw: Callable[[int, int, Sequence[int]], tuple[int, ...]] | None = None


def taking_part(wanted: float | None, clients: int) -> int:
    """Return how many of a cluster's clients take part in an edge round; a share is rounded up.

    >>> [taking_part(0.5, clients) for clients in (1, 2, 5, 10)], taking_part(5, 3), taking_part(None, 3)
    ([1, 1, 3, 5], 3, 3)
    """
    if wanted is None:
        return clients
    if wanted < 1:
        wanted = math.ceil(wanted * clients - 1e-9)  # 0.28 * 25 is a bit over 7
    return min(int(wanted), clients)
