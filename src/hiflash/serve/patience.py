"""How agents repeat calls: every call has a deadline, pauses grow and are spread at random."""

from __future__ import annotations

import asyncio

import numpy as np

from hiflash.serve.calls import Caller, CallError

__all__ = ["Patience"]


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

    async def call(self, caller: Caller, method: str, body: bytes, *, hold_s: float = 0.0) -> bytes:
        """Return the answer to a call that the service may hold for `hold_s`; raise if it is refused."""
        pause_s = self.first_s
        while True:
            try:
                return await caller.call(method, body, timeout_s=self.timeout_s + hold_s)
            except CallError as error:
                if error.final:
                    raise
                await self.rest(max(pause_s, error.retry_after_s))
                pause_s = min(2 * pause_s, self.most_s)

    async def rest(self, seconds: float) -> None:
        """Sleep about so long."""
        await asyncio.sleep(seconds * self.stream.uniform(0.5, 1.5))
