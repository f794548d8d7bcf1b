"""The service of an edge for its clients: it takes them in, hands out the tasks of a round, takes updates."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from hiflash.core.edge import Edge
from hiflash.messages import Assignment, ClientUpdate, Deadline, EdgeEffect, Left, Promise, Round
from hiflash.privacy.sums.edge import Gone
from hiflash.serve import wire_pb2 as pb
from hiflash.serve.calls import CallError, Peer, Service
from hiflash.serve.edge_sums import MASKED, EdgeSums, OpenSum, sum_outcome
from hiflash.serve.memory import Outcomes
from hiflash.serve.models import model_bytes, read_model
from hiflash.serve.sum_wire import begins_with, read_sum, sum_terms, terms_of
from hiflash.serve.wire import MOST_NAMES, Measured, Wire, array_messages

__all__ = ["Closed", "Cluster", "EdgeTerms", "Member"]

MOST_COMPUTE_S = 1e6
LOOK_S = 0.5  # how often a secure sum looks for clients that have left
CLIENT_CALLS = ("Hello", "Fetch", "Deliver", "Sum", "Beat")


@dataclass(frozen=True)
class EdgeTerms:
    """What an edge agrees to, where its clients find it, and how patient it is.

    `declared` are the samples of clients that the configuration knows; other clients may declare up to
    `most_examples`.
    """

    number: int
    config_digest: str
    spec_digest: str
    address: str = ""
    client_s: float = 10.0  # a client that is silent so long has left
    start_s: float = 60.0  # how long to wait for the whole cluster at the start
    beat_s: float = 2.0
    rate: float = 200.0
    burst: float = 400.0
    declared: Mapping[int, int] = field(default_factory=dict)
    most_examples: int = 10_000_000
    least: int = 1  # clients that must be there before the edge asks for a lease
    sums: EdgeSums | None = None  # rounds end in secure sums


@dataclass(slots=True)
class Member:
    """A client that has said hello."""

    examples: int
    steps: int
    compute_s: float
    seen: float


class Closed(NamedTuple):
    """The end of a round: what its edge wants next, what was measured, and the clients' mean metrics."""

    effects: list[EdgeEffect]
    measured: Measured
    metrics: dict[str, float]


@dataclass(slots=True)
class _OpenRound:
    """The round under way: its assignments by client, and what came back so far."""

    opened: Round
    work: dict[int, Assignment]
    model: bytes
    extra: Sequence[pb.Array]
    delivered: dict[int, dict[str, float]] = field(default_factory=dict)
    took_s: dict[int, tuple[float, float]] = field(default_factory=dict)
    summing: OpenSum | None = None

    @property
    def place(self) -> tuple[int, int]:
        """Return lease and round."""
        return self.opened.lease_id, self.opened.index


class Cluster(Service):
    """The clients of one edge. `tasks` knows what became of their last tasks."""

    def __init__(self, terms: EdgeTerms, wire: Wire) -> None:
        super().__init__({"client": CLIENT_CALLS}, rate=terms.rate, burst=terms.burst)
        self.terms = terms
        self.wire = wire
        self.members: dict[int, Member] = {}
        self.expected: frozenset[int] | None = None  # unknown before the cloud's welcome
        self.run = ""
        self.over = asyncio.Event()  # the run is over
        self._told: set[int] = set()  # clients that have said that they know of it
        self._fetches: dict[int, int] = {}  # the number of every client's last call for a task
        self.tasks = Outcomes()
        self._round: _OpenRound | None = None
        self._inbox: asyncio.Queue[ClientUpdate | Left] = asyncio.Queue()
        self._news = asyncio.Event()  # replaced whenever it was set

    async def gather(self) -> None:
        """Wait for all clients; after `start_s` those that came must do."""
        until = self.now() + self.terms.start_s
        while not self.over.is_set():
            present, left_s = len(self.members), until - self.now()
            if present == len(self.expected or ()) or (self.enough and left_s <= 0):
                return
            await self.wait_for_news(max(0.1, left_s))

    @property
    def enough(self) -> bool:
        """Return whether enough clients are here for a lease."""
        return len(self.members) >= self.terms.least

    async def hold(self, edge: Edge, opened: Round) -> Closed:
        """Hand out the tasks of a round and return what the edge wants when it closes."""
        if isinstance(opened.model, Promise):
            raise TypeError("a round over a network starts from weights, not from a promise")
        self._inbox = asyncio.Queue()  # what came between two rounds belongs to none
        work = {each.client: each for each in opened.work}
        now_open = _OpenRound(opened, work, model_bytes(opened.model), array_messages(opened.extra))
        self._round, started, expected = now_open, self.now(), edge.expected
        if self.terms.sums is not None:
            return await self._hold_sum(self.terms.sums, edge, now_open)
        self.tell()
        for client in expected:
            if client not in self.members:
                self._inbox.put_nowait(Left(client, started))
        while True:
            # If nobody joined a private round, there is nobody to wait for.
            event = await self._next_event(opened) if expected else self._deadline(opened)
            if isinstance(event, ClientUpdate):
                took_s = max(0.0, event.now - started)
                compute_s = event.compute_s if 0 <= event.compute_s <= took_s else took_s
                now_open.took_s.setdefault(event.client, (compute_s, took_s - compute_s))
            effects = edge.handle(event)
            if effects:
                self._round = None
                counted = tuple(edge.counted)
                self.tasks.closed(opened.lease_id, opened.index, counted)
                steps, took = edge.steps(expected), list(now_open.took_s.values())
                measured = _measured(len(expected), steps, took, self.now() - started, counted)
                return Closed(effects, measured, self._mean_metrics(now_open.delivered))

    async def _hold_sum(self, sums: EdgeSums, edge: Edge, now_open: _OpenRound) -> Closed:
        """Hold a round that ends in a secure sum."""
        opened, started, expected = now_open.opened, self.now(), edge.expected
        most = {client: 1 if sums.noise else edge.workloads[client].examples for client in expected}
        model = begins_with(now_open.model, now_open.extra)
        terms = sum_terms(opened, sums.federation, self.wire.size, sums.bound, most, model, sums.noise)
        summing = OpenSum(terms, sums, opened.deadline - opened.now, edge.needed, self.tell)
        summing.start(started)
        now_open.summing = summing
        self.tell()
        for client in expected:
            if client not in self.members:
                await summing.handle(Gone(client, "it is not here", started))
        while summing.outcome is None:
            await self._advance(summing)
        self._round = None
        self.tell()
        if summing.failed is not None:
            raise summing.failed
        summed, measured = sum_outcome(summing, opened, started, self.now(), edge.steps(expected))
        effects = edge.handle(summed)
        self.tasks.closed(opened.lease_id, opened.index, edge.counted)
        return Closed(effects, measured, {})

    async def _advance(self, summing: OpenSum) -> None:
        """Wait for what ends a phase of a secure sum: its deadline, or news of clients."""
        left_s = summing.deadline - self.now()
        if left_s <= 0:
            await summing.time_up(self.now())
            return
        while not self._inbox.empty():
            event = self._inbox.get_nowait()
            if isinstance(event, Left):
                await summing.handle(Gone(event.client, "it is silent", event.now))
        for client in summing.awaited:
            if client not in self.members:  # it left after its last answer
                await summing.handle(Gone(client, "it is not here", self.now()))
        if summing.outcome is None:
            await self.wait_for_news(min(left_s, LOOK_S))

    def drop_silent(self) -> None:
        """Let clients leave that have been silent for too long."""
        for client, member in list(self.members.items()):
            if self.now() - member.seen > self.terms.client_s:
                del self.members[client]
                self._inbox.put_nowait(Left(client, self.now()))

    async def all_told(self, most_s: float) -> None:
        """Wait until all clients know that the run is over, at most so long."""
        until = self.now() + most_s
        while set(self.members) - self._told and self.now() < until:
            await asyncio.sleep(0.02)

    def tell(self, *, finished: bool = False) -> None:
        """Wake everybody who waits for news."""
        if finished:
            self.over.set()
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def wait_for_news(self, seconds: float) -> None:
        """Wait until something has changed, at most so long."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), seconds)

    @staticmethod
    def now() -> float:
        """Return the time of this edge's own clock."""
        return asyncio.get_running_loop().time()

    async def on_hello(self, peer: Peer, body: bytes) -> bytes:
        """Take a client of this cluster in."""
        said, terms = self.wire.read(pb.Hello, body), self.terms
        self.check_node(peer, said.node)
        self.check_terms(f"edge {terms.number}", (terms.config_digest, terms.spec_digest), said)
        if self.expected is None:
            raise CallError("unavailable", "this edge does not know its cluster yet", 0.5)
        if peer.number not in self.expected:
            raise CallError("denied", f"client {peer.number} is not of this cluster")
        declared = terms.declared.get(peer.number)
        if not 1 <= said.examples <= terms.most_examples or declared not in (None, said.examples):
            told = f"declares {said.examples} samples, and "
            told += f"may have {terms.most_examples}" if declared is None else f"the configuration {declared}"
            raise CallError("denied", f"client {peer.number} {told}")
        # A client must not make the costs of its edge impossible.
        compute_s = said.compute_s if 0 <= said.compute_s < MOST_COMPUTE_S else 0.0
        steps = said.steps if said.run == self.run else 0  # those of another run do not count
        self.members[peer.number] = Member(said.examples, steps, compute_s, self.now())
        self.tell()
        return pb.Welcome(finished=self.over.is_set(), run=self.run).SerializeToString()

    async def on_fetch(self, peer: Peer, body: bytes) -> bytes:
        """Hand a client its task, as soon as there is one that it has not delivered."""
        asked = self.wire.read(pb.Fetch, body)
        self.check_node(peer, asked.node)
        self._known(peer)
        # Short enough that the next call comes before this client counts as silent.
        until = self.now() + min(max(asked.wait_s, 0.0), self.terms.client_s / 2)
        await self._notice_restart(peer.number, (asked.lease_id, asked.round))
        mine = self._fetches[peer.number] = self._fetches.get(peer.number, 0) + 1
        while not self.over.is_set() and self._fetches[peer.number] == mine:  # a newer call ends an older
            found = self._task(peer.number, (asked.lease_id, asked.round))
            if found is not None:
                return found
            left_s = until - self.now()
            if left_s <= 0:
                break
            await self.wait_for_news(left_s)
            self._known(peer)
        return pb.Task(finished=self.over.is_set()).SerializeToString()

    async def on_deliver(self, peer: Peer, body: bytes) -> bytes:
        """Take a client's update; one that repeats, or belongs to no open task, changes nothing."""
        sent = self.wire.read(pb.Deliver, body)
        self.check_node(peer, sent.node)
        self._known(peer)
        now_open = self._round
        wanted = (
            now_open is not None
            and (sent.lease_id, sent.round) == now_open.place
            and now_open.summing is None
            and peer.number in now_open.work
            and peer.number not in now_open.delivered
        )
        if now_open is not None and wanted:
            update = self.wire.update(sent, read_model(sent.model, self.wire.size), self.now())
            now_open.delivered[peer.number] = self.wire.metrics(sent.metrics)
            self._inbox.put_nowait(update)
        return pb.Delivered(taken=wanted).SerializeToString()

    async def on_sum(self, peer: Peer, body: bytes) -> bytes:
        """Take a client's answer in a secure sum, and hold the call until the next phase."""
        sent = read_sum(self.wire, body)
        self.check_node(peer, sent.node)
        self._known(peer)
        now_open = self._round
        summing = None if now_open is None else now_open.summing
        if now_open is None or summing is None or (sent.lease_id, sent.round) != now_open.place:
            return pb.SumTold(ended=True, finished=self.over.is_set()).SerializeToString()
        # A client that asks on says nothing new with its masked vector.
        if sent.phase != MASKED or sent.masked or sent.refused:
            await summing.hear(sent, self.now())
        until = self.now() + min(max(sent.wait_s, 0.0), self.terms.client_s / 2)
        while not self.over.is_set():
            told = pb.SumTold(ended=True) if sent.refused else summing.told(peer.number, sent.phase)
            if told is not None:
                return told.SerializeToString()
            left_s = until - self.now()
            if left_s <= 0:
                break
            await self.wait_for_news(left_s)
            self._known(peer)
        return pb.SumTold(finished=self.over.is_set()).SerializeToString()

    async def on_beat(self, peer: Peer, body: bytes) -> bytes:
        """Take note that a client is alive."""
        beat = self.wire.read(pb.Beat, body)
        self.check_node(peer, beat.node)
        self._known(peer)
        if beat.ended and self.over.is_set():
            self._told.add(peer.number)
        return pb.Alive(finished=self.over.is_set()).SerializeToString()

    async def _notice_restart(self, client: int, last: tuple[int, int]) -> None:
        """Give a client up for the sum under way if it asks for a new task: it has lost its keys."""
        now_open = self._round
        if now_open is not None and now_open.summing is not None and last == now_open.place:
            await now_open.summing.handle(Gone(client, "it has restarted", self.now()))

    def _task(self, client: int, last: tuple[int, int]) -> bytes | None:
        """Return the open task of a client; `last` are lease and round of the task before it."""
        now_open = self._round
        if now_open is None or client not in now_open.work or client in now_open.delivered:
            return None
        opened, summing = now_open.opened, now_open.summing
        if summing is not None and (last == now_open.place or not summing.awaits(client)):
            return None
        task = self.wire.task(opened, now_open.work[client], now_open.model, now_open.extra)
        if summing is not None:
            task.sum.CopyFrom(terms_of(summing.terms))
        task.settled = self.tasks.of(client, last, now=opened.lease_id)
        return task.SerializeToString()

    async def _next_event(self, opened: Round) -> ClientUpdate | Left | Deadline:
        left_s = opened.deadline - self.now()
        try:
            return await asyncio.wait_for(self._inbox.get(), None if left_s == math.inf else max(0.0, left_s))
        except TimeoutError:
            return self._deadline(opened)

    def _deadline(self, opened: Round) -> Deadline:
        return Deadline(opened.lease_id, opened.index, self.now())

    def _mean_metrics(self, delivered: Mapping[int, Mapping[str, float]]) -> dict[str, float]:
        """Return the mean of every metric, weighted by the samples of the clients that report it."""
        means = {}
        for name in sorted({name for metrics in delivered.values() for name in metrics})[:MOST_NAMES]:
            told = [
                (metrics[name], self.members[client].examples)
                for client, metrics in sorted(delivered.items())
                if name in metrics and client in self.members
            ]
            if told:
                means[name] = sum(value * count for value, count in told) / sum(count for _, count in told)
        return means

    def _known(self, peer: Peer) -> None:
        member = self.members.get(peer.number)
        if member is None:  # this edge has restarted, or the client was silent
            raise CallError("stranger", "say hello first")
        member.seen = self.now()


def _measured(
    asked: int, steps: int, took: Sequence[tuple[float, float]], round_s: float, counted: tuple[int, ...]
) -> Measured:
    """Return a round as the cloud's books take it; `took` has seconds of computing and sending."""
    whole = [compute_s + send_s for compute_s, send_s in took]
    return Measured(
        asked,
        len(took),
        steps,
        math.fsum(compute_s for compute_s, _ in took),
        math.fsum(send_s for _, send_s in took),
        round_s,
        math.fsum(whole) / len(whole) - min(whole) if whole else 0.0,
        counted,
    )
