"""Processes forked from one that has imported torch: started, signalled and waited for by their id."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Child", "adopt_orphans", "children_left", "fork", "in_child", "wait_until"]

LOOK_S = 0.01
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


@dataclass
class Child:
    """A process that this one forked; `code` is None while it lives, and negative after a signal."""

    name: str
    pid: int
    log: Path
    code: int | None = None

    @property
    def alive(self) -> bool:
        if self.code is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            if found:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.alive:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it and wait until it is gone; a stopped one goes on, to end."""
        self.signal(signal.SIGKILL)
        self.wait(10.0)

    def wait(self, seconds: float) -> int:
        """Return its exit code; raise if it lives on."""
        wait_until(lambda: not self.alive, seconds, f"{self.name} to end")
        return self.code if self.code is not None else 0

    def said(self) -> str:
        """Return what it has written."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""


def fork(
    name: str, work: Callable[[], Any], log: Path, *, environment: Mapping[str, str] | None = None
) -> Child:
    """Return a process that does some work; it ends when this process does."""
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return Child(name, pid, log)
    code = 1
    try:
        _die_with(parent)
        os.environ.update(environment or {})
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(out, 1)
        os.dup2(out, 2)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)
        work()
        code = 0
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def in_child(work: Callable[[], Any], seconds: float) -> Any:
    """Return what some work gives in a process of its own: JSON passes between the two."""
    with tempfile.TemporaryDirectory() as folder:
        answer, log = Path(folder) / "answer.json", Path(folder) / "log"
        child = fork("a child", lambda: answer.write_text(json.dumps(work())), log)
        try:
            if child.wait(seconds):
                raise RuntimeError(child.said().strip() or f"ended with {child.code}")
        finally:
            child.kill()
        return json.loads(answer.read_text())


def wait_until(happened: Callable[[], Any], seconds: float, what: str) -> float:
    """Wait for something and return the seconds that it took; raise after `seconds`."""
    begun = time.monotonic()
    while not happened():
        if time.monotonic() - begun > seconds:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(LOOK_S)
    return time.monotonic() - begun


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent ends: none can get lost."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def children_left(grace_s: float = 2.0) -> list[int]:
    """Return the ids of children that still live after a while; those that have ended are reaped."""
    until = time.monotonic() + grace_s
    while True:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        left = [pid for pid in _processes() if _parent_of(pid) == os.getpid()]
        if not left or time.monotonic() > until:
            return left
        time.sleep(LOOK_S)


def _die_with(parent: int) -> None:
    """Have the kernel end this process when its parent ends."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended already
        os._exit(1)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _parent_of(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None
