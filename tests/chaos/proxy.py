"""A TCP proxy on loopback that keeps what it carries, delays it, cuts connections and swallows bytes."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

__all__ = ["Proxy", "Rough", "send_again"]

CHUNK = 65_536
Keep = Callable[[int, bytes], None]


@dataclass(frozen=True)
class Rough:
    """What happens to connections: least and most seconds of delay of a chunk, and chances at each chunk."""

    stream: np.random.Generator
    delay_s: tuple[float, float] = (0.0, 0.0)
    cut: float = 0.0
    swallow: float = 0.0  # from then on nothing gets through, and nobody is told
    most_swallows: int = 1


@dataclass
class Proxy:
    """Carries connections to `address`. `keep` gets what callers send, by connection.

    While it is `silent` it swallows everything.
    """

    address: str
    rough: Rough | None = None
    keep: Keep | None = None
    silent: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    _server: asyncio.Server | None = None
    _open: set[asyncio.Task[None]] = field(default_factory=set)

    async def __aenter__(self) -> str:
        """Listen and return the address."""
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        """End it with all its connections."""
        if self._server is not None:
            self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._open.add(task)
            task.add_done_callback(self._open.discard)
        self.counts["connections"] += 1
        number = self.counts["connections"]
        host, _, port = self.address.rpartition(":")
        ends = [writer]
        try:
            there, to = await asyncio.open_connection(host, int(port))
            ends.append(to)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, to, number))
                group.create_task(self._pump(there, writer, None))
        except* (OSError, _Cut, asyncio.CancelledError):  # a cancelled one is ours: the proxy ends
            pass
        finally:
            for end in ends:
                end.transport.abort()

    async def _pump(self, here: asyncio.StreamReader, to: asyncio.StreamWriter, number: int | None) -> None:
        silent = False
        while data := await here.read(CHUNK):
            if number is not None and self.keep is not None:
                self.keep(number, data)
            if self.rough is not None:
                silent = silent or self._swallows()
                if self.rough.stream.random() < self.rough.cut:
                    self.counts["cut"] += 1
                    raise _Cut
                await asyncio.sleep(self.rough.stream.uniform(*self.rough.delay_s))
            if not (silent or self.silent):
                to.write(data)
                await to.drain()
        raise _Cut  # one end has closed: so does the other

    def _swallows(self) -> bool:
        rough = self.rough
        if rough is None or self.counts["swallowed"] >= rough.most_swallows:
            return False
        happens = bool(rough.stream.random() < rough.swallow)
        self.counts["swallowed"] += happens
        return happens


class _Cut(Exception):  # noqa: N818  # the end of a connection, not an error
    """A connection that ends."""


def send_again(address: str, file: Path, seconds: float = 2.0) -> tuple[int, bool]:
    """Send recorded bytes to a service; return how many came back, and whether it hung up."""
    host, _, port = address.rpartition(":")
    came = 0
    with socket.create_connection((host, int(port)), timeout=seconds) as connection:
        try:
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(file.read_bytes())
            while data := connection.recv(CHUNK):
                came += len(data)
        except ConnectionResetError:
            return came, True
        except TimeoutError:
            return came, False
    return came, True
