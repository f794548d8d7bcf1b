"""An event loop on virtual time: waiting takes no time, and one seed gives one order of events."""

import asyncio
import selectors


class Stuck(Exception):  # noqa: N818  # a state, not an error of ours
    """Nothing is left to do and nobody will wake anybody."""


class _NoFiles(selectors.SelectSelector):
    """A selector without files: instead of waiting it moves the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout=None):
        if timeout is None:
            raise Stuck
        self.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs callbacks as asyncio does, on a clock that jumps to the next one."""

    def __init__(self) -> None:
        self._virtual = _NoFiles()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


def run_virtually(main):
    """Return the result of a coroutine on a virtual clock."""
    loop = VirtualLoop()
    loop.set_exception_handler(lambda loop, context: None)  # killed processes leave unread errors behind
    try:
        return loop.run_until_complete(main)
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
