"""Calls between nodes: their interface, their errors, and what every service checks first.

A transport carries bytes and proves who sends them. Services and agents know only this interface, so the
same classes run over gRPC and over the simulated network of the tests.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from hiflash.serve import wire_pb2 as pb
from hiflash.serve.wire import PROTOCOL, Malformed

__all__ = ["CallError", "Caller", "Code", "Handler", "Peer", "Service", "TokenBucket", "printable"]

Code = Literal["unavailable", "timeout", "denied", "invalid", "busy", "mismatch", "stranger"]


class Peer(NamedTuple):
    """Who calls, as the transport has proved it: a role (cloud, edge, client) and a number."""

    role: str
    number: int


class CallError(Exception):
    """A call that failed. After `unavailable`, `timeout` and `busy` the caller may try again.

    After `stranger` it must say hello first.
    """

    def __init__(self, code: Code, detail: str, retry_after_s: float = 0.0) -> None:
        super().__init__(f"{code}: {detail}")
        self.code, self.detail, self.retry_after_s = code, detail, retry_after_s

    @property
    def final(self) -> bool:
        """Return whether the same call would fail again."""
        return self.code in ("denied", "invalid", "mismatch", "stranger")


class Caller(Protocol):
    """The way from an agent to one service."""

    async def call(self, method: str, body: bytes, *, timeout_s: float) -> bytes:
        """Return the answer, or raise `CallError` after at most `timeout_s`."""
        ...


Handler = Callable[[Peer, bytes], Awaitable[bytes]]


@dataclass(slots=True)
class TokenBucket:
    """A rate limit: `rate` calls per second, and at most `burst` at once."""

    rate: float
    burst: float
    level: float = field(init=False)
    filled_at: float = 0.0

    def __post_init__(self) -> None:
        """Start full."""
        self.level = self.burst

    def take(self, now: float) -> float:
        """Take one token and return 0, or return the seconds until there is one."""
        self.level = min(self.burst, self.level + (now - self.filled_at) * self.rate)
        self.filled_at = now
        if self.level >= 1:
            self.level -= 1
            return 0.0
        return (1 - self.level) / self.rate


def printable(text: str, most: int = 1000) -> str:
    r"""Return what another node has said as one line for people: what is not printable is escaped.

    >>> print(printable("x\nERROR"))
    x\nERROR
    """
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text[:most])


class Service:
    """The base of cloud and edge services: who may call what, how often, and what is counted.

    `roles` names the methods that each role may call. A refused call changes nothing.
    """

    def __init__(self, roles: Mapping[str, tuple[str, ...]], *, rate: float, burst: float) -> None:
        self.roles = roles
        self.rate, self.burst = rate, burst
        self.refused: Counter[str] = Counter()
        self.draining = False  # it stops soon: callers come back to the next one
        self._buckets: dict[Peer, TokenBucket] = {}

    async def serve(self, method: str, peer: Peer, body: bytes) -> bytes:
        """Answer a call, or raise `CallError`."""
        try:
            self._check_allowed(method, peer)
            handler: Handler = getattr(self, f"on_{method.lower()}")
            return await handler(peer, body)
        except Malformed as error:
            self.refused["invalid"] += 1
            raise CallError("invalid", str(error)) from None
        except CallError as error:
            self.refused[error.code] += 1
            raise

    def _check_allowed(self, method: str, peer: Peer) -> None:
        if self.draining:
            raise CallError("unavailable", "draining")
        if method not in self.roles.get(peer.role, ()):
            raise CallError("denied", f"a {peer.role} may not call {method}")
        bucket = self._buckets.setdefault(peer, TokenBucket(self.rate, self.burst))
        if wait_s := bucket.take(asyncio.get_running_loop().time()):
            raise CallError("busy", "too many calls", wait_s)

    @staticmethod
    def check_terms(who: str, ours: tuple[str, str], said: pb.Hello) -> None:
        """Raise unless a node has the protocol, the configuration and the model of this service."""
        config, spec = ours
        for name, here, there in (
            ("protocol", PROTOCOL, said.protocol),
            ("configuration", config, said.config_digest),
            ("model", spec, said.spec_digest),
        ):
            if here != there:
                raise CallError("mismatch", f"{who} has {name} {here}, this node {there}")

    @staticmethod
    def check_node(peer: Peer, node: int) -> None:
        """Raise if a call claims to come from another node than its certificate says."""
        if node != peer.number:
            raise CallError("denied", f"{peer.role} {peer.number} calls in the name of {node}")
