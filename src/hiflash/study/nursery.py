"""A process that forks the nodes of a federation on one machine, restarts those that die, and ends them all.

Importing torch takes seconds, so nodes are forked from a process that has done so. The nursery itself is a
fork too, made before its parent starts any thread. It ends when its parent does: the pipe between them tells.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Nursery", "Work"]

Work = Callable[[], None]

END_S = 4.0  # from asking nodes to end to killing them
LOOK_S = 0.05
FAST_S = 10.0  # a node that dies sooner than this after its start ...
MOST_FAST = 4  # ... so many times in a row will not live
PR_SET_PDEATHSIG = 1


@dataclass
class _Child:
    """A node: its work, its process, and how often it has died soon after a start."""

    work: Work
    pid: int = 0
    started: float = 0.0
    fast_ends: int = 0
    done: bool = False


@dataclass
class Nursery:
    """Nodes by name, each with its work. Their output goes to `logs`, in the folder `home`.

    If the parent dies, the nursery removes `home`: nobody else would.
    """

    nodes: Mapping[str, Work]
    home: Path
    pid: int = 0
    _pipe: int = -1
    _news: int = -1
    _told: bytes = b""
    _parent: int = 0
    _children: dict[str, _Child] = field(default_factory=dict)

    @property
    def logs(self) -> Path:
        """Return the folder of the nodes' output."""
        return self.home / "logs"

    def start(self) -> None:
        """Fork the nursery; it starts all nodes."""
        self.logs.mkdir(parents=True, exist_ok=True)
        self._parent = os.getpid()
        ours, theirs = os.pipe()
        news, tell = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid:
            os.close(ours)
            os.close(tell)
            self._pipe, self._news = theirs, news
            os.set_blocking(news, False)
            return
        code = 1
        try:
            os.close(theirs)
            os.close(news)
            code = self._tend(ours, tell)
        finally:
            os._exit(code)

    def failure(self) -> str:
        """Return what a node could not survive, empty while all is well."""
        with suppress(BlockingIOError, OSError):
            while said := os.read(self._news, 4096):
                self._told += said
        return self._told.decode(errors="replace")

    @property
    def alive(self) -> bool:
        """Return whether the nursery is there."""
        if self.pid:
            found, _ = os.waitpid(self.pid, os.WNOHANG)
            self.pid = 0 if found else self.pid
        return bool(self.pid)

    def stop(self) -> None:
        """End all nodes and wait until they are gone."""
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        until = time.monotonic() + END_S + 2
        while self.alive:
            if time.monotonic() > until:
                os.kill(self.pid, signal.SIGKILL)  # its children die with it
            time.sleep(LOOK_S)
        if self._news >= 0:
            self.failure()
            os.close(self._news)
            self._news = -1

    def _tend(self, pipe: int, tell: int) -> int:
        """Keep the nodes alive until the parent closes its end of the pipe."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
        ending: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, frame: ending.append(number))
        self._children = {name: _Child(work) for name, work in self.nodes.items()}
        for name, child in self._children.items():
            self._fork(name, child)
        failed = ""
        while not ending and not failed:
            if select.select([pipe], [], [], LOOK_S)[0]:
                break
            failed = self._reap()
        if failed:
            os.write(tell, failed.encode())
        self._end()
        if os.getppid() != self._parent:
            shutil.rmtree(self.home, ignore_errors=True)
        return 0

    def _fork(self, name: str, child: _Child) -> None:
        # Held back meanwhile: a signal to a child that has no handler yet would be lost.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        child.started, child.pid = time.monotonic(), os.fork()
        if child.pid:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            return
        code = 1
        try:
            _die_with_parent()
            log = os.open(self.logs / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(log, 1)
            os.dup2(log, 2)
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            child.work()
            code = 0
        except KeyboardInterrupt:
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
        except BaseException as error:
            import traceback

            traceback.print_exc()
            code = 2
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> str:
        """Restart nodes that died; return why, if one cannot be kept alive."""
        for name, child in self._children.items():
            if child.done:
                continue
            found, status = os.waitpid(child.pid, os.WNOHANG)
            if not found:
                continue
            child.pid = 0
            if status == 0:
                child.done = True
                continue
            fast = time.monotonic() - child.started < FAST_S
            child.fast_ends = child.fast_ends + 1 if fast else 0
            if child.fast_ends >= MOST_FAST:
                child.done = True
                return f"{name} could not be kept alive: {_last_line(self.logs / f'{name}.log')}"
            self._fork(name, child)
        return ""

    def _end(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            for child in self._children.values():
                if child.pid:
                    with suppress(ProcessLookupError):
                        os.kill(child.pid, number)
            until = time.monotonic() + END_S
            while any(child.pid for child in self._children.values()) and time.monotonic() < until:
                for child in self._children.values():
                    if child.pid and os.waitpid(child.pid, os.WNOHANG)[0]:
                        child.pid = 0
                time.sleep(LOOK_S / 5)


def _die_with_parent() -> None:
    """Have the kernel end this process when its parent ends, where it can (Linux)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _last_line(log: Path) -> str:
    try:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return "no log"
    return lines[-1] if lines else "it was killed"
