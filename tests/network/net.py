"""Processes that can be killed, and a network between them that loses, delays, doubles and reorders calls."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from hiflash.serve.calls import CallError, Peer


@dataclass
class Faults:
    """How bad the network is: shares of calls, and seconds."""

    lost: float = 0.0
    doubled: float = 0.0
    cut: float = 0.0  # refused at once, as after a reset
    delay_s: tuple[float, float] = (0.001, 0.02)
    slow: float = 0.0  # share of calls that take up to 100 x as long, which reorders them


class Process:
    """A process of a node: everything it runs dies with it."""

    def __init__(self, name: str, start: Callable[["Process"], object]) -> None:
        self.name, self.start = name, start
        self.service = None
        self.tasks: set[asyncio.Task] = set()
        self.up = False
        self.starts = 0
        self.failure: BaseException | None = None  # what ended it by itself

    def boot(self) -> None:
        self.up = True
        self.starts += 1
        self.spawn(self.start(self)).add_done_callback(self._ended)

    def _ended(self, main: asyncio.Task) -> None:
        if not main.cancelled() and main.exception() is not None:
            self.failure = main.exception()

    def spawn(self, work) -> asyncio.Task:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def kill(self) -> None:
        self.up, self.service = False, None
        for task in sorted(self.tasks, key=lambda task: task.get_name()):
            task.cancel()


class Network:
    """Carries calls between processes. One stream decides everything, in the order of the calls."""

    def __init__(self, stream: np.random.Generator, faults: Faults) -> None:
        self.stream, self.faults = stream, faults
        self.processes: dict[str, Process] = {}
        self.trace: list[tuple] = []
        self.answers: list[tuple[str, str, bytes]] = []  # caller, method, answer: what was acknowledged
        self.honest = False  # once true, no more faults

    def caller(self, peer: Peer, name: str) -> "Wires":
        return Wires(self, peer, name)

    def delay_s(self) -> float:
        low, high = self.faults.delay_s
        seconds = float(self.stream.uniform(low, high))
        slow = not self.honest and self.stream.random() < self.faults.slow
        return seconds * (float(self.stream.uniform(1, 100)) if slow else 1.0)

    def happens(self, share: float) -> bool:
        return not self.honest and bool(self.stream.random() < share)


@dataclass
class Wires:
    """The way from one node to the service of another."""

    network: Network
    peer: Peer
    name: str

    async def call(self, method: str, body: bytes, *, timeout_s: float) -> bytes:
        try:
            return await asyncio.wait_for(self._call(method, body), timeout_s)
        except TimeoutError:
            raise CallError("timeout", f"{self.name} did not answer") from None

    async def _call(self, method: str, body: bytes) -> bytes:
        net = self.network
        await asyncio.sleep(net.delay_s())
        if net.happens(net.faults.cut):
            raise CallError("unavailable", "cut")
        if net.happens(net.faults.lost):
            await asyncio.get_running_loop().create_future()  # nobody ever answers
        answer = await self._deliver(method, body)
        if net.happens(net.faults.doubled):
            process = net.processes[self.name]
            process.spawn(self._again(method, body))
        await asyncio.sleep(net.delay_s())
        if net.happens(net.faults.lost):
            await asyncio.get_running_loop().create_future()
        net.answers.append((f"{self.peer.role} {self.peer.number}", method, answer))
        return answer

    async def _deliver(self, method: str, body: bytes) -> bytes:
        net, process = self.network, self.network.processes[self.name]
        net.trace.append(
            (round(asyncio.get_running_loop().time(), 9), self.peer, self.name, method, len(body))
        )
        if not process.up or process.service is None:
            raise CallError("unavailable", f"{self.name} is down")
        work = process.spawn(process.service.serve(method, self.peer, body))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            if work.cancelled():
                raise CallError("unavailable", f"{self.name} died") from None
            raise

    async def _again(self, method: str, body: bytes) -> None:
        await asyncio.sleep(self.network.delay_s() * 20)
        with suppress(CallError):
            await self._deliver(method, body)
