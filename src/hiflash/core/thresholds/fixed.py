"""One threshold for everyone."""

from __future__ import annotations

from hiflash.core.state import Stateful
from hiflash.core.thresholds.policy import CloudView

__all__ = ["FixedThreshold"]


class FixedThreshold(Stateful):
    """The same threshold for everyone; infinity never binds."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold

    def decide(self, view: CloudView, edge: int) -> float:
        """Return the threshold."""
        return self.threshold
