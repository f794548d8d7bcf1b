"""A client's side of secure sums over a network: it drives its machine with the answers of its edge."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from hiflash.messages import Weights
from hiflash.privacy.randomness import Randomness
from hiflash.privacy.sums.client import SumClient
from hiflash.privacy.sums.fixed_point import FixedPoint
from hiflash.privacy.sums.keys import Keys
from hiflash.privacy.sums.messages import (
    PHASES,
    Answer,
    Boxes,
    Masked,
    Refused,
    Roster,
    Survivors,
    Unmask,
    threshold,
)
from hiflash.privacy.sums.noised import Noised
from hiflash.privacy.sums.signing import Signer, Verifier
from hiflash.serve import wire_pb2 as pb
from hiflash.serve.calls import Caller
from hiflash.serve.edge_sums import compute
from hiflash.serve.patience import Patience
from hiflash.serve.sum_wire import answer_of, read_request, read_terms
from hiflash.serve.wire import Wire
from hiflash.weights import finite

__all__ = ["ClientSums", "Trained", "decline", "take_part"]

POLL_S = 15.0
DRAWING = 500  # masks that take as long to make as the noise does

Kind = TypeVar("Kind", Roster, Boxes, Survivors, Unmask)


@dataclass
class ClientSums:
    """What a client needs for secure sums: who it is, who the others are, and where its keys come from.

    `noise` is the deviation of the noise in a private sum, in clips; a client knows it from its configuration
    and not from its edge.
    """

    federation: str
    bound: float
    signer: Signer
    verifier: Verifier
    randomness: Randomness
    noise: float = 0.0
    clients: int = 0  # of the last sum
    _ready: Keys | None = field(default=None, repr=False)

    def prepare(self) -> None:
        """Make the keys of the next sum, and deal their shares to as many clients as the last one had."""
        if self._ready is None:
            self._ready = Keys.fresh(self.randomness)
            if self.clients:
                self._ready.shares(threshold(self.clients), self.clients)

    def keys(self, clients: int) -> Keys:
        """Return keys that nobody has used; the next call returns others."""
        self.prepare()
        keys, self._ready, self.clients = self._ready, None, clients
        if keys is None:
            raise RuntimeError("there are no keys")
        return keys


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """What a client puts into a sum: the change of its model, its samples, and the seconds of training."""

    model: Weights
    base: Weights
    examples: int
    compute_s: float


class _Over(Exception):  # noqa: N818  # not an error: others may have left
    """The sum has ended, or goes on without this client."""


@dataclass
class _Calls:
    """The calls of one client in one sum."""

    edge: Caller
    wire: Wire
    patience: Patience
    node: int
    place: tuple[int, int]
    finished: bool = False

    async def answer(self, said: Answer, compute_s: float = 0.0) -> Roster | Boxes | Survivors | Unmask:
        """Hand in an answer and return what the edge asks for next."""
        body = answer_of(said, self.place, POLL_S, compute_s).SerializeToString()
        while True:
            told = self.wire.read(
                pb.SumTold, await self.patience.call(self.edge, "Sum", body, hold_s=POLL_S, tries=3)
            )
            self.finished = told.finished
            if told.present:
                return read_request(told)
            if told.ended or told.finished:
                raise _Over
            if isinstance(said, Masked):  # it was taken: ask on without it
                body = pb.Sum(
                    node=self.node,
                    lease_id=self.place[0],
                    round=self.place[1],
                    phase=PHASES.index("masked"),
                    wait_s=POLL_S,
                ).SerializeToString()


async def take_part(
    sums: ClientSums,
    edge: Caller,
    wire: Wire,
    patience: Patience,
    node: int,
    told: pb.Task,
    work: Callable[[], Awaitable[Trained | None]],
) -> bool:
    """Take part in the sum that a task ends in, and return whether the run is over.

    `work` waits for the training, whose result is None if nobody wants it any more. Keys are made and shared
    meanwhile.
    """
    calls = _Calls(edge, wire, patience, node, (told.lease_id, told.round))
    try:
        machine = _machine(sums, told, node, wire.size)
        terms = machine.terms
        small = len(terms.clients) ** 2 * 1000
        large = terms.words * (len(terms.clients) + (DRAWING if sums.noise else 0))
        roster = _expect(Roster, await calls.answer(machine.advertise()))
        shares = await compute(lambda: machine.share(roster), small)
        machine.receive(_expect(Boxes, await calls.answer(shares)))
        trained = await work()
        if trained is None:
            return calls.finished
        vector = await compute(lambda: _masked(sums, machine, trained), large)
        asked = await calls.answer(vector, trained.compute_s)
        if isinstance(asked, Survivors):  # somebody was lost
            asked = await calls.answer(machine.agree(asked))
        await calls.answer(machine.reveal(_expect(Unmask, asked)))
    except _Over:
        pass
    except (Refused, ValueError) as refused:
        logging.getLogger("hiflash").warning("client %d leaves a secure sum: %s", node, refused)
        await decline(edge, patience, node, told, str(refused))
    return calls.finished


async def decline(edge: Caller, patience: Patience, node: int, told: pb.Task, reason: str) -> None:
    """Tell an edge that this client does not take part in the sum that a task ends in."""
    said = pb.Sum(node=node, lease_id=told.lease_id, round=told.round, refused=reason[:200])
    await patience.call(edge, "Sum", said.SerializeToString(), tries=3)


def _machine(sums: ClientSums, told: pb.Task, node: int, size: int) -> SumClient:
    terms = read_terms(told, sums.federation, size, sums.noise)
    if terms.bound != sums.bound:
        raise Refused(f"its bound is {terms.bound:g}, and the configuration's {sums.bound:g}")
    terms.check()
    return SumClient(terms, node, sums.signer, sums.verifier, sums.keys(len(terms.clients)))


def _masked(sums: ClientSums, machine: SumClient, trained: Trained) -> Masked:
    terms = machine.terms
    if terms.noise:
        stream = sums.randomness.stream("client noise", terms.lease_id, terms.round, machine.client)
        return machine.mask(Noised.of(terms).encode(trained.model, trained.base, stream))
    if not finite(trained.model):
        raise ValueError("its model is not finite")
    form = FixedPoint.of(terms)
    change = trained.model.astype(np.float64) - trained.base
    return machine.mask(form.encode(change, trained.examples))


def _expect(kind: type[Kind], request: object) -> Kind:
    if not isinstance(request, kind):
        raise Refused(f"it asks for {type(request).__name__}, and {kind.__name__} comes now")
    return request
