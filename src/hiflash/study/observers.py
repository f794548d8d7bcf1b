"""Observers of a study's runs, given as objects or by the names of trackers."""

from __future__ import annotations

from collections.abc import Sequence

from hiflash.report.trackers import make_tracker
from hiflash.sim.observer import Audience, Observer
from hiflash.study.cells import listed

__all__ = ["Observers", "audience_of"]

Observers = Sequence[Observer | str]


def audience_of(observers: Observers | None) -> Audience:
    """Return the audience of these observers; makes the trackers among them, so that errors come first."""
    given = observers or ()
    listed("observers", [each for each in given if isinstance(each, str)])
    return Audience([make_tracker(each) if isinstance(each, str) else each for each in given])
