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
    MOST_EXAMPLES,
    PHASES,
    Answer,
    Boxes,
    Masked,
    Refused,
    Roster,
    Survivors,
    Unmask,
    Words,
    threshold,
)
from hiflash.privacy.sums.noised import Noised
from hiflash.privacy.sums.signing import Signer, Verifier
from hiflash.serve import wire_pb2 as pb
from hiflash.serve.calls import Caller, printable
from hiflash.serve.edge_sums import compute
from hiflash.serve.patience import Patience
from hiflash.serve.sum_wire import answer_of, read_request, read_terms
from hiflash.serve.wire import Wire
from hiflash.weights import finite

__all__ = ["ClientSums", "Invited", "Trained", "dealing", "decline", "take_part"]

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
    most_examples: int = MOST_EXAMPLES  # that a client may declare
    clients: int = 0  # of the last sum whose roster was a true one
    _ready: Keys | None = field(default=None, repr=False)

    async def prepare(self) -> None:
        """Make the keys of the next sum, and deal their shares to as many clients as the last one had."""
        if self._ready is None:
            keys, clients = Keys.fresh(self.randomness), self.clients
            self._ready = keys
            if clients:
                await compute(lambda: keys.shares(threshold(clients), clients), dealing(clients))

    def keys(self) -> Keys:
        """Return keys that nobody has used; the next call returns others."""
        keys, self._ready = self._ready or Keys.fresh(self.randomness), None
        return keys


@dataclass(frozen=True, slots=True)
class Invited:
    """A client that is asked to take part in a sum: its number, the samples that it declares, its task."""

    node: int
    declares: int
    told: pb.Task


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
    clients: int
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
                return read_request(told, self.clients)
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
    invited: Invited,
    work: Callable[[], Awaitable[Trained | None]],
) -> bool:
    """Take part in the sum that a task ends in, and return whether the run is over.

    `work` waits for the training, whose result is None if nobody wants it any more. Keys are made and shared
    meanwhile.
    """
    node, told = invited.node, invited.told
    calls = _Calls(edge, wire, patience, node, (told.lease_id, told.round), len(told.sum.clients))
    try:
        machine = _machine(sums, invited, wire.size)
        terms = machine.terms
        large = terms.words * (len(terms.clients) + (DRAWING if sums.noise else 0))
        roster = _expect(Roster, await calls.answer(machine.advertise()))
        shares = await compute(lambda: machine.share(roster), dealing(len(terms.clients)))
        sums.clients = len(terms.clients)
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
    except Refused as refused:  # nothing in it is private: errors of training are none of these
        await decline(edge, patience, node, told, str(refused))
    return calls.finished


async def decline(edge: Caller, patience: Patience, node: int, told: pb.Task, reason: str) -> None:
    """Tell an edge that this client does not take part in the sum that a task ends in."""
    logging.getLogger("hiflash").warning("client %d leaves a secure sum: %s", node, printable(reason))
    said = pb.Sum(node=node, lease_id=told.lease_id, round=told.round, refused=reason[:200])
    await patience.call(edge, "Sum", said.SerializeToString(), tries=3)


def dealing(clients: int) -> int:
    """Return how many words take as long to mask as shares for so many clients to deal."""
    return clients**2 * 1000


def _machine(sums: ClientSums, invited: Invited, size: int) -> SumClient:
    terms = read_terms(invited.told, sums.federation, size, sums.noise)
    if terms.bound != sums.bound:
        raise Refused(f"its bound is {terms.bound:g}, and the configuration's {sums.bound:g}")
    terms.check()
    # Every other client has a sample at least. The text must not tell how many this one has.
    if not terms.noise and terms.most_examples < invited.declares + len(terms.clients) - 1:
        raise Refused("it allows fewer samples than its clients declare")
    # With a bound too high the sum would be so coarse that small changes vanish beside a large one.
    if terms.most_examples > sums.most_examples * len(terms.clients):
        raise Refused("it allows more samples than its clients may declare")
    return SumClient(terms, invited.node, sums.signer, sums.verifier, sums.keys())


def _masked(sums: ClientSums, machine: SumClient, trained: Trained) -> Masked:
    """Return a client's masked vector; whatever is wrong with its model stays with the client."""
    try:
        return machine.mask(_vector(sums, machine, trained))
    except ValueError:
        raise Refused("its model has no place in a sum", machine.client) from None


def _vector(sums: ClientSums, machine: SumClient, trained: Trained) -> Words:
    terms = machine.terms
    if terms.noise:
        stream = sums.randomness.stream("client noise", terms.lease_id, terms.round, machine.client)
        return Noised.of(terms).encode(trained.model, trained.base, stream)
    if not finite(trained.model):
        raise Refused("its model is not finite", machine.client)
    form = FixedPoint.of(terms)
    change = trained.model.astype(np.float64) - trained.base
    return form.encode(change, trained.examples)


def _expect(kind: type[Kind], request: object) -> Kind:
    if not isinstance(request, kind):
        raise Refused(f"it asks for {type(request).__name__}, and {kind.__name__} comes now")
    return request
