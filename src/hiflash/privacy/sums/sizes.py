"""How many bytes the phases of a secure sum take, as the books of a run count them.

Only contents count, as with models: keys, hashes, shares, signatures, and 4 bytes for a client's number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from hiflash.privacy.sums.messages import (
    ADDED,
    BOX_BYTES,
    HASH_BYTES,
    KEY_BYTES,
    LEAST_CLIENTS,
    PHASES,
    TAG_BYTES,
    Phase,
    threshold,
)

__all__ = ["CREDENTIAL_BYTES", "SIGNATURE_BYTES", "PhaseBytes", "client_bytes", "ended_at", "round_bytes"]

SIGNATURE_BYTES = 72  # a signature with a P-256 key has at most so many
CREDENTIAL_BYTES = 512  # a client's certificate has about so many
NUMBER_BYTES = 4
SENT_BOX_BYTES = BOX_BYTES + 2 * HASH_BYTES  # with the hashes of its shares
ADVERT_BYTES = NUMBER_BYTES + 3 * KEY_BYTES + SIGNATURE_BYTES + CREDENTIAL_BYTES


class PhaseBytes(NamedTuple):
    """The bytes of one phase, to a client and from it. Models and masked values are not counted here."""

    down: int
    up: int


def client_bytes(phase: Phase, asked: int, there: int, dealers: int) -> PhaseBytes:
    """Return what one client gets and sends in a phase.

    A round has `asked` clients. `there` of them have answered all phases before, and `dealers` have dealt
    shares. If all of these have sent their vectors, there are no tags.
    """
    number = NUMBER_BYTES
    tags = 0 if there == dealers else (there - 1) * (number + TAG_BYTES)
    match phase:
        case "advertise":
            return PhaseBytes(number * asked, ADVERT_BYTES)
        case "share":
            return PhaseBytes(there * ADVERT_BYTES, there * (number + SENT_BOX_BYTES))
        case "masked":
            return PhaseBytes((there - 1) * (number + SENT_BOX_BYTES), 4 * ADDED)
        case "agree":
            return PhaseBytes(there * number if tags else 0, tags)
        case "unmask":
            return PhaseBytes(tags, dealers * (number + KEY_BYTES))


def round_bytes(asked: int, lost: Sequence[int], quorum: float = 0.0) -> dict[Phase, PhaseBytes]:
    """Return the bytes of every phase of a round over all clients; `lost` has how many each phase lost."""
    total, there, dealers, ends = {}, asked, asked - sum(lost[:2]), ended_at(asked, lost, quorum)
    for phase, gone in zip(PHASES, lost, strict=True):
        down, up = client_bytes(phase, asked, there, dealers)
        total[phase] = PhaseBytes(there * down, (there - gone) * up)
        there -= gone
        if phase == ends:
            break
    return total


def ended_at(asked: int, lost: Sequence[int], quorum: float = 0.0) -> Phase | None:
    """Return the phase that left too few clients to open the sum, None if there were always enough.

    `quorum` is the share of clients whose vectors must be in the sum.

    >>> ended_at(10, (1, 1, 1, 0, 0)), ended_at(10, (1, 1, 2, 0, 0)), ended_at(10, (0, 0, 2, 0, 0), 0.9)
    (None, 'masked', 'masked')
    """
    there = asked
    for phase, gone in zip(PHASES, lost, strict=True):
        there -= gone
        share = math.ceil(quorum * asked - 1e-9) if phase == "masked" else 0  # 0.28 * 25 is a bit over 7
        if asked < LEAST_CLIENTS or there < max(threshold(asked), share):
            return phase
    return None
