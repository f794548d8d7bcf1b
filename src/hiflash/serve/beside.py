"""Work in a thread, so that a node answers calls meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

__all__ = ["beside"]

Made = TypeVar("Made")


async def beside(work: Callable[[], Made]) -> Made:
    """Return what some work gives, from a thread of its own.

    Not from an executor: a process that is told to stop would wait for the end of the task.
    """
    loop = asyncio.get_running_loop()
    made: asyncio.Future[Made] = loop.create_future()

    def tell(settle: Callable[[Any], None], outcome: Any) -> None:
        if not made.done():
            settle(outcome)

    def run() -> None:
        try:
            outcome = (made.set_result, work())
        except BaseException as error:  # whoever waits must learn of every error
            outcome = (made.set_exception, error)  # type: ignore[assignment]
        with suppress(RuntimeError):  # the loop is gone
            loop.call_soon_threadsafe(tell, *outcome)

    threading.Thread(target=run, name="hiflash-beside", daemon=True).start()
    return await made
