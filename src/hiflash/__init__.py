"""Hierarchical federated learning with asynchronous tiers and controlled staleness.

>>> from hiflash import run
>>> result = run(method="hifl", seed=0)  # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hiflash.calibration import Calibration, calibrate
    from hiflash.comparison import Comparison, compare
    from hiflash.config import Config
    from hiflash.data import Dataset
    from hiflash.experiment import resume, run
    from hiflash.parts import register_method, register_mixing, register_threshold
    from hiflash.result import Result
    from hiflash.sweeps import Sweep, sweep

__version__ = "0.1.0"
__all__ = [
    "Calibration",
    "Comparison",
    "Config",
    "Dataset",
    "Result",
    "Sweep",
    "calibrate",
    "compare",
    "register_method",
    "register_mixing",
    "register_threshold",
    "resume",
    "run",
    "sweep",
]

_HOMES = {
    "Calibration": "hiflash.calibration",
    "Comparison": "hiflash.comparison",
    "Config": "hiflash.config",
    "Dataset": "hiflash.data",
    "Result": "hiflash.result",
    "Sweep": "hiflash.sweeps",
    "calibrate": "hiflash.calibration",
    "compare": "hiflash.comparison",
    "register_method": "hiflash.parts",
    "register_mixing": "hiflash.parts",
    "register_threshold": "hiflash.parts",
    "resume": "hiflash.experiment",
    "run": "hiflash.experiment",
    "sweep": "hiflash.sweeps",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `hiflash --help` must not wait for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'hiflash' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
