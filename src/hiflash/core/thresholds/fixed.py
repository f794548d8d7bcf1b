"""One threshold for everyone."""

from __future__ import annotations

import math

from hiflash.core.registry import Part
from hiflash.core.state import Stateful
from hiflash.core.thresholds.policy import CloudView

__all__ = ["PARTS", "FixedThreshold"]


class FixedThreshold(Stateful):
    """The same threshold for every edge; infinity means no limit."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold

    def decide(self, view: CloudView, edge: int) -> float:
        """Return the threshold."""
        return self.threshold


PARTS = (
    Part(
        "inf", "no limit: an upload may be as stale as it happens to be", lambda _: FixedThreshold(math.inf)
    ),
)
