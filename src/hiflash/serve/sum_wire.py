"""The messages of secure sums to bytes and back, with limits: what breaks the format raises `Malformed`.

No list in a message is longer than the sum has clients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar, assert_never

import numpy as np

from hiflash.messages import Round
from hiflash.privacy.sums.messages import (
    MOST_CLIENTS,
    PHASES,
    Advertise,
    Agreed,
    Answer,
    Box,
    Boxes,
    Masked,
    Phase,
    Request,
    Reveal,
    Roster,
    Shares,
    Survivors,
    Terms,
    Unmask,
    model_digest,
)
from hiflash.serve import wire_pb2 as pb
from hiflash.serve.wire import Malformed, Wire

__all__ = [
    "answer_of",
    "begins_with",
    "phase_of",
    "read_answer",
    "read_request",
    "read_sum",
    "read_terms",
    "request_of",
    "sum_terms",
    "terms_of",
]

Kept = TypeVar("Kept")


def terms_of(terms: Terms) -> pb.SumTerms:
    """Return the terms of a sum as they travel with a task."""
    return pb.SumTerms(
        edge=terms.edge, clients=terms.clients, bound=terms.bound, most_examples=terms.most_examples
    )


def read_terms(told: pb.Task, federation: str, size: int, noise: float = 0.0) -> Terms:
    """Return the terms of the sum that a task ends in.

    The noise is what the client itself knows, and the digest that of the model which it got.
    """
    given = told.sum
    clients = tuple(_at_most(given.clients, MOST_CLIENTS + 1))  # the terms say what is wrong with more
    place = (given.edge, told.lease_id, told.round)
    model = begins_with(told.model, told.extra)
    return Terms(federation, *place, clients, size, given.bound, given.most_examples, noise, model)


def answer_of(answer: Answer, place: tuple[int, int], wait_s: float, compute_s: float = 0.0) -> pb.Sum:
    """Return a client's answer as it travels; `place` has lease and round."""
    sent = pb.Sum(node=answer.client, lease_id=place[0], round=place[1], wait_s=wait_s, compute_s=compute_s)
    match answer:
        case Advertise():
            sent.phase = PHASES.index("advertise")
            sent.advert.CopyFrom(_advert(answer))
        case Shares():
            sent.phase = PHASES.index("share")
            sent.boxes.extend(_boxes(answer.boxes))
        case Masked():
            sent.phase, sent.masked = PHASES.index("masked"), answer.vector.tobytes()
        case Agreed():
            sent.phase = PHASES.index("agree")
            sent.tags.extend(_shares(answer.tags))
        case Reveal():
            sent.phase = PHASES.index("unmask")
            sent.seeds.extend(_shares(answer.seeds))
            sent.keys.extend(_shares(answer.keys))
        case _:
            assert_never(answer)
    return sent


def begins_with(model: bytes, extra: Sequence[pb.Array]) -> bytes:
    """Return the digest of a model and of what is beside it, as they travel with a task."""
    return model_digest(model, ((each.name, each.shape, each.values) for each in extra))


def read_sum(wire: Wire, body: bytes) -> pb.Sum:
    """Return a client's call in a secure sum; nothing but a masked vector makes it long."""
    sent = wire.read(pb.Sum, body)
    if len(body) - len(sent.masked) > wire.most_sum_bytes or (sent.masked and phase_of(sent) != "masked"):
        raise Malformed(f"{len(body)} bytes at {phase_of(sent)} of a secure sum")
    return sent


def read_answer(sent: pb.Sum, words: int, clients: int) -> Answer:
    """Return the answer in a message of a sum with so many clients; a masked vector has so many words."""
    phase = phase_of(sent)
    match phase:
        case "advertise":
            return _read_advert(sent.advert)
        case "share":
            return Shares(sent.node, _read_boxes(sent.boxes, clients))
        case "masked":
            if len(sent.masked) != 4 * words:
                raise Malformed(f"a masked vector of {len(sent.masked)} bytes, expected {4 * words}")
            return Masked(sent.node, np.frombuffer(sent.masked, "<u4"))
        case "agree":
            return Agreed(sent.node, _read_shares(sent.tags, clients))
        case "unmask":
            return Reveal(sent.node, _read_shares(sent.seeds, clients), _read_shares(sent.keys, clients))
    assert_never(phase)


def phase_of(sent: pb.Sum | pb.SumTold) -> Phase:
    """Return the phase that a message belongs to."""
    if sent.phase >= len(PHASES):
        raise Malformed(f"a phase {sent.phase}, there are {len(PHASES)}")
    return PHASES[sent.phase]


def request_of(request: Request, phase: int) -> pb.SumTold:
    """Return what an edge asks for in a phase as it travels; terms go with the task."""
    told = pb.SumTold(present=True, phase=phase)
    match request:
        case Roster():
            told.roster.extend(map(_advert, request.adverts))
        case Boxes():
            told.boxes.extend(_boxes(request.boxes))
        case Survivors():
            told.survivors.extend(request.clients)
        case Unmask():
            told.tags.extend(_shares(request.tags))
        case Terms():
            raise TypeError("the terms of a sum go with the task")
        case _:
            assert_never(request)
    return told


def read_request(told: pb.SumTold, clients: int) -> Roster | Boxes | Survivors | Unmask:
    """Return what an edge asks for in a sum of so many clients."""
    phase = phase_of(told)
    match phase:
        case "share":
            return Roster(tuple(map(_read_advert, _at_most(told.roster, clients))))
        case "masked":
            return Boxes(_read_boxes(told.boxes, clients))
        case "agree":
            return Survivors(tuple(_at_most(told.survivors, clients)))
        case "unmask":
            return Unmask(_read_shares(told.tags, clients))
        case "advertise":
            raise Malformed("the terms of a sum go with the task")
    assert_never(phase)


def sum_terms(
    opened: Round,
    federation: str,
    size: int,
    bound: float,
    examples: Mapping[int, int],
    model: bytes,
    noise: float = 0.0,
) -> Terms:
    """Return the terms of a round's sum; `examples` are the most samples of each client, `model` a digest."""
    clients = tuple(each.client for each in opened.work)
    most = sum(examples[client] for client in clients)
    place = (opened.edge, opened.lease_id, opened.index)
    return Terms(federation, *place, clients, size, bound, most, noise, model)


def _advert(advert: Advertise) -> pb.Advert:
    return pb.Advert(
        client=advert.client,
        mask_key=advert.mask_key,
        box_key=advert.box_key,
        commitment=advert.commitment,
        credential=advert.credential,
        signature=advert.signature,
    )


def _read_advert(sent: pb.Advert) -> Advertise:
    return Advertise(
        sent.client, sent.mask_key, sent.box_key, sent.commitment, sent.credential, sent.signature
    )


def _boxes(boxes: Mapping[int, Box]) -> list[pb.SealedBox]:
    return [
        pb.SealedBox(client=client, sealed=box.sealed, seed_hash=box.seed_hash, key_hash=box.key_hash)
        for client, box in boxes.items()
    ]


def _read_boxes(sent: Sequence[pb.SealedBox], most: int) -> dict[int, Box]:
    found = {each.client: Box(each.sealed, each.seed_hash, each.key_hash) for each in _at_most(sent, most)}
    return _once(found, len(sent), "boxes")


def _shares(shares: Mapping[int, bytes]) -> list[pb.Share]:
    return [pb.Share(client=client, value=value) for client, value in shares.items()]


def _read_shares(sent: Sequence[pb.Share], most: int) -> dict[int, bytes]:
    return _once({each.client: each.value for each in _at_most(sent, most)}, len(sent), "shares")


def _at_most(sent: Sequence[Kept], most: int) -> Sequence[Kept]:
    if len(sent) > most:
        raise Malformed(f"a list of {len(sent)}, and the sum has {most} clients")
    return sent


def _once(found: dict[int, Kept], sent: int, what: str) -> dict[int, Kept]:
    if len(found) < sent:
        raise Malformed(f"two {what} of one client")
    return found
