"""Starts a process that knows nothing but this package: no user's script, no Ctrl-C of its own."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import ModuleType

__all__ = ["on_its_own"]


@contextmanager
def on_its_own() -> Iterator[None]:
    """Let a process that is spawned in this block import no script and leave Ctrl-C to its parent.

    `multiprocessing` would have it import the user's script, and a script without a guard
    (`if __name__ == "__main__":`) would then begin all over again in there. A Ctrl-C on a terminal reaches
    all processes; the parent passes it on as SIGTERM once it is in order.
    """
    script = sys.modules["__main__"]
    resource_tracker.ensure_running()  # else the first process starts it, and that unblocks the signal
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        sys.modules["__main__"] = ModuleType("__main__")
        yield
    finally:
        sys.modules["__main__"] = script
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
