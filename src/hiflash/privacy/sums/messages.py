"""The messages of a secure sum, what the parties agree on, and how it is written as bytes to sign.

The phases follow one another: advertise, share, masked, agree, unmask. In each one the edge tells its clients
something, and every client that is still there answers once. If no client was lost at masked, agree is left
out: then only seeds are revealed, and they open nothing but the sum of all.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from hiflash.errors import ProtocolError
from hiflash.privacy.accounting import LARGEST_NOISE

__all__ = [
    "BOX_BYTES",
    "HASH_BYTES",
    "KEY_BYTES",
    "LEAST_CLIENTS",
    "MOST_CLIENTS",
    "MOST_EXAMPLES",
    "MOST_OF_A_CLIENT",
    "PHASES",
    "SEAL_BYTES",
    "TAG_BYTES",
    "Advertise",
    "Agreed",
    "Answer",
    "Box",
    "Boxes",
    "Masked",
    "Phase",
    "Refused",
    "Request",
    "Reveal",
    "Roster",
    "Shares",
    "Survivors",
    "Terms",
    "Unmask",
    "Words",
    "model_digest",
    "pack",
    "share_hash",
    "threshold",
]

Phase = Literal["advertise", "share", "masked", "agree", "unmask"]
PHASES: tuple[Phase, ...] = get_args(Phase)
LEAST_CLIENTS = 3  # with two, each learns the other's vector from the sum
MOST_CLIENTS = 1000  # a client deals a share to every other one
MOST_VALUES = 1 << 30
MOST_EXAMPLES = (1 << 31) - 1  # of all clients together
MOST_OF_A_CLIENT = 1 << 21  # samples; those of MOST_CLIENTS are below MOST_EXAMPLES
KEY_BYTES = HASH_BYTES = TAG_BYTES = 32
SEAL_BYTES = 16  # what sealing adds
BOX_BYTES = 2 * KEY_BYTES + SEAL_BYTES  # two shares under a seal
ADDED = 2  # words after the values: the sample count, and the number of clipped values

Words: TypeAlias = npt.NDArray[np.uint32]
"""A vector modulo 2^32."""


class Refused(ProtocolError):  # noqa: N818  # it says what was done with a message
    """A message that breaks the protocol of a secure sum; `culprit` is a client, None for the edge."""

    def __init__(self, reason: str, culprit: int | None = None) -> None:
        self.reason, self.culprit = reason, culprit
        super().__init__(f"{'the edge' if culprit is None else f'client {culprit}'}: {reason}")


def threshold(clients: int) -> int:
    """Return how many clients must stay until the end so that the sum can be opened: more than two thirds.

    >>> [threshold(clients) for clients in (3, 4, 10, 100)]
    [3, 3, 7, 67]
    """
    return 2 * clients // 3 + 1


@dataclass(frozen=True, slots=True)
class Terms:
    """What the parties of one sum agree on: who, where, when, and the form of the vectors.

    `clients` are those of the edge round, sorted; `size` is the number of values. A client's changes lie in
    `[-bound, bound]`, and all samples together are at most `most_examples`. With `noise` the sum is private
    (`noised.py`): changes are clipped to the norm `bound`, every client counts as one sample, and `noise` is
    the deviation of the noise in the sum, in clips. `model` is the digest of what all clients begin with: an
    edge that gives some of them another model gets no sum (`model_digest`).
    """

    federation: str
    edge: int
    lease_id: int
    round: int
    clients: tuple[int, ...]
    size: int
    bound: float
    most_examples: int
    noise: float = 0.0
    model: bytes = b""

    def check(self) -> None:
        """Raise `Refused` unless these terms make sense."""
        numbers, clients = (self.edge, self.lease_id, self.round, *self.clients), len(self.clients)
        if not all(type(number) is int and 0 <= number < 1 << 63 for number in numbers):
            raise Refused("the terms need whole numbers of at least 0")
        if not LEAST_CLIENTS <= clients <= MOST_CLIENTS:
            raise Refused(f"a secure sum has {LEAST_CLIENTS} to {MOST_CLIENTS} clients, this one {clients}")
        if list(self.clients) != sorted(set(self.clients)):
            raise Refused("the clients of the terms are not sorted, or one is there twice")
        if not 1 <= self.size <= MOST_VALUES:
            raise Refused(f"a vector has 1 to {MOST_VALUES} values, this one {self.size}")
        if not 0 < self.bound < math.inf:
            raise Refused(f"the bound of a change is a number > 0, this one {self.bound}")
        if not clients <= self.most_examples <= MOST_EXAMPLES:
            raise Refused(f"all samples together are {clients} to 2^31 - 1, these {self.most_examples}")
        if not 0 <= self.noise <= LARGEST_NOISE:
            raise Refused(f"the noise of a sum is 0 to {LARGEST_NOISE:g} clips, this one {self.noise}")
        if len(self.model) not in (0, HASH_BYTES):
            raise Refused(f"the digest of a model has {HASH_BYTES} bytes, this one {len(self.model)}")

    @property
    def threshold(self) -> int:
        """Return how many clients must stay until the end."""
        return threshold(len(self.clients))

    @property
    def words(self) -> int:
        """Return the length of a masked vector: the values, the sample count, the clipped values."""
        return self.size + ADDED

    def index(self, client: int) -> int:
        """Return the place of a client's shares on the polynomials: 1 for the first client."""
        return self.clients.index(client) + 1

    def context(self) -> bytes:
        """Return a hash of these terms: what is made for one sum is worth nothing in another."""
        return _context(self)


@dataclass(frozen=True, slots=True)
class Advertise:
    """A client's fresh public keys for masks and for boxes, and a commitment to the seed of its own mask.

    `signature` covers all of it and the terms; `credential` says whose signature it is.
    """

    client: int
    mask_key: bytes
    box_key: bytes
    commitment: bytes
    credential: bytes = b""
    signature: bytes = b""

    def content(self, terms: Terms) -> bytes:
        """Return what the client signs."""
        return pack(b"advertise", terms.context(), self.client, self.mask_key, self.box_key, self.commitment)


@dataclass(frozen=True, slots=True)
class Roster:
    """The edge passes the keys of all clients on, by client."""

    adverts: tuple[Advertise, ...]

    @property
    def clients(self) -> tuple[int, ...]:
        """Return who is in it."""
        return tuple(advert.client for advert in self.adverts)

    def digest(self, terms: Terms) -> bytes:
        """Return the hash of all that was advertised."""
        return hashlib.sha256(pack(*(advert.content(terms) for advert in self.adverts))).digest()


@dataclass(frozen=True, slots=True)
class Box:
    """The shares of one client for another, sealed, and hashes of them that the edge sees.

    By these hashes the edge knows who hands in a wrong share later.
    """

    sealed: bytes = field(repr=False)
    seed_hash: bytes
    key_hash: bytes


@dataclass(frozen=True, slots=True)
class Shares:
    """A client's boxes, by receiver; its own has only the hashes."""

    client: int
    boxes: Mapping[int, Box]


@dataclass(frozen=True, slots=True)
class Boxes:
    """The edge passes a client the boxes that are for it, by sender; nobody else sent shares in time."""

    boxes: Mapping[int, Box]


@dataclass(frozen=True, slots=True, eq=False)
class Masked:
    """A client's vector under its masks."""

    client: int
    vector: Words = field(repr=False)


@dataclass(frozen=True, slots=True)
class Survivors:
    """The edge names the clients whose masked vectors are in the sum."""

    clients: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Agreed:
    """A client's tags on all that it has seen of this sum: terms, keys, senders, survivors.

    There is one for every other survivor, which alone can check it.
    """

    client: int
    tags: Mapping[int, bytes]


@dataclass(frozen=True, slots=True)
class Unmask:
    """The edge shows a client the tags of the others: they all saw the same survivors.

    Without tags, all clients that dealt shares have sent their vectors.
    """

    tags: Mapping[int, bytes]


@dataclass(frozen=True, slots=True)
class Reveal:
    """A client's shares: of the survivors' seeds and of the other clients' mask keys. Never both of one."""

    client: int
    seeds: Mapping[int, bytes] = field(repr=False)
    keys: Mapping[int, bytes] = field(repr=False)


Answer: TypeAlias = Advertise | Shares | Masked | Agreed | Reveal
Request: TypeAlias = Terms | Roster | Boxes | Survivors | Unmask


def share_hash(terms: Terms, kind: str, dealer: int, holder: int, share: bytes) -> bytes:
    """Return the hash of a share of a kind, `seed` or `key`; a share is too long to be guessed from it."""
    return hashlib.sha256(pack(b"share", terms.context(), kind, dealer, holder, share)).digest()


def model_digest(model: bytes, beside: Iterable[tuple[str, Sequence[int], bytes]] = ()) -> bytes:
    """Return the hash of a model and of the arrays beside it: name, shape and values of each."""
    digest = hashlib.sha256(pack(len(model)))
    digest.update(model)
    for name, shape, values in beside:
        digest.update(pack(name, *shape, values))
    return digest.digest()


def pack(*fields: bytes | str | int) -> bytes:
    """Return fields as bytes, each with its kind and length: two lists never give the same bytes.

    >>> pack("ab", "c") == pack("a", "bc")
    False
    """
    parts = []
    for each in fields:
        if isinstance(each, int):
            kind, value = b"i", each.to_bytes(8, "big")
        else:
            kind, value = (b"s", each.encode()) if isinstance(each, str) else (b"b", each)
        parts += [kind, len(value).to_bytes(4, "big"), value]
    return b"".join(parts)


@lru_cache(maxsize=256)
def _context(terms: Terms) -> bytes:
    said = pack(
        b"hiflash secure sum 1", terms.federation, terms.edge, terms.lease_id, terms.round, terms.size,
        float(terms.bound).hex(), terms.most_examples, float(terms.noise).hex(), terms.model, *terms.clients,
    )  # fmt: skip
    return hashlib.sha256(said).digest()
