"""The simulator's own events, and the types of its callbacks: the log and the recall of classes."""

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
"""Takes a model and returns its accuracy on the test samples of each class."""


@record
@dataclass(slots=True)
class RoundEnd:
    """The end of an edge round in virtual time; `model` is the promise of its edge model."""

    edge: int
    lease_id: int
    index: int
    model: Promise | None


SimulatorEvent: TypeAlias = Slot | CheckIn | Change | Grant | RoundEnd | Upload | Abandon
