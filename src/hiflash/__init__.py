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
    from hiflash.core.algorithms.algorithm import ClientAlgorithm, CloudSide, MeanOfStates, Traffic
    from hiflash.core.optimizers import CloudOptimizer
    from hiflash.core.registry import Key, Part
    from hiflash.core.state import Stateful
    from hiflash.data import Dataset
    from hiflash.sim.result import Result
    from hiflash.study.calibrate import Calibration, calibrate
    from hiflash.study.compare import Comparison, compare
    from hiflash.study.run import resume, run
    from hiflash.study.sweep import Sweep, sweep

__version__ = "0.1.0"
__all__ = [
    "Calibration",
    "ClientAlgorithm",
    "CloudOptimizer",
    "CloudSide",
    "Comparison",
    "Config",
    "Dataset",
    "Key",
    "MeanOfStates",
    "Part",
    "Result",
    "Stateful",
    "Sweep",
    "Traffic",
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
    "ClientAlgorithm": "hiflash.core.algorithms.algorithm",
    "CloudOptimizer": "hiflash.core.optimizers",
    "CloudSide": "hiflash.core.algorithms.algorithm",
    "Comparison": "hiflash.study.compare",
    "Config": "hiflash.config",
    "Dataset": "hiflash.data",
    "Key": "hiflash.core.registry",
    "MeanOfStates": "hiflash.core.algorithms.algorithm",
    "Part": "hiflash.core.registry",
    "Result": "hiflash.sim.result",
    "Stateful": "hiflash.core.state",
    "Sweep": "hiflash.study.sweep",
    "Traffic": "hiflash.core.compression",
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
