"""The agent of an edge: it drives the core's `Edge` between the cloud above and its clients below.

An edge keeps nothing on disk. After a restart the cloud tells it its last request, and its clients tell it
their steps.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import assert_never

from hiflash.core.edge import Edge
from hiflash.messages import (
    Abandon,
    Ask,
    CheckIn,
    ClientUpdate,
    CloudAnswer,
    Deadline,
    EdgeEffect,
    Estimates,
    Grant,
    Left,
    Progress,
    Received,
    Recluster,
    Refuse,
    Round,
    Upload,
    Welcome,
)
from hiflash.serve import wire_pb2 as pb
from hiflash.serve.calls import Caller, CallError, Peer, Service
from hiflash.serve.patience import Patience
from hiflash.serve.wire import PROTOCOL, Malformed, Measured, Wire

__all__ = ["EdgeAgent", "EdgeTerms", "Member"]

CLIENT_CALLS = ("Hello", "Fetch", "Deliver", "Beat")
POLL_S = 20.0
FIRST_SEND_S = 0.05  # expected seconds of a transfer before the first one is measured


@dataclass(frozen=True)
class EdgeTerms:
    """What an edge agrees to, where its clients find it, and how patient it is."""

    number: int
    config_digest: str
    spec_digest: str
    address: str = ""
    client_s: float = 10.0  # a client that is silent so long has left
    start_s: float = 60.0  # how long to wait for the whole cluster at the start
    beat_s: float = 2.0
    rate: float = 200.0
    burst: float = 400.0


@dataclass(slots=True)
class Member:
    """A client that has said hello."""

    examples: int
    steps: int
    compute_s: float
    seen: float


@dataclass(slots=True)
class _OpenRound:
    """The round under way: tasks by client, and what was measured of the updates so far."""

    opened: Round
    tasks: dict[int, bytes]
    took_s: dict[int, tuple[float, float]] = field(default_factory=dict)


MakeEdge = Callable[[Mapping[int, Member], Estimates], Edge]


class EdgeAgent(Service):
    """Serves the clients of one cluster and calls the cloud. `make_edge` builds the core's edge."""

    def __init__(
        self, terms: EdgeTerms, wire: Wire, cloud: Caller, make_edge: MakeEdge, patience: Patience
    ) -> None:
        super().__init__({"client": CLIENT_CALLS}, rate=terms.rate, burst=terms.burst)
        self.terms = terms
        self.wire = wire
        self.cloud = cloud
        self.make_edge = make_edge
        self.patience = patience
        self.members: dict[int, Member] = {}
        self.cluster: frozenset[int] | None = None  # unknown before the cloud's welcome
        self.finished = False
        self.edge: Edge | None = None
        self._round: _OpenRound | None = None
        self._measured: list[Measured] = []
        self._inbox: asyncio.Queue[ClientUpdate | Left | Deadline] = asyncio.Queue()
        self._news = asyncio.Event()  # replaced whenever it was set

    # The way up.

    async def run(self) -> None:
        """Work for the cloud until it says that the run is over."""
        await self._say_hello()
        beats = asyncio.create_task(self._beat())
        try:
            await self._gather_cluster()
            effects = [] if self.finished else self._built().handle(Ask(self._now()))
            while not self.finished:
                effects = await self._carry_out(effects)
        finally:
            beats.cancel()
            self._tell(finished=True)

    async def _say_hello(self) -> None:
        said = pb.Hello(
            protocol=PROTOCOL,
            node=self.terms.number,
            config_digest=self.terms.config_digest,
            spec_digest=self.terms.spec_digest,
            address=self.terms.address,
        ).SerializeToString()
        told = self.wire.read(pb.Welcome, await self.patience.call(self.cloud, "Hello", said))
        self.cluster, self.finished = frozenset(told.clients), told.finished
        self._welcome = Welcome(self.terms.number, told.request_id, 0.0)
        self._tell()

    async def _gather_cluster(self) -> None:
        """Wait for the clients of the cluster; after `start_s` those that came must do."""
        wanted = len(self.cluster or ())
        until = self._now() + self.terms.start_s
        while not self.finished:
            present, left_s = len(self.members), until - self._now()
            if present == wanted or (present and left_s <= 0):
                return
            await self._wait_for_news(max(0.1, left_s))

    def _built(self) -> Edge:
        """Return the core's edge with the clients that are here."""
        edge = self.make_edge(self.members, self._estimates())
        steps = {client: member.steps for client, member in sorted(self.members.items())}
        edge.handle(Recluster((), steps, None, self._now()))
        edge.handle(Received(self._welcome, None, self._now()))
        self.edge = edge
        return edge

    def _estimates(self) -> Estimates:
        compute_s = [member.compute_s for member in self.members.values()]
        longest_s = max(compute_s, default=0.0) + FIRST_SEND_S
        return Estimates(
            math.fsum(compute_s), FIRST_SEND_S * len(compute_s), longest_s, FIRST_SEND_S, FIRST_SEND_S
        )

    async def _carry_out(self, effects: list[EdgeEffect]) -> list[EdgeEffect]:
        """Do what the edge wants next, and return what it wants then. It wants one thing at a time."""
        (effect,) = effects
        match effect:
            case CheckIn():
                return await self._ask(effect)
            case Round():
                return await self._hold_round(effect)
            case Progress() | Upload() | Abandon():
                return await self._report(effect)
        assert_never(effect)

    async def _ask(self, check_in: CheckIn) -> list[EdgeEffect]:
        """Ask for the model until there is an answer; the cloud may hold a call for long."""
        while not (self.members or self.finished):  # without clients a lease would be abandoned at once
            await self._wait_for_news(POLL_S)
        self._take_cluster_as_it_is()
        body = self.wire.ask(check_in, self._edge.rounds, POLL_S)
        while not self.finished:
            answers, took_s = await self._call("CheckIn", body, 0, hold_s=POLL_S)
            if answers:
                return await self._receive(answers, took_s)
        return []

    async def _report(self, last: Progress | Upload | Abandon) -> list[EdgeEffect]:
        """Tell the cloud what became of a lease, until it has answered."""
        method, rounds = type(last).__name__, self._measured
        if isinstance(last, Progress):
            rounds = []
        else:
            self._measured = []
            if self.members:
                self._take_cluster_as_it_is()
            else:
                last = replace(last, check_in=None)
        body = self.wire.work(last, rounds, self._edge.rounds)
        answers, took_s = await self._call(method, body, last.lease_id)
        effects = await self._receive(answers, took_s)
        if effects or isinstance(last, Progress) or self.finished:
            return effects
        if last.check_in is None:
            return self._edge.handle(Ask(self._now()))
        return [last.check_in]  # no grant came with the verdict: ask on

    async def _receive(self, answers: list[CloudAnswer], took_s: float) -> list[EdgeEffect]:
        """Hand the cloud's answers to the edge and return what it wants next."""
        effects: list[EdgeEffect] = []
        for answer in answers:
            if isinstance(answer, Refuse):
                await self.patience.rest(answer.retry_after)
            if isinstance(answer, Grant):
                self._measured = []
            effects += self._edge.handle(Received(answer, took_s, self._now()))
        return effects

    async def _call(
        self, method: str, body: bytes, lease_id: int, hold_s: float = 0.0
    ) -> tuple[list[CloudAnswer], float]:
        """Return the cloud's answers, and the seconds of one way: half the round trip without the holding."""
        loop = asyncio.get_running_loop()
        sent = loop.time()
        told = self.wire.read(pb.Answer, await self.patience.call(self.cloud, method, body, hold_s=hold_s))
        trip_s = loop.time() - sent - (told.held_s if told.held_s >= 0 else 0.0)
        self.finished = self.finished or told.finished
        return self.wire.answers(self.terms.number, lease_id, told, self._now()), max(0.0, trip_s / 2)

    async def _beat(self) -> None:
        """Let the cloud know that this edge is alive, and notice clients that are not."""
        said = pb.Beat(node=self.terms.number, address=self.terms.address).SerializeToString()
        while True:
            await asyncio.sleep(self.terms.beat_s)
            try:
                told = self.wire.read(
                    pb.Alive, await self.cloud.call("Beat", said, timeout_s=self.terms.beat_s)
                )
                if told.finished:
                    self.finished = True
                    self._tell()
            except (CallError, Malformed):
                pass  # the calls that matter say what is wrong
            for client, member in list(self.members.items()):
                if self._now() - member.seen > self.terms.client_s:
                    del self.members[client]
                    self._inbox.put_nowait(Left(client, self._now()))

    # The way down.

    async def _hold_round(self, opened: Round) -> list[EdgeEffect]:
        """Hand out the tasks of a round and return what the edge wants when it closes."""
        model = self.wire.model_bytes(opened.model)  # type: ignore[arg-type]  # over a network no promises
        tasks = {work.client: self.wire.task(opened, work, model) for work in opened.work}
        self._round = _OpenRound(opened, tasks)
        started, edge = self._now(), self._edge
        expected = edge.expected
        self._tell()
        for client in set(expected) - set(self.members):
            self._inbox.put_nowait(Left(client, started))
        while True:
            event = await self._next_event(opened)
            if isinstance(event, ClientUpdate) and event.client in tasks:
                took_s = max(0.0, event.now - started)
                compute_s = event.compute_s if 0 <= event.compute_s <= took_s else took_s
                self._round.took_s.setdefault(event.client, (compute_s, took_s - compute_s))
            effects = edge.handle(event)
            if effects:
                took = self._round.took_s.values()
                compute_s, send_s = (
                    (math.fsum(column) for column in zip(*took, strict=True)) if took else (0.0, 0.0)
                )
                self._measured.append(
                    Measured(len(expected), len(took), edge.steps(expected), compute_s, send_s)
                )
                self._round = None
                return effects

    async def _next_event(self, opened: Round) -> ClientUpdate | Left | Deadline:
        left_s = opened.deadline - self._now()
        try:
            return await asyncio.wait_for(self._inbox.get(), None if left_s == math.inf else max(0.0, left_s))
        except TimeoutError:
            return Deadline(opened.lease_id, opened.index, self._now())

    async def on_hello(self, peer: Peer, body: bytes) -> bytes:
        """Take a client of this cluster in."""
        said = self.wire.read(pb.Hello, body)
        self.check_node(peer, said.node)
        if (said.protocol, said.spec_digest) != (PROTOCOL, self.terms.spec_digest):
            raise CallError("mismatch", f"edge {self.terms.number} has protocol {PROTOCOL} and another model")
        if said.config_digest != self.terms.config_digest:
            raise CallError("mismatch", f"edge {self.terms.number} has another configuration")
        if self.cluster is None:
            raise CallError("unavailable", "this edge does not know its cluster yet", 0.5)
        if peer.number not in self.cluster:
            raise CallError("denied", f"client {peer.number} is not of this cluster")
        if said.examples < 1:
            raise CallError("invalid", "a client needs at least one sample")
        compute_s = said.compute_s if 0 <= said.compute_s < math.inf else 0.0
        self.members[peer.number] = Member(said.examples, said.steps, compute_s, self._now())
        self._tell()
        return pb.Welcome(finished=self.finished).SerializeToString()

    async def on_fetch(self, peer: Peer, body: bytes) -> bytes:
        """Hand a client its task, as soon as there is one that it has not delivered."""
        asked = self.wire.read(pb.Fetch, body)
        self.check_node(peer, asked.node)
        self._known(peer)
        # Short enough that the next call comes before this client counts as silent.
        until = self._now() + min(max(asked.wait_s, 0.0), self.terms.client_s / 2)
        while not self.finished:
            now_open = self._round
            if now_open is not None and peer.number in now_open.tasks:
                opened = now_open.opened
                if (opened.lease_id, opened.index) != (asked.lease_id, asked.round):
                    return now_open.tasks[peer.number]
            left_s = until - self._now()
            if left_s <= 0:
                break
            await self._wait_for_news(left_s)
            self._known(peer)
        return pb.Task(finished=self.finished).SerializeToString()

    async def on_deliver(self, peer: Peer, body: bytes) -> bytes:
        """Take a client's update; a repeat changes nothing."""
        sent = self.wire.read(pb.Deliver, body)
        self.check_node(peer, sent.node)
        self._known(peer)
        self._inbox.put_nowait(self.wire.update(sent, self._now()))
        return pb.Delivered(taken=True).SerializeToString()

    async def on_beat(self, peer: Peer, body: bytes) -> bytes:
        """Take note that a client is alive."""
        self.check_node(peer, self.wire.read(pb.Beat, body).node)
        self._known(peer)
        return pb.Alive(finished=self.finished).SerializeToString()

    def _known(self, peer: Peer) -> None:
        member = self.members.get(peer.number)
        if member is None:
            raise CallError(
                "mismatch", "say hello first"
            )  # this edge has restarted, or the client was silent
        member.seen = self._now()

    def _take_cluster_as_it_is(self) -> None:
        """Let clients that came or left since the last lease enter and leave the cluster."""
        edge = self._edge
        leaving = tuple(client for client in edge.everyone if client not in self.members)
        entering = {
            client: member.steps
            for client, member in sorted(self.members.items())
            if client not in edge.taken
        }
        if leaving or entering:
            edge.handle(Recluster(leaving, entering, None, self._now()))

    @property
    def _edge(self) -> Edge:
        if self.edge is None:
            raise RuntimeError("this edge has no cluster yet")
        return self.edge

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def _tell(self, *, finished: bool = False) -> None:
        """Wake everybody who waits for news."""
        self.finished = self.finished or finished
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _wait_for_news(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), seconds)
