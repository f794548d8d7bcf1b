"""How agents repeat calls: every call has a deadline, pauses grow and are spread at random."""

from __future__ import annotations

import asyncio
import logging
import math

import numpy as np

from hiflash.serve.calls import Caller, CallError

__all__ = ["Patience"]

TELL_S = 60.0  # how long to try before somebody hears of it


class Patience:
    """Repeats a call until it is answered. Calls are idempotent, so a lost answer does no harm.

    The pause doubles from `first_s` to `most_s`, and is spread by half in either direction: a thousand nodes
    that lost their cloud must not come back at the same moment.
    """

    def __init__(
        self,
        stream: np.random.Generator,
        *,
        timeout_s: float = 30.0,
        first_s: float = 0.1,
        most_s: float = 5.0,
    ) -> None:
        self.stream = stream
        self.timeout_s = timeout_s
        self.first_s, self.most_s = first_s, most_s

    async def call(
        self, caller: Caller, method: str, body: bytes, *, hold_s: float = 0.0, tries: float = math.inf
    ) -> bytes:
        """Return the answer to a call that the service may hold for `hold_s`; raise if it is refused."""
        pause_s, tried, said = self.first_s, 0, asyncio.get_running_loop().time()
        while True:
            try:
                return await caller.call(method, body, timeout_s=self.timeout_s + hold_s)
            except CallError as error:
                tried += 1
                if error.final or tried >= tries:
                    raise
                if asyncio.get_running_loop().time() - said > TELL_S:
                    said = asyncio.get_running_loop().time()
                    logging.getLogger("hiflash").warning(
                        "%s has no answer yet (%s); trying on", method, error
                    )
                await self.rest(max(pause_s, error.retry_after_s))
                pause_s = min(2 * pause_s, self.most_s)

    async def rest(self, seconds: float) -> None:
        """Sleep about so long."""
        await asyncio.sleep(seconds * self.stream.uniform(0.5, 1.5))
