"""Expected times of a lease: moving averages over past edge rounds and WAN transfers."""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["EdgeCosts", "Estimates"]

OBSERVED = 0.2  # weight of the newest observation in the moving averages


class EdgeCosts(NamedTuple):
    """Expected seconds of an edge's next lease.

    `compute_s` and `send_s` are sums over clients; `down_s`, `train_s` and `up_s` follow one another.
    """

    compute_s: float
    send_s: float
    down_s: float
    train_s: float
    up_s: float

    @property
    def valid(self) -> bool:
        """Return whether every number is a finite duration."""
        return min(self) >= 0 and sum(self) < math.inf

    @property
    def duration_s(self) -> float:
        """Return the seconds from grant to arrival at the cloud."""
        return self.down_s + self.train_s + self.up_s


class Estimates(NamedTuple):
    """Moving averages of the times of one edge round and of the WAN; they begin as the declared means."""

    compute_s: float
    send_s: float
    round_s: float
    down_s: float
    up_s: float

    def observe_round(self, compute_s: float, send_s: float, round_s: float) -> Estimates:
        """Return the estimates after an edge round that took so long."""
        return Estimates(
            _average(self.compute_s, compute_s),
            _average(self.send_s, send_s),
            _average(self.round_s, round_s),
            self.down_s,
            self.up_s,
        )

    def observe_down(self, seconds: float) -> Estimates:
        """Return the estimates after a download that took so long."""
        down_s = _average(self.down_s, seconds)
        return Estimates(self.compute_s, self.send_s, self.round_s, down_s, self.up_s)

    def observe_up(self, seconds: float) -> Estimates:
        """Return the estimates after an upload that took so long."""
        up_s = _average(self.up_s, seconds)
        return Estimates(self.compute_s, self.send_s, self.round_s, self.down_s, up_s)

    def of_cluster(self, declared: Estimates) -> Estimates:
        """Return the declared means of a new cluster, with the WAN's averages kept."""
        return Estimates(
            declared.compute_s, declared.send_s, declared.round_s, down_s=self.down_s, up_s=self.up_s
        )

    def costs(self, rounds: int) -> EdgeCosts:
        """Return the expected costs of a lease with this number of edge rounds."""
        return EdgeCosts(
            compute_s=rounds * self.compute_s,
            send_s=rounds * self.send_s,
            down_s=self.down_s,
            train_s=rounds * self.round_s,
            up_s=self.up_s,
        )


def _average(so_far: float, observed: float) -> float:
    return (1 - OBSERVED) * so_far + OBSERVED * observed
