"""Two ways to charge for the work of leases: by the lease, or by the slot as in the paper (decision 61)."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

from hiflash.core.state import record
from hiflash.sim.world import Timeline

__all__ = ["ACCOUNTINGS", "Accounting", "ByLease", "BySlot", "OpenLease"]


@record
class OpenLease(NamedTuple):
    """An unsettled lease: its slots, its expected computing, and its work so far.

    `first_slot` has the grant, `last_slot` the expected arrival of the upload. `compute_s` is the expected
    computing of all `rounds`. `computed_s` and `sent_s` have one entry for each
    finished round.
    """

    edge: int
    first_slot: int
    last_slot: int
    compute_s: float
    rounds: int = 1
    computed_s: tuple[float, ...] = ()
    sent_s: tuple[float, ...] = ()
    steps_done: int = 0
    in_flight: bool = True
    staleness: int = 0


class Accounting(Protocol):
    """What a lease is charged, in client seconds of computing and of sending."""

    def first_slot(self, slot: int, charged_to: int) -> int:
        """Return the first slot that a lease granted in `slot` pays for; its edge paid up to `charged_to`."""
        ...

    def running_s(self, lease: OpenLease, slot: int) -> float:
        """Return the computing of a running lease up to the end of a slot."""
        ...

    def ended_s(self, lease: OpenLease, slot: int) -> tuple[float, float]:
        """Return computing and sending of a lease that ended in a slot."""
        ...

    def expected_s(self, lease: OpenLease, timeline: Timeline, slot: int) -> tuple[float, float]:
        """Return computing and sending of a running lease whose upload will arrive in a slot."""
        ...


class ByLease:
    """A lease pays for the work of its H edge rounds.

    Computing is spread evenly over the slots from the grant to the expected arrival, and corrected to the
    finished rounds when the lease ends. Sending is charged at the end.
    """

    def first_slot(self, slot: int, charged_to: int) -> int:
        """Return the slot of the grant."""
        return slot

    def running_s(self, lease: OpenLease, slot: int) -> float:
        """Return the share of the expected computing that belongs to the slots so far."""
        share = (slot - lease.first_slot + 1) / (lease.last_slot - lease.first_slot + 1)
        return lease.compute_s * min(1.0, share)

    def ended_s(self, lease: OpenLease, slot: int) -> tuple[float, float]:
        """Return the work of the finished rounds."""
        return math.fsum(lease.computed_s), math.fsum(lease.sent_s)

    def expected_s(self, lease: OpenLease, timeline: Timeline, slot: int) -> tuple[float, float]:
        """Return the work of all rounds."""
        return timeline.total_compute_s, timeline.send_s(len(timeline.rounds))


class BySlot:
    """An edge pays for the computing of one edge round in every slot in which it runs, as in the paper.

    It pays for the sending of one edge round when its lease ends, and for neither H times (equations 21 to
    25). In a slot with the end of one lease and the beginning of the next, an edge pays for computing once.
    """

    def first_slot(self, slot: int, charged_to: int) -> int:
        """Return the slot of the grant, or the next one if the edge has paid for it."""
        return max(slot, charged_to + 1)

    def running_s(self, lease: OpenLease, slot: int) -> float:
        """Return the computing of a mean round, times the slots so far."""
        return lease.compute_s / lease.rounds * max(0, slot - lease.first_slot + 1)  # Eq. 21, 22

    def ended_s(self, lease: OpenLease, slot: int) -> tuple[float, float]:
        """Return the computing of all slots, and the sending of a mean finished round."""
        sent_s = math.fsum(lease.sent_s) / len(lease.sent_s) if lease.sent_s else 0.0  # Eq. 23
        return self.running_s(lease, slot), sent_s

    def expected_s(self, lease: OpenLease, timeline: Timeline, slot: int) -> tuple[float, float]:
        """Return the computing until the arrival, and the sending of a mean round."""
        rounds = len(timeline.rounds)
        return self.running_s(lease, slot), timeline.send_s(rounds) / rounds


ACCOUNTINGS: dict[str, Accounting] = {"lease": ByLease(), "paper": BySlot()}
