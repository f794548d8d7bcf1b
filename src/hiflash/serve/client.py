"""The agent of a client: it fetches tasks from its edge, trains, and delivers the result."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from hiflash.messages import ClientTask, Weights
from hiflash.serve import wire_pb2 as pb
from hiflash.serve.calls import Caller, CallError
from hiflash.serve.patience import Patience
from hiflash.serve.wire import PROTOCOL, Malformed, Wire

__all__ = ["ClientAgent", "ClientTerms", "Memory", "Trained"]

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


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """The result of a task, with the seconds that it took."""

    weights: Weights
    loss: float
    compute_s: float


class Memory(Protocol):
    """What a client keeps over restarts: its local steps so far."""

    def load(self) -> int:
        """Return the steps; 0 before the first task."""
        ...

    def save(self, steps: int) -> None:
        """Keep the steps, durably."""
        ...


class ClientAgent:
    """Works for its edge until the run is over. `connect` returns the way to an edge's address."""

    def __init__(
        self,
        terms: ClientTerms,
        wire: Wire,
        cloud: Caller,
        connect: Callable[[int, str], Caller],
        train: Callable[[ClientTask], Awaitable[Trained]],
        memory: Memory,
        patience: Patience,
    ) -> None:
        self.terms = terms
        self.wire = wire
        self.cloud = cloud
        self.connect = connect
        self.train = train
        self.memory = memory
        self.patience = patience
        self.finished = False
        self._delivered = (0, 0)  # lease and round of the last update

    async def run(self) -> None:
        """Serve one edge after the other: the cloud says which."""
        while not self.finished:
            edge = await self._place()
            if edge is None:
                continue
            try:
                await self._serve(edge)
            except (CallError, Malformed) as error:
                if isinstance(error, CallError) and error.code in ("denied", "invalid"):
                    raise
                await self.patience.rest(
                    self.patience.first_s
                )  # ask the cloud again: the edge may be another

    async def _place(self) -> Caller | None:
        """Return the way to this client's edge, None if it is not known yet."""
        body = pb.Place(node=self.terms.number).SerializeToString()
        told = self.wire.read(pb.Placed, await self.patience.call(self.cloud, "Place", body))
        if told.finished:
            self.finished = True
        if self.finished or not told.address:
            await self.patience.rest(self.patience.first_s)
            return None
        return self.connect(told.edge, told.address)

    async def _serve(self, edge: Caller) -> None:
        await self._say_hello(edge)
        while not self.finished:
            lease_id, round_index = self._delivered
            asked = pb.Fetch(node=self.terms.number, wait_s=POLL_S, lease_id=lease_id, round=round_index)
            told = self.wire.read(
                pb.Task,
                await edge.call(
                    "Fetch", asked.SerializeToString(), timeout_s=POLL_S + self.patience.timeout_s
                ),
            )
            self.finished = told.finished
            if told.present:
                await self._work(edge, told)

    async def _say_hello(self, edge: Caller) -> None:
        said = pb.Hello(
            protocol=PROTOCOL,
            node=self.terms.number,
            config_digest=self.terms.config_digest,
            spec_digest=self.terms.spec_digest,
            examples=self.terms.examples,
            steps=self.memory.load(),
            compute_s=self.terms.compute_s,
        ).SerializeToString()
        told = self.wire.read(pb.Welcome, await edge.call("Hello", said, timeout_s=self.patience.timeout_s))
        self.finished = told.finished

    async def _work(self, edge: Caller, told: pb.Task) -> None:
        """Train one task and deliver its result; beats tell the edge that this client is alive."""
        task = ClientTask(
            self.terms.number, told.first_step, told.steps, told.lr, self.wire.model(told.model), told.seed
        )
        self.memory.save(told.first_step + told.steps)  # assigned steps count, even if the update is lost
        beats = asyncio.create_task(self._beat(edge))
        try:
            trained = await self.train(task)
        finally:
            beats.cancel()
        body = pb.Deliver(
            node=self.terms.number,
            lease_id=told.lease_id,
            round=told.round,
            model=self.wire.model_bytes(trained.weights),
            examples=self.terms.examples,
            loss=trained.loss,
            compute_s=trained.compute_s,
        ).SerializeToString()
        await edge.call("Deliver", body, timeout_s=self.patience.timeout_s)
        self._delivered = (told.lease_id, told.round)

    async def _beat(self, edge: Caller) -> None:
        said = pb.Beat(node=self.terms.number).SerializeToString()
        while True:
            await asyncio.sleep(self.terms.beat_s)
            with suppress(CallError):  # delivering the update will say what is wrong
                await edge.call("Beat", said, timeout_s=self.terms.beat_s)
