"""The service of the cloud: calls become inputs of the kernel, and its effects become answers."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from hiflash.core.sync_cloud import SyncCloud
from hiflash.errors import ProtocolError
from hiflash.messages import CloudEffect, Grant, Measure, Verdict, Weights, Welcome
from hiflash.serve import wire_pb2 as pb
from hiflash.serve.calls import CallError, Peer, Service
from hiflash.serve.held_calls import HeldCalls, answers_to
from hiflash.serve.journal import Input
from hiflash.serve.kernel import Kernel, Store
from hiflash.serve.live import CLOUD, Finished, LiveCloud
from hiflash.serve.scale import scale_of
from hiflash.serve.wire import Wire
from hiflash.store.crash import crash_point

__all__ = ["CloudService", "Terms", "Tests"]

NODE_CALLS = ("Hello", "CheckIn", "Upload", "Progress", "Abandon", "Beat", "Charges")
LONGEST_ADDRESS = 255
WATCH_S = 1.0  # at most so long between two looks for silent edges


@dataclass(frozen=True)
class Terms:
    """The terms of a federation that every node must agree to, and the cloud's patience.

    Nobody is answered until `start_edges` have checked in, or `start_s` have passed since the first one.
    """

    config_digest: str
    spec_digest: str
    lease_s: float
    start_edges: int
    start_s: float = 60.0
    flat: bool = False
    snapshot_rows: int = 1_000
    rate: float = 200.0
    burst: float = 400.0
    run: str = "run"  # the name of a new run


class Tests(Protocol):
    """Tests models beside the service."""

    async def evaluate(self, weights: Weights) -> Sequence[float]:
        """Return the value of every metric on the test set, and on the validation set if there is one."""
        ...

    async def recall(self, weights: Weights) -> Sequence[float] | None:
        """Return the accuracy on each class, None if there are none."""
        ...


class CloudService(Service):
    """Answers edges (or the clients of a flat method) through the kernel.

    The first round of a synchronous method draws from all edges, so the run starts when they are there. A
    lease whose edge has been silent for `lease_s` expires.
    """

    def __init__(
        self, live: LiveCloud, wire: Wire, terms: Terms, store: Store, tests: Tests | None = None
    ) -> None:
        node = "client" if terms.flat else "edge"
        roles = {node: (*NODE_CALLS, "Place")} if terms.flat else {node: NODE_CALLS, "client": ("Place",)}
        super().__init__(roles, rate=terms.rate, burst=terms.burst)
        self.live = live
        self.wire = wire
        self.terms = terms
        self.kernel = Kernel(live, store, self._tell, snapshot_rows=terms.snapshot_rows)
        self.tests = tests
        self.over = asyncio.Event()  # set once the end is durable; `live.finished` may not be yet
        self.complete = asyncio.Event()  # set once the last evaluation is durable too
        self.addresses: dict[int, str] = {}
        self.seen: dict[int, float] = {}
        self.told: set[int] = set()  # nodes that have said that they know of the end
        self._started = False
        self._early: dict[int, bytes] = {}  # check-ins before the start
        self._first_at = math.inf  # when the first of them came
        self._held = HeldCalls()
        self._to_test = asyncio.Event()

    async def run(self) -> None:
        """Serve until `drain`, cancelled or broken."""
        self._started = self.live.scale is not None
        self.kernel.begin()
        if not self.live.run:
            begun = Input("begin", CLOUD, self.terms.run.encode())
            self.kernel.enqueue(begun).add_done_callback(_ignored)
        self._tell([])
        async with asyncio.TaskGroup() as tasks:
            others = [tasks.create_task(self._watch())]
            if self.tests is not None:
                others.append(tasks.create_task(self._test(self.tests)))
            await self.kernel.run()
            for task in others:
                task.cancel()

    def drain(self) -> None:
        """Answer what is held, take nothing more, and let `run` end once all that was taken is durable."""
        self.draining = True
        self.release()
        self.kernel.close()

    def status(self) -> dict[str, Any]:
        """Return what there is to know of the run and of its nodes."""
        live, now = self.live, asyncio.get_running_loop().time()
        record = live.record
        return {
            "started": live.scale is not None,
            "finished": live.finished,
            "version": live.version,
            **live.totals(),
            "fraction": min(1.0, max(live.used().values(), default=0.0)),
            "staleness": live.ledger.mean_staleness(),
            **({} if record is None else record.status()),
            "warnings": [] if record is None else record.signs(live.ledger.rejections),
            "wall_s": live.now,
            "leases": len(live.cloud.leases),
            "waiting": len(live.cloud.waiting) + len(self._early),
            "role": "client" if self.terms.flat else "edge",
            "nodes": [self._node(node, now) for node in range(len(live.clusters))],
            "refused_calls": dict(self.refused),
            "journal_rows": self.kernel.number,
            **({"privacy": privacy} if (privacy := live.privacy_status()) else {}),
        }

    def _node(self, node: int, now: float) -> dict[str, Any]:
        """Return the state of an edge or a flat client; `silent_s` is None if it was never heard of."""
        lease = next((lease for lease in self.live.cloud.leases.values() if lease.edge == node), None)
        seen = self.seen.get(node)
        return {
            "node": node,
            "clients": len(self.live.clusters[node]),
            "silent_s": None if seen is None else round(now - seen, 1),
            "lease": None if lease is None else lease.lease_id,
            "behind": None if lease is None else self.live.version - lease.base_version,
            "grants": self.live.ledger.grants[node],
            "applied": self.live.ledger.applied[node],
        }

    def _check_allowed(self, method: str, peer: Peer) -> None:
        super()._check_allowed(method, peer)
        if method in NODE_CALLS and peer.number >= len(self.live.clusters):
            raise CallError("denied", f"{peer.role} {peer.number} is not part of this federation")

    async def on_hello(self, peer: Peer, body: bytes) -> bytes:
        """Compare the terms and tell an edge its last request and its cluster."""
        said = self.wire.read(pb.Hello, body)
        self.check_node(peer, said.node)
        self.check_terms("the cloud", (self.terms.config_digest, self.terms.spec_digest), said)
        self._alive(peer.number)
        self.addresses[peer.number] = _address(said.address)
        request_id = 0
        if not self.over.is_set():
            for effect in await self._submit("hello", peer.number, b""):
                if isinstance(effect, Welcome):
                    request_id = effect.request_id
        return pb.Welcome(
            request_id=request_id,
            clients=self.live.clusters[peer.number],
            finished=self.over.is_set(),
            run=self.live.run,
        ).SerializeToString()

    async def on_charges(self, peer: Peer, body: bytes) -> bytes:
        """Take what an edge says of its privacy ledger."""
        self.live.check_charges(peer.number, body)  # before it enters the journal
        self._alive(peer.number)
        await self._submit("charges", peer.number, body)
        return b""

    async def on_checkin(self, peer: Peer, body: bytes) -> bytes:
        """Answer a check-in with a grant or a refusal; an empty answer means: ask again."""
        arrived = asyncio.get_running_loop().time()
        asked = self.wire.read(pb.CheckIn, body)
        asked.DiscardUnknownFields()
        body = asked.SerializeToString()  # no more than is needed goes into the journal
        self.check_node(peer, asked.node)
        self._alive(peer.number)
        # Listen before asking: the answer may come in the same batch as the question.
        with self._held.listening(peer.number) as news:
            effects = await self._ask(peer.number, body)
            answer = answers_to(effects, peer.number, asked.request_id)
            if not answer and not self.over.is_set():
                heard = await self._held.heard(news, asked.wait_s)
                answer = answers_to(heard, peer.number, asked.request_id)
        return self._answered(answer, asked.holds, arrived)

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
        self.addresses[peer.number] = _address(beat.address)
        if beat.ended and self.over.is_set():  # an answer alone may get lost, or be that of a doubled call
            self.told.add(peer.number)
        return pb.Alive(finished=self.over.is_set()).SerializeToString()

    async def on_place(self, peer: Peer, body: bytes) -> bytes:
        """Tell a client its edge, where that is if the edge has said so, and what became of its last task."""
        asked = self.wire.read(pb.Place, body)
        self.check_node(peer, asked.node)
        edge = next((edge for edge, of in enumerate(self.live.clusters) if peer.number in of), None)
        if edge is None:
            raise CallError("denied", f"client {peer.number} belongs to no edge")
        settled = 0
        if asked.lease_id:
            await self._durable(self.kernel.enqueue(None))  # an outcome that a crash could undo is none
            settled = self.live.books.outcomes.of(peer.number, (asked.lease_id, asked.round))
        return pb.Placed(
            edge=edge,
            address=self.addresses.get(edge, ""),
            finished=self.over.is_set(),
            settled=settled,
            run=self.live.run,
        ).SerializeToString()

    async def _last(
        self, kind: str, message: type[pb.Upload] | type[pb.Lease], peer: Peer, body: bytes
    ) -> bytes:
        arrived = asyncio.get_running_loop().time()
        sent = self.wire.read(message, body)
        self.check_node(peer, sent.node)
        self._alive(peer.number)
        effects = await self._submit(kind, peer.number, body)
        request_id = sent.check_in.request_id if sent.HasField("check_in") else 0
        answers = answers_to(effects, peer.number, request_id)
        self.refused["lease"] += any(
            isinstance(each, Verdict) and each.reason == "no such lease" for each in answers
        )
        return self._answered(answers, sent.check_in.holds, arrived)

    def _answered(self, answers: Sequence[CloudEffect], holds: int, arrived: float) -> bytes:
        crash_point("answer.before")
        model = (0, b"")
        for answer in answers:
            if isinstance(answer, Grant):
                lease = self.live.cloud.leases.get(answer.lease_id)
                model = self.live.models.send(answer, lease, holds)
        held_s = asyncio.get_running_loop().time() - arrived
        return self.wire.answer(answers, model=model, finished=self.over.is_set(), held_s=held_s)  # type: ignore[arg-type]  # `answers_to` keeps answers only

    async def _submit(self, kind: str, node: int, body: bytes) -> list[CloudEffect]:
        return await self._durable(self.kernel.enqueue(Input(kind, node, body)))

    @staticmethod
    async def _durable(done: asyncio.Future[list[CloudEffect]]) -> list[CloudEffect]:
        try:
            return await done
        except Finished:
            return []
        except ProtocolError as error:
            raise CallError("denied", str(error)) from None
        except ConnectionError as error:
            raise CallError("unavailable", str(error)) from None

    async def _ask(self, node: int, body: bytes) -> list[CloudEffect]:
        """Submit a check-in; before the start, keep it until all others are there."""
        if self._started:
            return await self._submit("check_in", node, body)
        self._first_at = min(self._first_at, asyncio.get_running_loop().time())
        self._early[node] = body
        if len(self._early) >= self.terms.start_edges:
            self._start()
        return []

    def _start(self) -> None:
        """Begin the run with the nodes that are there."""
        early, self._early, self._started = self._early, {}, True
        scale = scale_of([self.wire.read(pb.CheckIn, body) for body in early.values()])
        inputs = [Input("start", CLOUD, json.dumps(scale).encode())]
        # In one batch and by number: the first round must not depend on who came first.
        inputs += [Input("check_in", number, early[number]) for number in sorted(early)]
        for each in inputs:
            self.kernel.enqueue(each).add_done_callback(_ignored)

    def _tell(self, effects: Sequence[CloudEffect]) -> None:
        """Wake whoever waits for these effects."""
        self._held.tell(effects)
        live = self.live
        if live.finished and not self.over.is_set():
            self.over.set()
            self.release()
        if live.complete:
            self.complete.set()
        if live.wanted or any(isinstance(effect, Measure) for effect in effects):
            self._to_test.set()

    async def _test(self, tests: Tests) -> None:
        """Test models as the cloud asks for it; a restarted one asks again."""
        live = self.live
        while True:
            if isinstance(live.cloud, SyncCloud) and live.cloud.measuring:
                recall = await tests.recall(live.weights)
                await self._submit("measured", CLOUD, json.dumps(recall).encode())
            elif live.wanted:
                index, wanted = next(iter(live.wanted.items()))
                values = list(await tests.evaluate(wanted.weights))
                told: Mapping[str, Any] = {"index": index, "values": values}
                await self._submit("evaluated", CLOUD, json.dumps(told).encode())
            else:
                self._to_test.clear()
                await self._to_test.wait()

    def release(self) -> None:
        """Answer all calls that are held: the run is over, or this process ends."""
        self._held.release()

    def _alive(self, node: int) -> None:
        self.seen[node] = asyncio.get_running_loop().time()

    async def _watch(self) -> None:
        """Let the leases of silent edges expire, and begin a run that has waited long enough."""
        loop, started = asyncio.get_running_loop(), asyncio.get_running_loop().time()
        while True:
            await asyncio.sleep(min(self.terms.lease_s / 8, WATCH_S))
            if self._early and loop.time() - self._first_at >= self.terms.start_s:
                self._start()
            for lease in list(self.live.cloud.leases.values()):
                if loop.time() - self.seen.get(lease.edge, started) >= self.terms.lease_s:
                    await self._submit("expire", CLOUD, str(lease.lease_id).encode())


def _address(said: str) -> str:
    """Return where an edge says that it is, empty if nobody could call that."""
    return said if len(said) <= LONGEST_ADDRESS and re.fullmatch(r"[^\s/@]+:\d{1,5}", said) else ""


def _ignored(done: asyncio.Future[list[CloudEffect]]) -> None:
    """Read a result that nobody waits for, so that asyncio does not complain."""
    if not done.cancelled():
        done.exception()
