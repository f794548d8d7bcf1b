"""The sum of a group's vectors, without any single one: pairwise masks that cancel, exact after dropouts.

Every two members share a key; one adds its mask, the other subtracts it. Each member also adds a mask of its
own, so that a vector which arrives after its member was counted as dropped stays hidden. To open the sum the
members that are left give the keys of their own masks, and the keys that they share with those who dropped.
Whoever adds learns the sum of at least `least` members and nothing else; fewer are never added.

This is the form for groups that agree on keys beforehand and stay until the sum is opened. A member that
leaves in between leaves no sum: its key is nowhere else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hiflash.errors import ProtocolError
from hiflash.privacy.histograms import Counts, Floats, Histograms
from hiflash.privacy.noise import NoiseSource

__all__ = ["LEAST", "GroupMember", "SumOf", "Unmasked", "group_histograms", "masked_sums", "open_sum"]

Words = npt.NDArray[np.uint64]
SumOf = Callable[[Mapping[int, Words], Collection[int]], Words | None]
"""From the vectors of a group and those who drop out to the sum of the others; None if too few are left."""

LEAST = 3  # of two, each knows the other's vector from the sum
KEY_BYTES = 32
FRACTION = 2.0**16
"""Sums are of whole numbers: noise has a grid of 2^-16 samples, so a count of whole samples stays exact."""


@dataclass(frozen=True)
class Unmasked:
    """What a member gives to open a sum: the key of its own mask, and those shared with the dropped."""

    own: bytes
    shared: Mapping[int, bytes]


class GroupMember:
    """A member of a group: it masks one vector, and opens one sum.

    `keys` has the key that it shares with every other member.
    """

    def __init__(self, number: int, keys: Mapping[int, bytes], own: bytes, least: int = LEAST) -> None:
        self.number = number
        self.keys = dict(keys)
        self.own = own
        self.least = max(least, LEAST)
        self._masked = self._opened = False

    def masked(self, vector: Words) -> Words:
        """Return the vector under all masks; a second one under the same masks would reveal a difference."""
        if self._masked:
            raise ProtocolError(f"member {self.number} has sent its vector already; begin with new keys")
        self._masked = True
        hidden = vector + _mask(self.own, len(vector))
        for other, key in self.keys.items():
            mask = _mask(key, len(vector))
            hidden = hidden + mask if self.number < other else hidden - mask
        return hidden

    def unmasked(self, left: Collection[int]) -> Unmasked:
        """Return what opens the sum of those who are `left`: once, and never of too few."""
        group = {self.number, *self.keys}
        if self._opened or not group.issuperset(left) or self.number not in left:
            raise ProtocolError(f"member {self.number} opens one sum, of its own group and with itself in it")
        if len(set(left)) < self.least:
            raise ProtocolError(f"member {self.number} opens no sum of fewer than {self.least} members")
        self._opened = True
        return Unmasked(self.own, {other: key for other, key in self.keys.items() if other not in left})


def open_sum(hidden: Mapping[int, Words], opened: Mapping[int, Unmasked]) -> Words:
    """Return the sum of the vectors of all members that have opened it."""
    total = np.zeros_like(next(iter(hidden.values())))
    for number, given in opened.items():
        total = total + hidden[number] - _mask(given.own, len(total))
        for other, key in given.shared.items():
            mask = _mask(key, len(total))
            total = total - mask if number < other else total + mask
    return total


def masked_sums(source: NoiseSource, least: int = LEAST) -> SumOf:
    """Return a function that adds the vectors of a group, all members in one process."""

    def sum_of(vectors: Mapping[int, Words], dropped: Collection[int] = ()) -> Words | None:
        members = _members(sorted(vectors), source, least)
        left = [number for number in members if number not in dropped]
        if len(left) < max(least, LEAST):
            return None
        hidden = {number: members[number].masked(vectors[number]) for number in left}
        return open_sum(hidden, {number: members[number].unmasked(left) for number in left})

    return sum_of


def group_histograms(
    counts: Counts, groups: Sequence[Sequence[int]], histograms: Histograms, source: NoiseSource, least: int
) -> Counts:
    """Return the histogram of every group, opened as one sum; no member's own is ever seen.

    Noise is sized for `least` members, so that it suffices if some drop out.
    """
    sent = histograms.sent(counts, source, shares=least)
    sum_of = masked_sums(source, least)
    rows: list[Floats] = []
    for group in groups:
        vectors = {client: _to_words(sent[client]) for client in group}
        total = sum_of(vectors, ())
        if total is None:
            raise ProtocolError(f"a group of {len(group)} clients is not added; {least} are the fewest")
        rows.append(_from_words(total))
    members = np.array([len(group) for group in groups], np.float64)
    return histograms.read(np.array(rows), members)


def _members(numbers: Sequence[int], source: NoiseSource, least: int) -> dict[int, GroupMember]:
    """Return the members of a group that have agreed on keys."""
    keys: dict[int, dict[int, bytes]] = {number: {} for number in numbers}
    for place, one in enumerate(numbers):
        for other in numbers[place + 1 :]:
            keys[one][other] = keys[other][one] = source.token(KEY_BYTES)
    return {number: GroupMember(number, keys[number], source.token(KEY_BYTES), least) for number in numbers}


def _mask(key: bytes, length: int) -> Words:
    return np.frombuffer(hashlib.shake_256(key).digest(8 * length), np.dtype("<u8")).astype(np.uint64)


def _to_words(values: Floats) -> Words:
    return np.rint(values * FRACTION).astype(np.int64).view(np.uint64)


def _from_words(words: Words) -> Floats:
    return words.view(np.int64) / FRACTION
