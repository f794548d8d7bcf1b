"""Crash points by name: the environment variable HIFLASH_CRASH ends a process at one of them, for tests.

`HIFLASH_CRASH=journal.committed:3` ends it the third time it passes that point, without any clean-up.
"""

from __future__ import annotations

import os
from collections import Counter

__all__ = ["POINTS", "crash_point"]

POINTS = (
    "journal.before",
    "journal.committed",
    "snapshot.before",
    "snapshot.written",
    "snapshot.forgotten",
    "answer.before",
)

_passed: Counter[str] = Counter()


def crash_point(name: str) -> None:
    """End the process here if HIFLASH_CRASH says so."""
    wanted = os.environ.get("HIFLASH_CRASH")
    if not wanted:
        return
    point, _, count = wanted.partition(":")
    if point == name:
        _passed[name] += 1
        if _passed[name] == int(count or 1):
            os._exit(86)
