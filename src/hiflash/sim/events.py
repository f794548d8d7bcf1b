"""What happens in a simulation beside the messages between cloud and edges, and who is told of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from hiflash.core.state import record
from hiflash.messages import Abandon, CheckIn, Grant, Promise, Slot, Upload, Weights
from hiflash.sim.mobility import Change

__all__ = ["Log", "Recall", "RoundEnd", "SimulatorEvent"]

Log: TypeAlias = Callable[[float, str, Mapping[str, Any]], None]
"""Takes virtual time, kind and contents of an event row."""

Recall: TypeAlias = Callable[[Weights], tuple[float, ...]]
"""From a model to the share of each class's test samples that it gets right."""


@record
@dataclass(slots=True)
class RoundEnd:
    """An edge round is over in virtual time; `model` is the promise of what its clients made."""

    edge: int
    lease_id: int
    index: int
    model: Promise | None


SimulatorEvent: TypeAlias = Slot | CheckIn | Change | Grant | RoundEnd | Upload | Abandon
