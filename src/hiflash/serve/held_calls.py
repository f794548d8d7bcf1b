"""Check-ins that a cloud cannot answer at once: they wait for a grant, a refusal, or the end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hiflash.messages import Cancel, CloudEffect, Grant, Proceed, Refuse, Verdict

__all__ = ["HeldCalls", "answers_to"]

MOST_WAIT_S = 60.0

News = asyncio.Future[CloudEffect | None]


class HeldCalls:
    """The calls that wait, by node."""

    def __init__(self) -> None:
        self._news: dict[int, list[News]] = {}

    @contextmanager
    def listening(self, node: int) -> Iterator[News]:
        """Yield a future for the next grant or refusal of a node; it gets None when there will be none."""
        news: News = asyncio.get_running_loop().create_future()
        waiting = self._news.setdefault(node, [])
        for older in waiting:  # one held call for each node is enough
            if not older.done():
                older.set_result(None)
        waiting.append(news)
        try:
            yield news
        finally:
            waiting.remove(news)

    def tell(self, effects: Sequence[CloudEffect]) -> None:
        """Wake whoever waits for these effects."""
        for effect in effects:
            if isinstance(effect, Grant | Refuse):
                for news in self._news.get(effect.edge, ()):
                    if not news.done():
                        news.set_result(effect)

    def release(self) -> None:
        """Let all calls end without an answer."""
        for waiting in self._news.values():
            for news in waiting:
                if not news.done():
                    news.set_result(None)

    @staticmethod
    async def heard(news: News, wait_s: float) -> list[CloudEffect]:
        """Wait for the answer to a check-in that the cloud does not answer at once."""
        try:
            told = await asyncio.wait_for(news, min(wait_s, MOST_WAIT_S) if wait_s > 0 else 0.0)
        except TimeoutError:
            return []
        return [] if told is None else [told]


def answers_to(effects: Sequence[CloudEffect], node: int, request_id: int) -> list[CloudEffect]:
    """Return the answers to one call of a node among all effects."""
    found: list[CloudEffect] = []
    for effect in effects:
        match effect:
            case Grant() | Refuse():
                if effect.edge == node and effect.request_id == request_id:
                    found.append(effect)
            case Verdict() | Proceed() | Cancel():
                if effect.edge == node:
                    found.append(effect)
            case _:
                pass
    return found
