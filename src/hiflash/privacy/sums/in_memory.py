"""A whole secure sum in this process: the same machines as over a network, with seeded keys.

The simulator opens its sums here. Clients that are late for a phase of an edge round are lost at that phase.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import assert_never

from hiflash.privacy.randomness import SeededRandomness
from hiflash.privacy.sums.client import SumClient
from hiflash.privacy.sums.edge import Abandoned, Ask, Gone, Heard, Opened, Rejected, SumEdge
from hiflash.privacy.sums.keys import Keys
from hiflash.privacy.sums.messages import (
    Answer,
    Boxes,
    Phase,
    Refused,
    Request,
    Roster,
    Survivors,
    Terms,
    Unmask,
    Words,
)
from hiflash.privacy.sums.signing import SeededSigner, SeededVerifier

__all__ = ["answer", "make_client", "sum_in_memory"]

NOBODY: Mapping[Phase, Collection[int]] = {}


def sum_in_memory(
    terms: Terms,
    seed: int,
    vector_of: Callable[[int], Words | None],
    lost: Mapping[Phase, Collection[int]] = NOBODY,
    quorum: int = 0,
) -> Opened | Abandoned:
    """Return the sum of the clients' vectors, or why it was abandoned.

    `vector_of` gives the vector of a client, None if it has none to send. `lost` names the clients that do
    not answer from a phase on. At least `quorum` vectors must be in the sum.
    """
    verifier = SeededVerifier(seed)
    edge = SumEdge(terms, verifier, quorum=quorum)
    clients = {client: make_client(terms, client, seed, verifier) for client in terms.clients}
    missing: set[int] = set()
    effects = edge.start(0.0)
    while True:
        (effect,) = effects
        match effect:
            case Ask():
                missing |= set(lost.get(effect.phase, ()))
                effects = []
                for number, request in effect.requests.items():
                    said = None if number in missing else answer(clients[number], request, vector_of)
                    event = Gone(number, "no answer", 0.0) if said is None else Heard(number, said, 0.0)
                    effects = effects or edge.handle(event)
            case Opened() | Abandoned():
                return effect
            case Rejected():
                raise Refused(effect.reason, effect.client)
            case _:
                assert_never(effect)


def make_client(terms: Terms, client: int, seed: int, verifier: SeededVerifier) -> SumClient:
    """Return a client whose keys follow from a seed, for one sum."""
    names = ("secure sum", terms.edge, terms.lease_id, terms.round, client)
    keys = Keys.fresh(SeededRandomness(seed, *names))
    return SumClient(terms, client, SeededSigner(seed, client), verifier, keys)


def answer(client: SumClient, request: Request, vector_of: Callable[[int], Words | None]) -> Answer | None:
    """Return a client's answer to any request, None if it has no vector to send."""
    match request:
        case Terms():
            return client.advertise()
        case Roster():
            return client.share(request)
        case Boxes():
            client.receive(request)
            vector = vector_of(client.client)
            return None if vector is None else client.mask(vector)
        case Survivors():
            return client.agree(request)
        case Unmask():
            return client.reveal(request)
    assert_never(request)
