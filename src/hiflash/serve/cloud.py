"""The service of the cloud: calls become inputs of the kernel, and its effects become answers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass

from hiflash.errors import ProtocolError
from hiflash.messages import Cancel, CloudEffect, Grant, Proceed, Refuse, Verdict, Welcome
from hiflash.serve import wire_pb2 as pb
from hiflash.serve.calls import CallError, Peer, Service
from hiflash.serve.crash import crash_point
from hiflash.serve.journal import Input
from hiflash.serve.kernel import Kernel, Store
from hiflash.serve.live import CLOUD, Finished, LiveCloud
from hiflash.serve.wire import PROTOCOL, Wire

__all__ = ["CloudService", "Terms"]

NODE_CALLS = ("Hello", "CheckIn", "Upload", "Progress", "Abandon", "Beat")
MOST_WAIT_S = 60.0


@dataclass(frozen=True)
class Terms:
    """The terms of a federation that every node must agree to, and the cloud's patience."""

    config_digest: str
    spec_digest: str
    lease_s: float
    start_edges: int
    flat: bool = False
    snapshot_rows: int = 1_000
    rate: float = 200.0
    burst: float = 400.0


class CloudService(Service):
    """Answers edges (or the clients of a flat method) through the kernel.

    Until `start_edges` have checked in, nobody is answered: the first round of a synchronous method draws
    from all of them. A lease whose edge has been silent for `lease_s` expires.
    """

    def __init__(self, live: LiveCloud, wire: Wire, terms: Terms, store: Store) -> None:
        node = "client" if terms.flat else "edge"
        roles = {node: NODE_CALLS, **({} if terms.flat else {"client": ("Place",)})}
        super().__init__(roles, rate=terms.rate, burst=terms.burst)
        self.live = live
        self.wire = wire
        self.terms = terms
        self.kernel = Kernel(live, store, self._tell, snapshot_rows=terms.snapshot_rows)
        self.over = asyncio.Event()  # set once the end is durable; `live.finished` may not be yet
        self.addresses: dict[int, str] = {}
        self.seen: dict[int, float] = {}
        self._early: dict[int, bytes] | None = {}  # check-ins before the start, None after it
        self._polls: dict[int, list[asyncio.Future[CloudEffect]]] = {}

    async def run(self) -> None:
        """Serve until cancelled or broken."""
        if self.kernel.number:
            self._early = None  # the run had started before this process did
        self.kernel.begin()
        if self.live.finished:
            self.over.set()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.kernel.run())
            tasks.create_task(self._watch())

    async def on_hello(self, peer: Peer, body: bytes) -> bytes:
        """Compare the terms and tell an edge its last request and its cluster."""
        said = self.wire.read(pb.Hello, body)
        self.check_node(peer, said.node)
        for name, ours, theirs in (
            ("protocol", PROTOCOL, said.protocol),
            ("configuration", self.terms.config_digest, said.config_digest),
            ("model", self.terms.spec_digest, said.spec_digest),
        ):
            if ours != theirs:
                raise CallError("mismatch", f"the cloud has {name} {ours}, this node {theirs}")
        self._alive(peer.number)
        self.addresses[peer.number] = said.address
        request_id = 0
        if not self.over.is_set():
            for effect in await self._submit("hello", peer.number, b""):
                if isinstance(effect, Welcome):
                    request_id = effect.request_id
        clients = self.live.clusters[peer.number]
        return pb.Welcome(
            request_id=request_id, clients=clients, finished=self.over.is_set()
        ).SerializeToString()

    async def on_checkin(self, peer: Peer, body: bytes) -> bytes:
        """Answer a check-in with a grant or a refusal; an empty answer means: ask again."""
        arrived = asyncio.get_running_loop().time()
        asked = self.wire.read(pb.CheckIn, body)
        self.check_node(peer, asked.node)
        self._alive(peer.number)
        effects = await self._ask(peer.number, body)
        answer = _to(effects, peer.number, asked.request_id)
        if not answer and not self.over.is_set():
            answer = await self._poll(peer.number, asked.request_id, asked.wait_s)
        return self._answered(answer, arrived)

    async def on_upload(self, peer: Peer, body: bytes) -> bytes:
        """Answer an upload with its verdict, and with the next grant if there is one already."""
        return await self._last("upload", pb.Upload, peer, body)

    async def on_abandon(self, peer: Peer, body: bytes) -> bytes:
        """Take a lease back."""
        return await self._last("abandon", pb.Lease, peer, body)

    async def on_progress(self, peer: Peer, body: bytes) -> bytes:
        """Tell an edge between two rounds whether to go on."""
        return await self._last("progress", pb.Lease, peer, body)

    async def on_beat(self, peer: Peer, body: bytes) -> bytes:
        """Take note that an edge is alive."""
        beat = self.wire.read(pb.Beat, body)
        self.check_node(peer, beat.node)
        self._alive(peer.number)
        self.addresses[peer.number] = beat.address
        return pb.Alive(finished=self.over.is_set()).SerializeToString()

    async def on_place(self, peer: Peer, body: bytes) -> bytes:
        """Tell a client its edge, and where that is once the edge has said so."""
        self.check_node(peer, self.wire.read(pb.Place, body).node)
        for edge, cluster in enumerate(self.live.clusters):
            if peer.number in cluster:
                return pb.Placed(
                    edge=edge, address=self.addresses.get(edge, ""), finished=self.over.is_set()
                ).SerializeToString()
        raise CallError("denied", f"client {peer.number} belongs to no edge")

    async def _last(
        self, kind: str, message: type[pb.Upload] | type[pb.Lease], peer: Peer, body: bytes
    ) -> bytes:
        arrived = asyncio.get_running_loop().time()
        sent = self.wire.read(message, body)
        self.check_node(peer, sent.node)
        self._alive(peer.number)
        effects = await self._submit(kind, peer.number, body)
        request_id = sent.check_in.request_id if sent.HasField("check_in") else 0
        return self._answered(_to(effects, peer.number, request_id), arrived)

    def _answered(self, answers: Sequence[CloudEffect], arrived: float) -> bytes:
        crash_point("answer.before")
        held_s = asyncio.get_running_loop().time() - arrived
        return self.wire.answer(answers, finished=self.over.is_set(), held_s=held_s)  # type: ignore[arg-type]  # `_to` keeps answers only

    async def _submit(self, kind: str, node: int, body: bytes) -> list[CloudEffect]:
        try:
            return await self.kernel.enqueue(Input(kind, node, body))
        except Finished:
            return []
        except ProtocolError as error:
            raise CallError("denied", str(error)) from None
        except ConnectionError as error:
            raise CallError("unavailable", str(error)) from None

    async def _ask(self, node: int, body: bytes) -> list[CloudEffect]:
        """Submit a check-in; before the start, keep it until all others are there."""
        if self._early is None:
            return await self._submit("check_in", node, body)
        self._early[node] = body
        if len(self._early) >= self.terms.start_edges:
            early, self._early = self._early, None
            # In one batch and by number: the first round must not depend on who came first.
            for number in sorted(early):
                self.kernel.enqueue(Input("check_in", number, early[number])).add_done_callback(_ignored)
        return []

    async def _poll(self, node: int, request_id: int, wait_s: float) -> list[CloudEffect]:
        """Wait for the answer to a check-in that the cloud does not answer at once."""
        news: asyncio.Future[CloudEffect] = asyncio.get_running_loop().create_future()
        waiting = self._polls.setdefault(node, [])
        waiting.append(news)
        try:
            wait_s = min(wait_s, MOST_WAIT_S) if wait_s > 0 else 0.0
            return _to([await asyncio.wait_for(news, wait_s)], node, request_id)
        except TimeoutError:
            return []
        finally:
            waiting.remove(news)

    def _tell(self, effects: Sequence[CloudEffect]) -> None:
        """Wake whoever waits for these effects."""
        for effect in effects:
            if isinstance(effect, Grant | Refuse):
                for news in self._polls.get(effect.edge, ()):
                    if not news.done():
                        news.set_result(effect)
        if self.live.finished:
            self.over.set()

    def _alive(self, node: int) -> None:
        self.seen[node] = asyncio.get_running_loop().time()

    async def _watch(self) -> None:
        """Let the leases of silent edges expire."""
        if self.terms.lease_s == math.inf:
            return
        loop = asyncio.get_running_loop()
        started = loop.time()
        while True:
            await asyncio.sleep(self.terms.lease_s / 8)
            for lease in list(self.live.cloud.leases.values()):
                if loop.time() - self.seen.get(lease.edge, started) >= self.terms.lease_s:
                    await self._submit("expire", CLOUD, str(lease.lease_id).encode())


def _to(effects: Sequence[CloudEffect], node: int, request_id: int) -> list[CloudEffect]:
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


def _ignored(done: asyncio.Future[list[CloudEffect]]) -> None:
    """Read a result that nobody waits for, so that asyncio does not complain."""
    if not done.cancelled():
        done.exception()
