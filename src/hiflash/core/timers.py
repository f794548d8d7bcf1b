"""When the cloud gets a `Slot`: at slot boundaries (at once if there are no slots) and at deadlines."""

from __future__ import annotations

import math

from hiflash.core.cloud import Cloud
from hiflash.core.state import Stateful
from hiflash.messages import Slot

__all__ = ["SlotTimer"]


class SlotTimer(Stateful):
    """Schedules the next `Slot` of a cloud with check-ins to answer.

    With `slot_s` it is due at the next slot boundary, at most once per boundary; without, it is due now.
    """

    STATE = ("last_slot", "slot_due", "deadline")

    def __init__(self, slot_s: float | None) -> None:
        self.slot_s = slot_s
        self.last_slot = -1
        self.slot_due = False
        self.deadline = math.inf

    def schedule(self, cloud: Cloud, now: float) -> list[Slot]:
        """Return the new slots to deliver, each at its own `now`."""
        due = []
        if not self.slot_due and cloud.answerable:
            self.slot_due = True
            index, time = self.last_slot + 1, now
            if self.slot_s is not None:
                index = max(math.ceil(now / self.slot_s), index)
                time = max(now, index * self.slot_s)
            due.append(Slot(index, time))
        deadline = cloud.deadline
        if deadline != math.inf and deadline != self.deadline:
            self.deadline = deadline
            due.append(Slot(self.last_slot + 1, deadline))
        return due

    def passed(self, slot: Slot) -> None:
        """Record that a slot was delivered."""
        self.slot_due, self.last_slot = False, max(self.last_slot, slot.index)
