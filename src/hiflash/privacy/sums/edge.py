"""An edge of a secure sum as a state machine: it passes messages on, and opens the sum of those that stay.

Every phase has a deadline. It ends when all have answered or left, or at the deadline with those that have
answered. Below the threshold the sum is abandoned: shares were not revealed, or too few to open anything. A
message that breaks the protocol is refused and changes nothing; its sender may still answer properly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never

import numpy as np

from hiflash.privacy.sums.client import check_advert
from hiflash.privacy.sums.fixed_point import Summed
from hiflash.privacy.sums.masks import add_mask, commit, load_key, pair_key, public_key, self_key
from hiflash.privacy.sums.messages import (
    BOX_BYTES,
    HASH_BYTES,
    PHASES,
    TAG_BYTES,
    Advertise,
    Agreed,
    Answer,
    Boxes,
    Masked,
    Phase,
    Refused,
    Request,
    Reveal,
    Roster,
    Shares,
    Survivors,
    Terms,
    Unmask,
    share_hash,
)
from hiflash.privacy.sums.noised import NoisedSum, decode
from hiflash.privacy.sums.shares import SECRET_BYTES, combine
from hiflash.privacy.sums.signing import Verifier

__all__ = [
    "Abandoned",
    "Ask",
    "Gone",
    "Heard",
    "Opened",
    "Rejected",
    "SumEdge",
    "SumEffect",
    "SumEvent",
    "TimeUp",
]


@dataclass(frozen=True, slots=True)
class Heard:
    """A client's answer has come. `client` is who sent it, as the transport has proved."""

    client: int
    answer: Answer
    now: float


@dataclass(frozen=True, slots=True)
class Gone:
    """A client has left, or has refused to go on."""

    client: int
    reason: str
    now: float


@dataclass(frozen=True, slots=True)
class TimeUp:
    """The deadline of a phase has passed."""

    phase: Phase
    now: float


@dataclass(frozen=True, slots=True)
class Ask:
    """A new phase: each client gets its request, and has until `deadline` to answer."""

    phase: Phase
    requests: dict[int, Request] = field(repr=False)
    deadline: float


@dataclass(frozen=True, slots=True)
class Rejected:
    """A message was refused, and why."""

    client: int
    phase: Phase
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """The sum, and the clients whose vectors are in it."""

    summed: Summed | NoisedSum
    clients: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The sum will not be opened, and why."""

    phase: Phase
    reason: str


SumEvent: TypeAlias = Heard | Gone | TimeUp
SumEffect: TypeAlias = Ask | Rejected | Opened | Abandoned


class SumEdge:
    """The edge of one secure sum. Events enter through `handle` only.

    At least `quorum` vectors must be in the sum; the threshold holds in any case.
    `lost` has the clients that each phase has lost, `refusals` why clients left and messages were refused.
    """

    def __init__(
        self, terms: Terms, verifier: Verifier, deadline_s: float = math.inf, quorum: int = 0
    ) -> None:
        terms.check()
        self.terms, self.verifier, self.deadline_s = terms, verifier, deadline_s
        self.quorum = quorum
        self.phase: Phase | None = None  # None before the start and after the end
        self.expected: tuple[int, ...] = ()
        self.answers: dict[int, Answer] = {}
        self.gone: set[int] = set()
        self.lost: dict[Phase, tuple[int, ...]] = {}
        self.refusals: list[str] = []
        self.roster = Roster(())
        self.shares: dict[int, Shares] = {}
        self.survivors: tuple[int, ...] = ()
        self._total = np.zeros(terms.words, np.uint32)

    def start(self, now: float) -> list[SumEffect]:
        """Ask all clients for their keys."""
        return [self._begin("advertise", dict.fromkeys(self.terms.clients, self.terms), now)]

    def handle(self, event: SumEvent) -> list[SumEffect]:
        """Take one event and return its effects."""
        match event:
            case Heard():
                return self._hear(event)
            case Gone():
                if self.phase is None or event.client not in self.expected or event.client in self.answers:
                    return []
                self.gone.add(event.client)
                self.refusals.append(f"client {event.client} left at {self.phase}: {event.reason}")
                return self._close_if_complete(event.now)
            case TimeUp():
                return self._close(event.now) if event.phase == self.phase else []
        assert_never(event)

    def abandon(self, reason: str) -> Abandoned:
        """Give the sum up: whoever drives this machine cannot go on."""
        return self._abandon(self.phase or PHASES[-1], reason)

    @property
    def needed(self) -> int:
        """Return how many clients must answer in this phase."""
        return max(self.terms.threshold, self.quorum if self.phase == "masked" else 0)

    def _begin(self, phase: Phase, requests: dict[int, Request], now: float) -> Ask:
        self.phase, self.expected, self.answers, self.gone = phase, tuple(sorted(requests)), {}, set()
        return Ask(phase, requests, now + self.deadline_s)

    def _hear(self, heard: Heard) -> list[SumEffect]:
        phase = self.phase
        if phase is None:
            return [Rejected(heard.client, PHASES[-1], "this sum is over")]
        try:
            self._check(heard)
        except Refused as refused:
            reason = refused.reason
            if refused.culprit is not None and refused.culprit != heard.client:
                reason = str(refused)
            self.refusals.append(f"client {heard.client} was refused at {phase}: {reason}")
            return [Rejected(heard.client, phase, reason)]
        if isinstance(heard.answer, Masked):
            self._total += heard.answer.vector  # a hundred models would not fit
            self.answers[heard.client] = Masked(heard.client, heard.answer.vector[:0])
        else:
            self.answers[heard.client] = heard.answer
        self.gone.discard(heard.client)
        return self._close_if_complete(heard.now)

    def _check(self, heard: Heard) -> None:
        """Raise unless an answer belongs to this phase and to its sender, and holds what it must."""
        answer, client, terms = heard.answer, heard.client, self.terms
        if answer.client != client:
            raise Refused(f"it answers in the name of client {answer.client}", client)
        if client not in self.expected:
            raise Refused(f"it is not asked at {self.phase}", client)
        if client in self.answers:
            raise Refused("it has answered already", client)
        match answer, self.phase:
            case Advertise(), "advertise":
                check_advert(answer, terms, self.verifier)
                self._check_new(answer)
            case Shares(), "share":
                self._check_shares(answer)
            case Masked(), "masked":
                if answer.vector.dtype.str != "<u4" or answer.vector.shape != (terms.words,):
                    got = f"{answer.vector.shape} of {answer.vector.dtype}"
                    raise Refused(
                        f"a masked vector has {terms.words} words of 32 bits, this one {got}", client
                    )
            case Agreed(), "agree":  # only their receivers can check the tags
                if set(answer.tags) != set(self.survivors) - {client} or not _all_tags(answer.tags):
                    raise Refused("it has tags for others than the survivors, or of another length", client)
            case Reveal(), "unmask":
                self._check_reveal(answer)
            case _:
                raise Refused(f"it sends {type(answer).__name__} at {self.phase}", client)

    def _check_new(self, answer: Advertise) -> None:
        """Raise if a client advertises a key of another one: no client would take both from its edge."""
        mine = {answer.mask_key, answer.box_key}
        for other, said in self.answers.items():
            if isinstance(said, Advertise) and mine & {said.mask_key, said.box_key}:
                raise Refused(f"one of its keys is also one of client {other}", answer.client)

    def _check_shares(self, answer: Shares) -> None:
        if tuple(sorted(answer.boxes)) != self.roster.clients:
            raise Refused("it has boxes for others than the roster", answer.client)
        for receiver, box in answer.boxes.items():
            sizes = (len(box.sealed), len(box.seed_hash), len(box.key_hash))
            if sizes != (0 if receiver == answer.client else BOX_BYTES, HASH_BYTES, HASH_BYTES):
                raise Refused(f"its box for client {receiver} has the wrong length", answer.client)

    def _check_reveal(self, answer: Reveal) -> None:
        client, lost = answer.client, set(self.shares) - set(self.survivors)
        if set(answer.seeds) != set(self.survivors) or set(answer.keys) != lost:
            raise Refused("it reveals shares of others than it was asked for", client)
        for kind, shares in (("seed", answer.seeds), ("key", answer.keys)):
            for dealer, share in shares.items():
                box = self.shares[dealer].boxes[client]
                wanted = box.seed_hash if kind == "seed" else box.key_hash
                if share_hash(self.terms, kind, dealer, client, share) != wanted:
                    raise Refused(f"its share of client {dealer}'s {kind} is wrong", client)
                if len(share) != SECRET_BYTES:  # its dealer has told the hash of such a one
                    raise Refused(f"its share of client {dealer}'s {kind} has {len(share)} bytes", client)

    def _close_if_complete(self, now: float) -> list[SumEffect]:
        here, needed = len(self.answers), self.needed
        complete = here + len(self.gone) >= len(self.expected)
        hopeless = len(self.expected) - len(self.gone) < needed
        opens = self.phase == "unmask" and here >= needed
        return self._close(now) if complete or hopeless or opens else []

    def _close(self, now: float) -> list[SumEffect]:
        phase, answers = self.phase, dict(sorted(self.answers.items()))
        if phase is None:
            return []
        if phase != "unmask":  # it ends as soon as enough have answered
            self.lost[phase] = tuple(client for client in self.expected if client not in answers)
        if len(answers) < self.needed:
            self.lost[phase] = tuple(client for client in self.expected if client not in answers)
            return [self._abandon(phase, self._too_few(phase, len(answers)))]
        if phase == "unmask":
            return [self._open([a for a in answers.values() if isinstance(a, Reveal)])]
        return [self._next(phase, answers, now)]

    def _next(self, phase: Phase, answers: dict[int, Answer], now: float) -> SumEffect:
        clients = tuple(answers)
        match phase:
            case "advertise":
                self.roster = Roster(tuple(a for a in answers.values() if isinstance(a, Advertise)))
                return self._begin("share", dict.fromkeys(clients, self.roster), now)
            case "share":
                self.shares = {c: a for c, a in answers.items() if isinstance(a, Shares)}
                return self._begin("masked", {client: self._boxes(client) for client in clients}, now)
            case "masked":
                self.survivors = clients
                if len(clients) == len(self.shares):  # no key will be revealed
                    return self._begin("unmask", dict.fromkeys(clients, Unmask({})), now)
                return self._begin("agree", dict.fromkeys(clients, Survivors(clients)), now)
            case _:
                agreed = {c: a for c, a in answers.items() if isinstance(a, Agreed)}
                return self._begin("unmask", {client: _tags(agreed, client) for client in clients}, now)

    def _boxes(self, client: int) -> Boxes:
        return Boxes({c: sent.boxes[client] for c, sent in self.shares.items() if c != client})

    def _advert(self, client: int) -> Advertise:
        return next(advert for advert in self.roster.adverts if advert.client == client)

    def _too_few(self, phase: Phase, answered: int) -> str:
        left, needed = len(self.expected) - len(self.gone), self.needed
        here = (
            f"{answered} of {{}} clients have answered"
            if left >= needed
            else f"{left} of {{}} clients are left"
        )
        why = f"; {'; '.join(self.refusals[-3:])}" if self.refusals else ""
        return f"{here.format(len(self.terms.clients))} at {phase}, and {needed} are needed{why}"

    def _abandon(self, phase: Phase, reason: str) -> Abandoned:
        self.phase, self.expected, self.answers = None, (), {}
        self._total = self._total[:0]
        return Abandoned(phase, reason)

    def _open(self, reveals: Sequence[Reveal]) -> SumEffect:
        """Take all masks away: the survivors' own, and those between survivors and lost clients."""
        try:
            self._unmask(reveals[: self.terms.threshold])
            summed = decode(self.terms, self._total, len(self.survivors))
        except Refused as refused:
            return self._abandon("unmask", refused.reason if refused.culprit is None else str(refused))
        self.phase, self.expected, self.answers = None, (), {}
        return Opened(summed, self.survivors)

    def _unmask(self, reveals: Sequence[Reveal]) -> None:
        terms, total = self.terms, self._total
        indices = tuple(terms.index(reveal.client) for reveal in reveals)
        lost = tuple(client for client in self.shares if client not in self.survivors)
        seeds = combine(indices, [[reveal.seeds[client] for reveal in reveals] for client in self.survivors])
        for client, seed in zip(self.survivors, seeds, strict=True):
            if commit(seed, terms, client) != self._advert(client).commitment:
                raise Refused("the shares that it dealt do not give the seed of its mask", client)
            add_mask(total, self_key(seed, terms, client), minus=True)
        keys = combine(indices, [[reveal.keys[client] for reveal in reveals] for client in lost])
        for client, key in zip(lost, keys, strict=True):
            secret = load_key(key)
            if public_key(secret) != self._advert(client).mask_key:
                raise Refused("the shares that it dealt do not give the key of its masks", client)
            for other in self.survivors:  # `other` has added this mask if its number is smaller
                mask = pair_key(secret, self._advert(other).mask_key, terms, client, other)
                add_mask(total, mask, minus=other < client)


def _tags(agreed: Mapping[int, Agreed], client: int) -> Unmask:
    """Return the tags that are for one client."""
    return Unmask({other: said.tags[client] for other, said in agreed.items() if other != client})


def _all_tags(tags: Mapping[int, bytes]) -> bool:
    return all(len(each) == TAG_BYTES for each in tags.values())
