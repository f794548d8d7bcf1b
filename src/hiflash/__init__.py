"""Hierarchical federated learning with asynchronous tiers and controlled staleness.

>>> from hiflash import run
>>> run(method="hifl", seed=0, trainer="none", stop={"communications": 20}).communications
20
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hiflash.config import Config
    from hiflash.config.register import register, register_method
    from hiflash.core.metrics import Metric
    from hiflash.core.registry import Key, Part
    from hiflash.core.state import Stateful
    from hiflash.data import Dataset
    from hiflash.sim.result import Result
    from hiflash.study.calibrate import Calibration, calibrate
    from hiflash.study.compare import Comparison, compare
    from hiflash.study.run import resume, run
    from hiflash.study.sweep import Sweep, sweep
    from hiflash.train.tasks import Classification, NextToken, Regression, Task

__version__ = "0.1.0"
__all__ = [
    "Calibration",
    "Classification",
    "Comparison",
    "Config",
    "Dataset",
    "Key",
    "Metric",
    "NextToken",
    "Part",
    "Regression",
    "Result",
    "Stateful",
    "Sweep",
    "Task",
    "calibrate",
    "compare",
    "register",
    "register_method",
    "resume",
    "run",
    "sweep",
]

_HOMES = {
    "Calibration": "hiflash.study.calibrate",
    "Classification": "hiflash.train.tasks",
    "Comparison": "hiflash.study.compare",
    "Config": "hiflash.config",
    "Dataset": "hiflash.data",
    "Key": "hiflash.core.registry",
    "Metric": "hiflash.core.metrics",
    "NextToken": "hiflash.train.tasks",
    "Part": "hiflash.core.registry",
    "Regression": "hiflash.train.tasks",
    "Result": "hiflash.sim.result",
    "Stateful": "hiflash.core.state",
    "Sweep": "hiflash.study.sweep",
    "Task": "hiflash.train.tasks",
    "calibrate": "hiflash.study.calibrate",
    "compare": "hiflash.study.compare",
    "register": "hiflash.config.register",
    "register_method": "hiflash.config.register",
    "resume": "hiflash.study.run",
    "run": "hiflash.study.run",
    "sweep": "hiflash.study.sweep",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `hiflash --help` must not wait for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'hiflash' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
