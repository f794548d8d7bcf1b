"""The agent of a client: it fetches tasks from its edge, trains, and delivers the result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from hiflash.core.edge_rules import Workload
from hiflash.messages import Assignment, Extra, Weights
from hiflash.serve import wire_pb2 as pb
from hiflash.serve.calls import Caller, CallError
from hiflash.serve.client_sums import ClientSums, Invited, Trained, decline, take_part
from hiflash.serve.memory import Memories, Memory, Own
from hiflash.serve.models import model_bytes, read_model
from hiflash.serve.patience import Patience
from hiflash.serve.task_checks import check_sum, check_task, why_not
from hiflash.serve.wire import PROTOCOL, Malformed, Wire, array_messages, metric_messages

__all__ = ["ClientAgent", "ClientTerms", "Found", "Job", "Way", "Worked", "Works"]

LOG = logging.getLogger("hiflash")
POLL_S = 15.0


@dataclass(frozen=True)
class ClientTerms:
    """What a client agrees to, and what it declares."""

    number: int
    config_digest: str
    spec_digest: str
    examples: int
    compute_s: float
    beat_s: float = 2.0
    declares: int | None = None  # samples that it tells its edge, if not the true number
    sums: ClientSums | None = None  # rounds end in secure sums
    workload: Workload | None = None  # what every task must be, under secure sums
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A task as it reached a client: its assignment, the model, and what came beside it."""

    work: Assignment
    model: Weights
    extra: Extra


@dataclass(frozen=True, slots=True, eq=False)
class Worked:
    """What a client makes of a job: what it sends, what it keeps, and the seconds that it took."""

    weights: Weights
    loss: float
    compute_s: float
    own: Own
    steps: float = 1.0
    extra: Extra = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)


Works = Callable[[Job, Own], Awaitable[Worked]]


@dataclass(frozen=True, slots=True)
class Found:
    """The way to a client's edge, None if it is not known yet, and what became of the client's last task.

    `run` is the name of the run.
    """

    edge: Caller | None
    finished: bool
    settled: int
    run: str = ""


class Way(Protocol):
    """How a client finds its edge."""

    async def find(self, last: tuple[int, int]) -> Found:
        """Return the way to the edge; `last` are lease and round of a task, to learn what became of it."""
        ...


class ClientAgent:
    """Works for its edge until the run is over."""

    def __init__(
        self, terms: ClientTerms, wire: Wire, way: Way, works: Works, memories: Memories, patience: Patience
    ) -> None:
        if terms.sums is not None and terms.workload is None:
            raise ValueError("a client of secure sums must know what its tasks are")
        self.terms = terms
        self.wire = wire
        self.way = way
        self.works = works
        self.memories = memories
        self.patience = patience
        self.memory = memories.load() or Memory()
        self.finished = False
        self._waits = False  # for an edge of the cloud's run

    async def run(self) -> None:
        """Serve one edge after the other: the cloud says which."""
        while not self.finished:
            found = await self.way.find((0, 0))
            self.finished = found.finished
            if found.edge is None or self.finished:
                await self.patience.rest(self.patience.first_s)
                continue
            try:
                await self._serve(found.edge, found.run)
                last = pb.Beat(node=self.terms.number, ended=True)  # so that the edge need not wait
                await found.edge.call("Beat", last.SerializeToString(), timeout_s=self.terms.beat_s)
            except (CallError, Malformed) as error:
                if isinstance(error, CallError) and error.code in ("denied", "invalid", "mismatch"):
                    raise
                await self.patience.rest(self.patience.first_s)  # ask again: the edge may be another

    async def _serve(self, edge: Caller, run: str) -> None:
        await self._say_hello(edge, run)
        while not self.finished:
            lease_id, index = self.memory.lease_id, self.memory.round
            asked = pb.Fetch(node=self.terms.number, wait_s=POLL_S, lease_id=lease_id, round=index)
            call = edge.call("Fetch", asked.SerializeToString(), timeout_s=POLL_S + self.patience.timeout_s)
            told = self.wire.read(pb.Task, await self._meanwhile(call))
            self.finished = told.finished
            if told.present:
                await self._work(edge, told)

    async def _meanwhile(self, call: Coroutine[Any, Any, bytes]) -> bytes:
        """Return the answer to a call; the keys of the next secure sum are made while it is under way."""
        if self.terms.sums is None:
            return await call
        calling = asyncio.ensure_future(call)
        try:
            await asyncio.sleep(0)  # let it go first
            await self.terms.sums.prepare()
            return await calling
        finally:
            calling.cancel()

    async def _say_hello(self, edge: Caller, run: str) -> None:
        """Enter the cluster of an edge.

        Memories begin anew with another run. Under secure sums it is the cloud that names it: an edge could
        make a client forget what it has trained.
        """
        said = pb.Hello(
            protocol=PROTOCOL,
            node=self.terms.number,
            config_digest=self.terms.config_digest,
            spec_digest=self.terms.spec_digest,
            examples=self.terms.declares or self.terms.examples,
            steps=self.memory.steps,
            compute_s=self.terms.compute_s,
            run=self.memory.run,
        ).SerializeToString()
        told = self.wire.read(pb.Welcome, await edge.call("Hello", said, timeout_s=self.patience.timeout_s))
        self.finished = told.finished
        if self.terms.sums is not None and told.run != run:
            if not self._waits:
                LOG.warning("client %d waits: its edge is of another run than the cloud", self.terms.number)
            self._waits = True
            raise CallError("unavailable", "the edge is of another run than the cloud")
        self._waits = False
        if told.run != self.memory.run:  # what was kept is of another run
            self.memory = Memory(run=told.run)

    async def _work(self, edge: Caller, told: pb.Task) -> None:
        """Train one task and deliver its result; beats tell the edge that this client is alive."""
        sums, workload = self.terms.sums, self.terms.workload
        check_sum(told, secure=sums is not None)  # before anything of this client is made
        if sums is not None and workload is not None:
            check_task(told, workload, self.terms.seed)
            if reason := why_not(told, workload, self.memory):
                await decline(edge, self.patience, self.terms.number, told, reason)
                return
        own = await self._own(told)
        work = Assignment(self.terms.number, told.first_step, told.steps, told.lr, told.seed)
        job = Job(work, read_model(told.model, self.wire.size), self.wire.arrays(told.extra))
        place = (told.lease_id, told.round)
        # Assigned steps count, even if the update is lost.
        self._keep(self.memory.begun(place, own, work.first_step, work.steps))
        working, beats = asyncio.ensure_future(self.works(job, own)), asyncio.create_task(self._beat(edge))
        try:
            if sums is not None:
                await self._add_up(sums, edge, told, job, self._done(working, beats, own))
                return
            worked = await self._done(working, beats, own)
        finally:
            working.cancel()
            beats.cancel()
        if worked is not None:
            # A few times only: an edge that has restarted may be elsewhere.
            await self.patience.call(edge, "Deliver", self._delivery(place, worked), tries=3)

    async def _done(
        self, working: asyncio.Future[Worked], beats: asyncio.Task[None], own: Own
    ) -> Worked | None:
        """Wait for a task and return its result; None if the run is over, and nobody wants it."""
        await asyncio.wait((working, beats), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            return None
        worked = working.result()
        if worked.own is not own:
            self._keep(self.memory.worked(worked.own))  # before the edge has it: its changes count then
        return worked

    async def _add_up(
        self,
        sums: ClientSums,
        edge: Caller,
        told: pb.Task,
        job: Job,
        done: Coroutine[Any, Any, Worked | None],
    ) -> None:
        """Put the result of a task into a secure sum."""

        async def work() -> Trained | None:
            worked = await done
            if worked is None:
                return None
            return Trained(worked.weights, job.model, self.terms.examples, worked.compute_s)

        try:
            invited = Invited(self.terms.number, self.terms.declares or self.terms.examples, told)
            finished = await take_part(sums, edge, self.wire, self.patience, invited, work)
        finally:
            done.close()
        self.finished = self.finished or finished

    def _delivery(self, place: tuple[int, int], worked: Worked) -> bytes:
        if self.terms.sums is not None:
            raise CallError("mismatch", "a model of secure sums never travels alone")
        return pb.Deliver(
            node=self.terms.number,
            lease_id=place[0],
            round=place[1],
            model=model_bytes(worked.weights),
            examples=self.terms.examples,
            loss=worked.loss,
            compute_s=worked.compute_s,
            steps=worked.steps,
            extra=array_messages(worked.extra),
            metrics=metric_messages(worked.metrics),
        ).SerializeToString()

    async def _own(self, told: pb.Task) -> Own:
        """Return what this client holds when it begins a task; that may depend on the lease before."""
        memory, outcome, place = self.memory, told.settled, (told.lease_id, told.round)
        if memory.depends_on_outcome(place) and not outcome:
            # The edge has restarted and does not know. The cloud does.
            outcome = (await self.way.find((memory.lease_id, memory.round))).settled
        return memory.at_start(place, outcome)

    def _keep(self, memory: Memory) -> None:
        self.memory = memory
        self.memories.save(memory)

    async def _beat(self, edge: Caller) -> None:
        said = pb.Beat(node=self.terms.number).SerializeToString()
        while not self.finished:
            await asyncio.sleep(self.terms.beat_s)
            with suppress(CallError, Malformed):  # delivering the update will say what is wrong
                answer = await edge.call("Beat", said, timeout_s=self.terms.beat_s)
                self.finished = self.wire.read(pb.Alive, answer).finished
