"""Random histories of a secure sum: answers in any order, lost, late, doubled, replayed, foreign, changed."""

import dataclasses
from functools import cache

import numpy as np
import pytest

pytest.importorskip("Crypto", reason='needs pip install "hiflash[serve]"')
pytest.importorskip("cryptography", reason='needs pip install "hiflash[serve]"')

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hiflash.privacy.sums.edge import Abandoned, Ask, Opened, Rejected, TimeUp
from hiflash.privacy.sums.messages import PHASES, Box, Refused, Reveal, Shares, share_hash
from privacy.sums.parties import Party, terms_of

CLIENTS = 5
clients = st.sampled_from(range(10, 10 + CLIENTS))


def change(value, draw):
    """Return a message with one of its fields changed."""
    if isinstance(value, bytes):
        if not value or draw(st.booleans()):
            return value + b"x" if not value or draw(st.booleans()) else value[:-1]
        place = draw(st.integers(0, len(value) - 1))
        return value[:place] + bytes([value[place] ^ draw(st.integers(1, 255))]) + value[place + 1 :]
    if isinstance(value, np.ndarray):
        return value[: draw(st.integers(0, value.size - 1))]
    if isinstance(value, dict):
        if not value:
            return {99: b""}
        key = draw(st.sampled_from(sorted(value)))
        if draw(st.booleans()):
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: change(value[key], draw)}
    if isinstance(value, Box):
        name = draw(st.sampled_from(["sealed", "seed_hash", "key_hash"]))
        return dataclasses.replace(value, **{name: change(getattr(value, name), draw)})
    raise TypeError(value)


class SumMachine(RuleBasedStateMachine):
    """The edge may meet anything from five clients. A sum that it opens is the sum of honest vectors."""

    @initialize(phase=st.sampled_from(PHASES), loss=st.booleans())
    def begin(self, phase, loss):
        self.party = Party(terms_of(CLIENTS, size=20)).until(phase, loss=loss or phase == "agree")
        self.seen = older_answers()  # for replays
        self.left = set(self.party.terms.clients) - set(self.party.ask.requests)
        self.last = None
        self.named = []  # the clients that others blame
        self.had = {}  # the answers of this phase: a client answers a request once
        self.own = {}  # what clients have dealt themselves in place of a share of their seed

    def took(self, effects):
        for effect in effects:
            if isinstance(effect, Ask):
                self.party.ask, self.had = effect, {}
            elif not isinstance(effect, Rejected):
                assert self.last is None
                self.last = effect

    def honest(self, client):
        """Return what a client answers, None if it refuses to go on."""
        if client not in self.had:
            try:
                said = self.party.answer(client)
                if isinstance(said, Reveal) and client in self.own:
                    said = Reveal(client, {**said.seeds, client: self.own[client]}, said.keys)
                self.had[client] = said
                self.seen.append(said)
            except Refused as refused:
                self.had[client] = None
                if self.party.ask.phase == "masked":  # somebody's box was changed, and its sender is known
                    self.named.append(refused.culprit)
        return self.had[client]

    def asked(self, client):
        return self.last is None and client in self.party.ask.requests and client not in self.left

    def say(self, client):
        said = self.honest(client)
        self.took(self.party.lose(client) if said is None else self.party.hear(client, said))

    @rule(client=clients)
    def answers(self, client):
        if self.asked(client):
            self.say(client)

    @precondition(lambda self: self.last is None)
    @rule(count=st.integers(3, CLIENTS))
    def most_answer(self, count):
        phase = self.party.ask.phase
        for client in sorted(self.party.ask.requests)[:count]:
            if self.asked(client) and self.party.ask.phase == phase:
                self.say(client)

    @rule(client=clients, data=st.data())
    def answers_with_a_change(self, client, data):
        if not self.asked(client) or (said := self.honest(client)) is None:
            return
        names = [
            field.name for field in dataclasses.fields(said) if field.name not in ("client", "credential")
        ]
        name = data.draw(st.sampled_from(names))
        changed = dataclasses.replace(said, **{name: change(getattr(said, name), data.draw)})
        self.took(self.party.hear(client, changed))

    @rule(client=clients, share=st.binary(max_size=40))
    def deals_itself_another_share(self, client, share):
        """Nobody opens a client's own box, so only the edge can tell that its hash is of nonsense."""
        phase, said = self.party.ask.phase, self.asked(client) and self.honest(client)
        if phase != "share" or not said or client in self.party.edge.answers:
            return
        seed_hash = share_hash(self.party.terms, "seed", client, client, share)
        box = dataclasses.replace(said.boxes[client], seed_hash=seed_hash)
        self.own[client] = share
        self.took(self.party.hear(client, Shares(client, {**said.boxes, client: box})))

    @rule(client=clients, data=st.data())
    def replays(self, client, data):
        if self.last is None:
            self.took(self.party.hear(client, data.draw(st.sampled_from(self.seen))))

    @rule(client=clients)
    def leaves(self, client):
        if self.asked(client):
            self.left.add(client)
            self.took(self.party.lose(client))

    @precondition(lambda self: self.last is None)
    @rule(anyway=st.integers(0, 9))
    def time_is_up(self, anyway):
        if len(self.party.edge.answers) >= 4 or not anyway:  # most histories should go on
            self.took(self.party.edge.handle(TimeUp(self.party.ask.phase, 99.0)))

    @invariant()
    def the_sum_is_right_or_there_is_none(self):
        assert None not in self.named
        if isinstance(self.last, Opened):
            assert len(self.last.clients) >= 4  # floor(2 * 5 / 3) + 1
            assert self.party.edge._total.tolist() == self.party.expected(self.last.clients)
        if isinstance(self.last, Abandoned):
            assert self.last.reason
            assert self.party.edge._total.size == 0


@cache
def _older_answers():
    old, answers = Party(terms_of(CLIENTS, size=20, lease_id=2)), []
    while True:
        phase = old.ask.phase
        answers += [old.copy().answer(client) for client in old.ask.requests]
        if phase == "unmask":
            return answers
        old.phase(without=(14,) if phase == "masked" else ())


def older_answers():
    return list(_older_answers())


SumMachine.TestCase.settings = settings(max_examples=250, stateful_step_count=30, deadline=None)
TestSumMachine = SumMachine.TestCase
