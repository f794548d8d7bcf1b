"""Trackers: observers with a name, which write a run's rows for other programs.

May import what report may import.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from hiflash.errors import ConfigError
from hiflash.report.trackers.csv_files import CsvTracker
from hiflash.report.trackers.tensorboard import TensorBoardTracker
from hiflash.sim.observer import Observer

__all__ = ["TRACKERS", "make_tracker", "register_tracker"]

TRACKERS: dict[str, Callable[[], Observer]] = {"csv": CsvTracker, "tensorboard": TensorBoardTracker}
"""What makes each tracker, by the name that `--track` and `observers` take."""

_BUILT_IN = frozenset(TRACKERS)


def make_tracker(name: str) -> Observer:
    """Return a new tracker by name, or raise an error if there is none or its package is missing."""
    if name not in TRACKERS:
        raise ConfigError(f"unknown tracker {name[:60]!r}; there are {', '.join(TRACKERS)}")
    made = TRACKERS[name]()
    if not isinstance(made, Observer):
        raise ConfigError(
            f"what makes the tracker {name} must return a hiflash.Observer, got {type(made).__name__}"
        )
    return made


def register_tracker(name: str, make: Callable[[], Observer], *, replace: bool = False) -> None:
    """Let `observers=[name]` and `--track name` use the observer that `make` returns.

    It is made once per command and follows all its runs. `replace` allows a name that you registered before.
    """
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name):
        raise ConfigError(f"the name of a tracker has lower-case letters, digits and _, got {name!r}")
    if not callable(make):
        raise ConfigError(f"the tracker {name} needs a function that makes one, got {type(make).__name__}")
    if name in _BUILT_IN:
        raise ConfigError(f"{name} is a tracker of HiFlash; choose another name")
    if name in TRACKERS and not replace:
        raise ConfigError(
            f"{name} is a tracker that you registered already; "
            "choose another name, or give replace=True to replace it"
        )
    TRACKERS[name] = make
