"""Calls that are watched, recorded, lost, delayed, doubled and reordered on their way over real gRPC."""

from __future__ import annotations

import asyncio
import json
import os
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hiflash.serve import wire_pb2 as pb
from hiflash.serve.calls import CallError
from hiflash.serve.channels import Channels

__all__ = ["Acknowledged", "Faulty", "Recorded", "Shares", "Tapped", "read_recorded"]

GIVES_UP_S = 0.2  # stands for the deadline of a call whose answer never comes: a run has many of them
LATE_S = (0.2, 0.8)
DELAY_S = (0.0, 0.4)
ANSWERED = ("CheckIn", "Upload", "Progress", "Abandon")

Tap = Callable[[Any, str], Any]


@dataclass(frozen=True)
class Tapped:
    """The ways of a node, with something on each of them: `tap` gets a caller and the role it calls."""

    channels: Channels
    tap: Tap

    @property
    def credentials(self) -> Any:
        return self.channels.credentials

    @property
    def denied(self) -> Any:
        return self.channels.denied

    def to(self, address: str, role: str, number: int, most_bytes: int) -> Any:
        return self.tap(self.channels.to(address, role, number, most_bytes), role)


@dataclass
class _Around:
    """A caller around another one."""

    caller: Any

    async def close(self) -> None:
        await self.caller.close()


@dataclass
class Acknowledged(_Around):
    """Writes down what the cloud has acknowledged: one line for every verdict and every grant."""

    node: int
    file: Path

    async def call(self, method: str, body: bytes, *, timeout_s: float) -> bytes:
        answer: bytes = await self.caller.call(method, body, timeout_s=timeout_s)
        if method in ANSWERED:
            for line in self._lines(pb.Answer.FromString(answer)):
                _append(
                    self.file, json.dumps({"t": time.monotonic(), "edge": self.node, **line}).encode() + b"\n"
                )
        return answer

    @staticmethod
    def _lines(told: pb.Answer) -> Iterator[dict[str, Any]]:
        if told.HasField("verdict"):
            said = told.verdict
            verdict = [said.status, said.staleness, said.version, said.reason]
            yield {"kind": "verdict", "lease": said.lease_id, "verdict": verdict}
        if told.HasField("grant"):
            yield {"kind": "grant", "lease": told.grant.lease_id, "base": told.grant.base_version}


@dataclass
class Recorded(_Around):
    """Keeps every call that was answered, to make it again."""

    file: Path

    async def call(self, method: str, body: bytes, *, timeout_s: float) -> bytes:
        answer: bytes = await self.caller.call(method, body, timeout_s=timeout_s)
        name = method.encode()
        _append(self.file, struct.pack("<II", len(name), len(body)) + name + body)
        return answer


def read_recorded(file: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the calls in a file of `Recorded`."""
    data, at = file.read_bytes(), 0
    while at < len(data):
        name, body = struct.unpack_from("<II", data, at)
        at += 8
        yield data[at : at + name].decode(), data[at + name : at + name + body]
        at += name + body


@dataclass(frozen=True)
class Shares:
    """The shares of calls that get lost, come late, come twice, or come after calls made later."""

    lost: float = 0.0
    delayed: float = 0.0
    doubled: float = 0.0
    reordered: float = 0.0


@dataclass
class Faulty(_Around):
    """A bad way to a service. `methods` names the calls that suffer, all if it is empty.

    A lost call never arrives, or its answer does not. After a reordered one the caller has given up and goes
    on; the call arrives later than those that it makes meanwhile.
    """

    stream: np.random.Generator
    shares: Shares
    counts: Counter[str]
    methods: tuple[str, ...] = ()
    later: set[asyncio.Task[None]] = field(default_factory=set)

    async def call(self, method: str, body: bytes, *, timeout_s: float) -> bytes:
        if self.methods and method not in self.methods:
            return await self._sent(method, body, timeout_s)
        self.counts["calls"] += self.shares != Shares()
        lost, doubled = self._happens("lost"), self._happens("doubled")
        reordered, delayed = self._happens("reordered"), self._happens("delayed")
        if delayed:
            await asyncio.sleep(self.stream.uniform(*DELAY_S))
        if lost and self.stream.random() < 0.5:
            await self._give_up()
        if reordered:
            self._spawn(method, body, timeout_s, self.stream.uniform(*LATE_S))
            await self._give_up()
        if doubled:
            self._spawn(method, body, timeout_s, self.stream.uniform(0.0, LATE_S[0]))
        answer = await self._sent(method, body, timeout_s)
        if lost:
            await self._give_up()
        return answer

    async def close(self) -> None:
        for task in self.later:
            task.cancel()
        await super().close()

    async def _sent(self, method: str, body: bytes, timeout_s: float) -> bytes:
        answer: bytes = await self.caller.call(method, body, timeout_s=timeout_s)
        return answer

    def _happens(self, fault: str) -> bool:
        happens = bool(self.stream.random() < getattr(self.shares, fault))
        self.counts[fault] += happens
        return happens

    async def _give_up(self) -> None:
        await asyncio.sleep(GIVES_UP_S)
        raise CallError("timeout", "a lost call")

    def _spawn(self, method: str, body: bytes, timeout_s: float, after_s: float) -> None:
        async def later() -> None:
            await asyncio.sleep(after_s)
            with suppress(CallError):
                await self._sent(method, body, timeout_s)

        task = asyncio.get_running_loop().create_task(later())
        self.later.add(task)
        task.add_done_callback(self.later.discard)


def _append(file: Path, data: bytes) -> None:
    """Append in one write: a process that is killed leaves whole entries."""
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(handle, data)
    finally:
        os.close(handle)
