"""A secure sum whose messages a test holds in its hands."""

import copy

import numpy as np

from hiflash.privacy.sums.edge import Ask, Gone, Heard, SumEdge
from hiflash.privacy.sums.fixed_point import FixedPoint
from hiflash.privacy.sums.in_memory import answer, make_client
from hiflash.privacy.sums.messages import Terms
from hiflash.privacy.sums.signing import SeededVerifier

SEED = 7


def terms_of(clients=10, size=5, lease_id=3, **changes):
    numbers = tuple(range(10, 10 + clients))
    given = {"federation": "test", "edge": 1, "round": 0, "bound": 4.0, "most_examples": 64 * clients}
    return Terms(**({**given, "lease_id": lease_id, "clients": numbers, "size": size} | changes))


class Party:
    """An edge and its clients; `ask` is what the edge asks for now."""

    def __init__(self, terms=None, seed=SEED):
        self.terms = terms or terms_of()
        self.form = FixedPoint.of(self.terms)
        stream = np.random.default_rng(seed)
        self.changes = {c: stream.uniform(-3, 3, self.terms.size) for c in self.terms.clients}
        self.examples = {c: 1 + c % 60 for c in self.terms.clients}
        verifier = SeededVerifier(seed)
        self.clients = {c: make_client(self.terms, c, seed, verifier) for c in self.terms.clients}
        self.edge = SumEdge(self.terms, verifier, deadline_s=10.0)
        (self.ask,) = self.edge.start(0.0)
        self.now = 0.0

    def copy(self):
        return copy.deepcopy(self)

    def vector(self, client):
        return self.form.encode(self.changes[client], self.examples[client])

    def answer(self, client):
        """Return what an honest client answers to its present request."""
        return answer(self.clients[client], self.ask.requests[client], self.vector)

    def hear(self, client, said, sender=None):
        effects = self.edge.handle(Heard(client if sender is None else sender, said, self.now))
        for effect in effects:
            if isinstance(effect, Ask):
                self.ask = effect
        return effects

    def lose(self, client):
        effects = self.edge.handle(Gone(client, "test", self.now))
        for effect in effects:
            if isinstance(effect, Ask):
                self.ask = effect
        return effects

    def phase(self, without=()):
        """Let every client but some answer, and return the last effects."""
        effects = []
        for client in list(self.ask.requests):
            if effects:
                break
            effects = self.lose(client) if client in without else self.hear(client, self.answer(client))
        return effects

    def until(self, phase, *, loss=None):
        """Go on to a phase, in which nobody has answered yet; with a loss, the last client is lost at masked.

        Without a loss there is nothing to agree on.
        """
        loss = phase == "agree" if loss is None else loss
        while self.ask.phase != phase:
            self.phase(without=self.terms.clients[-1:] if loss and self.ask.phase == "masked" else ())
        return self

    def finish(self, without=()):
        """Go on to the end and return the last effect."""
        effects = self.phase(without)
        while effects and isinstance(effects[0], Ask):
            effects = self.phase()
        (last,) = effects
        return last

    def expected(self, clients):
        """Return the sum of these clients' vectors in whole numbers of Python."""
        vectors = [self.vector(client).tolist() for client in clients]
        return [sum(column) % 2**32 for column in zip(*vectors, strict=True)]
