"""Crash points by name: the environment variable HIFLASH_CRASH ends a process at one of them, for tests.

`HIFLASH_CRASH=journal.committed:3` ends it the third time it passes that point, without any clean-up.
"""

from __future__ import annotations

import os
from collections import Counter

__all__ = ["EDGE_POINTS", "POINTS", "crash_point"]

POINTS = (
    "journal.before",
    "journal.inserted",  # the rows are in sqlite's transaction, which is not committed
    "journal.committed",
    "answer.before",
    "snapshot.before",
    "checkpoint.written",  # under a temporary name
    "checkpoint.renamed",  # its folder is not synced yet
    "snapshot.written",
    "snapshot.forgotten",
    "result.written",
    "result.renamed",
)
"""Those of a cloud, in the order in which it passes them."""
EDGE_POINTS = ("charge.saved",)
"""Those of an edge: its privacy ledger is on disk, and the sum that it charged for is not opened yet."""

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
