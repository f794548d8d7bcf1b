"""Answers SIGINT and SIGTERM at any time: with an exception at once, or in a run's loop with a checkpoint.

Light: the command line imports this before anything else, so that imports can be interrupted too.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from hiflash.errors import HiFlashError

__all__ = ["EXIT_CODE", "Stopped", "answered", "new_pause", "say_at_the_end"]

EXIT_CODE = 130  # what a shell reports for a command that was interrupted
LIMIT_S = 4.0  # from the signal to giving up on a checkpoint
LAST_S = 0.7  # from there to the end of the process, whatever it is doing
SOON_S = 0.02  # from an exception that was lost to the next one
BOTH = (signal.SIGINT, signal.SIGTERM)
SHOW_CURSOR = b"\x1b[?25h"  # a live view hides it


class Stopped(KeyboardInterrupt):
    """A signal came where nobody asks for one: in set-up, or in a step that takes too long."""


class _Answer:
    """What a process does about signals.

    Before the first call of `pause` a signal raises `Stopped` where the program is. After it the signal
    waits for the next call, and raises if none comes in time. A second Ctrl-C does not wait.
    """

    def __init__(self, limit_s: float, last_words: str) -> None:
        self.limit_s = limit_s
        self.last_words: Callable[[], str] = lambda: last_words
        self.asked = self.polled = self.overdue = self.over = False

    def pause(self) -> bool:
        """Return whether somebody asked to stop."""
        self.polled = True
        return self.asked

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Answer a signal."""
        again, self.asked = self.asked, True
        if not again:
            # Not `threading.Thread`: what was interrupted may hold one of its locks.
            _thread.start_new_thread(self._watch, ())
        if self.over:
            return
        if self.overdue or not self.polled or (again and number == signal.SIGINT):
            if _importing(frame):
                self._end()
            raise Stopped

    def on_unraisable(self, usual: Callable[[Any], Any], problem: Any) -> None:
        """Let a `Stopped` that was raised in a callback, and got lost there, come up again outside of it."""
        if isinstance(problem.exc_value, Stopped):
            _thread.start_new_thread(self._raise_after, (SOON_S,))
        else:
            usual(problem)

    def _watch(self) -> None:
        """See to it that the answer comes in time, also while the main thread computes or waits."""
        self._raise_after(self.limit_s)
        time.sleep(LAST_S)
        if not self.over:
            self._end()

    def _raise_after(self, seconds: float) -> None:
        time.sleep(seconds)
        if not self.over:
            self.overdue = True
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    def _end(self) -> None:
        """End the process as it is."""
        if sys.stderr is not None and sys.stderr.isatty():
            os.write(2, SHOW_CURSOR)
        os.write(2, self.last_words().encode())
        os._exit(EXIT_CODE)


_answer: _Answer | None = None


@contextmanager
def answered(limit_s: float = LIMIT_S, last_words: str = "stopped\n") -> Iterator[None]:
    """Answer signals inside of this block; only a main thread gets any.

    `last_words` are for a process that has to be ended in the middle of something.
    """
    global _answer
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    answer, before, hook = _Answer(limit_s, last_words), _answer, sys.unraisablehook
    handlers = {number: signal.getsignal(number) for number in BOTH}
    try:
        _answer = answer
        sys.unraisablehook = lambda problem: answer.on_unraisable(hook, problem)
        for number in BOTH:
            signal.signal(number, answer.on_signal)
        yield
    except Exception as error:
        # What is interrupted may fail in a way of its own, such as a library that turns errors into others.
        if answer.asked and not isinstance(error, HiFlashError):
            raise Stopped from error
        raise
    finally:
        answer.over = True
        for number, handler in handlers.items():
            signal.signal(number, handler)
        sys.unraisablehook = hook
        _answer = before


def new_pause() -> Callable[[], bool]:
    """Return what a loop asks whether to stop; until it does so, a signal raises `Stopped`."""
    if _answer is None:
        return lambda: False
    _answer.polled = False
    return _answer.pause


def say_at_the_end(last_words: Callable[[], str]) -> None:
    """Have this said by a process that has to be ended in the middle of something."""
    if _answer is not None:
        _answer.last_words = last_words


def _importing(frame: FrameType | None) -> bool:
    """Return whether a module is being imported: torch's, interrupted by an exception, prints its stack."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False
