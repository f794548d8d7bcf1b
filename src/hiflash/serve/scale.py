"""The units of costs of a deployed run, from what its first nodes expect."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hiflash.serve import wire_pb2 as pb
from hiflash.serve.live import Scale

__all__ = ["scale_of"]

SLOTS = 10  # in a mean lease: what an agent measures time in


def scale_of(asked: Sequence[pb.CheckIn]) -> Scale:
    """Return the units of costs from what the first edges expect: the median lease, with two rounds.

    The median, because one edge must not decide alone.
    """
    leases = []
    for each in asked:
        costs, rounds = each.costs, max(each.rounds, 1)
        lease_s = costs.down_s + 2 * costs.train_s / rounds + costs.up_s
        leases.append((lease_s / SLOTS, 2 * costs.compute_s / rounds, 2 * costs.send_s / rounds))
    return Scale(*(_positive(sorted(column)[len(column) // 2]) for column in zip(*leases, strict=True)))


def _positive(seconds: float) -> float:
    """Return a duration that can be divided by, whatever a node has declared."""
    return seconds if 1e-6 <= seconds < math.inf else 1e-6
