"""The agent of an edge: it drives the core's `Edge` between the cloud above and its clients below.

An edge keeps nothing on disk but a privacy ledger, if it has one. After a restart the cloud tells it its last
request, and its clients tell it their steps.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import assert_never

from hiflash.core.edge import Edge
from hiflash.messages import (
    Abandon,
    Ask,
    Cancel,
    CheckIn,
    CloudAnswer,
    EdgeEffect,
    Estimates,
    Grant,
    Progress,
    Promise,
    Received,
    Recluster,
    Refuse,
    Round,
    Upload,
    Verdict,
    Welcome,
)
from hiflash.serve import wire_pb2 as pb
from hiflash.serve.calls import Caller, CallError
from hiflash.serve.charges import EdgeCharges
from hiflash.serve.cluster import Cluster, EdgeTerms, Member
from hiflash.serve.models import EdgeModels
from hiflash.serve.patience import Patience
from hiflash.serve.wire import PROTOCOL, Asking, Malformed, Measured, Wire

__all__ = ["EdgeAgent"]

POLL_S = 20.0
FIRST_SEND_S = 0.05  # expected seconds of a transfer before the first one is measured

MakeEdge = Callable[[Mapping[int, Member], Estimates], Edge]


class EdgeAgent:
    """Works for the cloud with the clients of one `cluster`. `make_edge` builds the core's edge."""

    def __init__(
        self,
        terms: EdgeTerms,
        wire: Wire,
        models: EdgeModels,
        cloud: Caller,
        make_edge: MakeEdge,
        patience: Patience,
        charges: EdgeCharges | None = None,
    ) -> None:
        self.terms = terms
        self.charges = charges
        self.wire = wire
        self.models = models
        self.cloud = cloud
        self.make_edge = make_edge
        self.patience = patience
        self.address = terms.address  # known for certain once the edge listens
        self.cluster = Cluster(terms, wire)
        self.edge: Edge | None = None
        self._measured: list[Measured] = []
        self._metrics: dict[str, float] = {}
        self._welcome = Welcome(terms.number, 0, 0.0)

    async def run(self) -> None:
        """Work for the cloud until it says that the run is over."""
        await self._say_hello()
        over = asyncio.create_task(self.cluster.over.wait())
        work, beats = asyncio.create_task(self._work()), asyncio.create_task(self._beat())
        try:
            await asyncio.wait((work, over, beats), return_when=asyncio.FIRST_COMPLETED)
            for ended in (work, beats):
                if ended.done():
                    ended.result()
            with suppress(CallError):  # so that the cloud need not wait for this edge
                last = pb.Beat(node=self.terms.number, address=self.address, ended=True)
                await self.cloud.call("Beat", last.SerializeToString(), timeout_s=self.terms.beat_s)
        finally:
            for task in (over, work, beats):
                task.cancel()

    async def _work(self) -> None:
        await self.cluster.gather()
        effects = self._built().handle(Ask(self._now()))
        while True:
            effects = await self._carry_out(effects)

    async def _say_hello(self) -> None:
        said = pb.Hello(
            protocol=PROTOCOL,
            node=self.terms.number,
            config_digest=self.terms.config_digest,
            spec_digest=self.terms.spec_digest,
            address=self.address,
        ).SerializeToString()
        told = self.wire.read(pb.Welcome, await self.patience.call(self.cloud, "Hello", said))
        self.cluster.expected, self.cluster.run = frozenset(told.clients), told.run
        self._welcome = Welcome(self.terms.number, told.request_id, 0.0)
        await self._tell_charges()
        self.cluster.tell(finished=told.finished)

    async def _tell_charges(self) -> None:
        """Tell the cloud what this edge's clients have been charged, if anything is counted."""
        if self.charges is not None:
            body = self.charges.body()
            await self.patience.call(self.cloud, "Charges", body)

    def _built(self) -> Edge:
        """Return the core's edge with the clients that are here."""
        members = self.cluster.members
        edge = self.make_edge(members, self._estimates())
        steps = {client: member.steps for client, member in sorted(members.items())}
        edge.handle(Recluster((), steps, None, self._now()))
        edge.handle(Received(self._welcome, None, self._now()))
        self.edge = edge
        if self.charges is not None:
            self.charges.edge = edge
        return edge

    def _estimates(self) -> Estimates:
        compute_s = [member.compute_s for member in self.cluster.members.values()]
        longest_s = max(compute_s, default=0.0) + FIRST_SEND_S
        return Estimates(
            math.fsum(compute_s), FIRST_SEND_S * len(compute_s), longest_s, FIRST_SEND_S, FIRST_SEND_S
        )

    async def _carry_out(self, effects: list[EdgeEffect]) -> list[EdgeEffect]:
        """Do what the edge wants next, and return what it wants then. It wants one thing at a time."""
        if not effects:  # its clients have used up their privacy budget; one that has not may come
            await self.cluster.wait_for_news(POLL_S)
            self._take_cluster_as_it_is()
            return self._edge.handle(Ask(self._now()))
        (effect,) = effects
        match effect:
            case CheckIn():
                return await self._ask(effect)
            case Round():
                closed = await self.cluster.hold(self._edge, effect)
                self._measured.append(closed.measured)
                self._metrics = closed.metrics
                return closed.effects
            case Progress() | Upload() | Abandon():
                return await self._report(effect)
        assert_never(effect)

    async def _ask(self, check_in: CheckIn) -> list[EdgeEffect]:
        """Ask for the model until there is an answer; the cloud may hold a call for long."""
        while not self.cluster.enough:  # with too few clients a lease would be abandoned at once
            await self.cluster.wait_for_news(POLL_S)
        self._take_cluster_as_it_is()
        body = self.wire.ask(check_in, self._asking(), POLL_S)
        while True:
            answers, took_s = await self._call("CheckIn", body, 0, hold_s=POLL_S)
            if effects := await self._receive(answers, took_s):
                return effects

    async def _report(self, last: Progress | Upload | Abandon) -> list[EdgeEffect]:
        """Tell the cloud what became of a lease, until it has answered."""
        body = self._reported(last)
        await self._tell_charges()
        answers, took_s = await self._call(type(last).__name__, body, last.lease_id)
        if isinstance(last, Abandon):
            self.cluster.tasks.ended(last.lease_id, accepted=False)
        effects = await self._receive(answers, took_s)
        if effects:
            return effects
        if isinstance(last, Progress):
            return [last]  # no answer: the run is over, or the question comes again
        if last.check_in is None:
            return self._edge.handle(Ask(self._now()))
        return [last.check_in]  # no grant came with the verdict: ask on

    def _reported(self, last: Progress | Upload | Abandon) -> bytes:
        if isinstance(last, Progress):
            return self.wire.lease(last, [], self._asking())
        rounds, self._measured = self._measured, []
        if self.cluster.enough:
            self._take_cluster_as_it_is()
        else:
            last = replace(last, check_in=None)
        if isinstance(last, Abandon):
            return self.wire.lease(last, rounds, self._asking())
        if isinstance(last.weights, Promise):
            raise TypeError("an upload over a network holds weights, not a promise")
        return self.wire.work(last, self.models.send(last.weights), rounds, self._asking(), self._metrics)

    async def _receive(self, answers: list[CloudAnswer], took_s: float) -> list[EdgeEffect]:
        """Hand the cloud's answers to the edge and return what it wants next."""
        effects: list[EdgeEffect] = []
        for answer in answers:
            if isinstance(answer, Refuse):
                await self.patience.rest(answer.retry_after)
            elif isinstance(answer, Grant):
                self._measured, self._metrics = [], {}
            elif isinstance(answer, Verdict | Cancel):
                accepted = isinstance(answer, Verdict) and answer.status != "rejected"
                self.models.settle(accepted=accepted)
                self.cluster.tasks.ended(answer.lease_id, accepted=accepted)
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
        if told.finished:
            self.cluster.tell(finished=True)
        given, model = told.grant, None
        if told.HasField("grant") and given.request_id == self._edge.request_id:
            model = self.models.receive(given.form, given.model, given.lease_id)
        answers = self.wire.answers(self.terms.number, lease_id, told, model, self._now())
        return answers, max(0.0, trip_s / 2)

    async def _beat(self) -> None:
        """Let the cloud know that this edge is alive, and notice clients that are not."""
        said = pb.Beat(node=self.terms.number, address=self.address).SerializeToString()
        while True:
            await asyncio.sleep(self.terms.beat_s)
            try:
                told = self.wire.read(
                    pb.Alive, await self.cloud.call("Beat", said, timeout_s=self.terms.beat_s)
                )
                if told.finished:
                    self.cluster.tell(finished=True)
            except (CallError, Malformed):
                pass  # the calls that matter say what is wrong
            self.cluster.drop_silent()

    def _take_cluster_as_it_is(self) -> None:
        """Let clients that came or left since the last lease enter and leave the cluster."""
        edge, members = self._edge, self.cluster.members
        leaving = tuple(client for client in edge.everyone if client not in members)
        entering = {
            client: member.steps for client, member in sorted(members.items()) if client not in edge.taken
        }
        if leaving or entering:
            edge.handle(Recluster(leaving, entering, None, self._now()))

    def _asking(self) -> Asking:
        return Asking(self._edge.rounds, self._edge.examples, self.models.holds)

    @property
    def _edge(self) -> Edge:
        if self.edge is None:
            raise RuntimeError("this edge has no cluster yet")
        return self.edge

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
