"""Random histories of an edge: updates in any order, repeated, lost, late, foreign, not finite."""

import copy
import dataclasses
import math

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hiflash.core.aggregation import combine_clients
from hiflash.core.edge import Edge, EdgeRules, Workload
from hiflash.messages import (
    Abandon,
    Ask,
    Cancel,
    CheckIn,
    ClientUpdate,
    Deadline,
    Estimates,
    Grant,
    Proceed,
    Progress,
    Received,
    Refuse,
    Round,
    Upload,
    Verdict,
)

CLIENTS = {3: 8, 5: 4, 6: 2, 9: 1, 11: 1}  # examples of each
clients = st.sampled_from(sorted(CLIENTS))


def plain(value):
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if dataclasses.is_dataclass(value):
        return (type(value).__name__, *(plain(getattr(value, f.name)) for f in dataclasses.fields(value)))
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


class EdgeMachine(RuleBasedStateMachine):
    @initialize(
        rounds=st.sampled_from([[1], [2], [3], [1, 2, 3]]),
        redraw=st.sampled_from(["setup", "grant"]),
        per_round=st.sampled_from([None, 1, 3, 0.5]),
        quorum=st.sampled_from([0.2, 0.6, 1.0]),
        asks=st.booleans(),
    )
    def begin(self, rounds, redraw, per_round, quorum, asks):
        def make():
            workloads = {client: Workload(examples, 3, 0.5, 0.5, 10) for client, examples in CLIENTS.items()}
            rules = EdgeRules(
                edge_rounds=tuple(rounds),
                seed=1,
                redraw=redraw,
                clients_per_round=per_round,
                deadline_s=20.0,
                quorum=quorum,
                asks_between_rounds=asks,
            )
            return Edge(0, CLIENTS, workloads, rules, Estimates(1.0, 1.0, 4.0, 1.0, 1.0), combine_clients)

        self.make, self.edge, self.twin = make, make(), None
        self.quorum, self.asks = quorum, asks
        self.now, self.next_lease = 0.0, 1
        self.taken = dict.fromkeys(CLIENTS, 0)
        self.phase = "idle"  # idle, round, asking
        self.round: Round | None = None
        self.received: dict[int, np.ndarray] = {}
        self.lease_rounds = 0
        self.model = None
        self.took_part: set[int] = set()
        self.last_request = 1
        (first,) = self.edge.handle(Ask(0.0))
        assert first.request_id == 1

    def send(self, event) -> list:
        effects = self.edge.handle(event)
        if self.twin is not None:
            assert plain(self.twin.handle(event)) == plain(effects)
        for effect in effects:
            match effect:
                case Round():
                    self.opened(effect)
                case Progress():
                    assert self.asks
                    self.phase = "asking"
                case Upload() | Abandon():
                    self.phase, self.round = "idle", None
                    self.checked_in(effect.check_in)
                case CheckIn():
                    self.phase, self.round = "idle", None
                    self.checked_in(effect)
        return effects

    def tell(self, answer, took_s: float | None = 0.25) -> list:
        return self.send(Received(answer, took_s, self.now))

    def checked_in(self, check_in: CheckIn) -> None:
        assert check_in.request_id == self.last_request + 1
        self.last_request += 1

    def opened(self, opened: Round) -> None:
        assert [task.client for task in opened.work] == sorted({task.client for task in opened.work})
        assert plain(opened.model) == plain(self.model)
        for task in opened.work:
            assert task.first_step == self.taken[task.client]
            assert task.lr == 0.5 * 0.5 ** (task.first_step // 10)
            self.taken[task.client] += task.steps
        self.phase, self.round, self.received = "round", opened, {}

    def expect_close(self, effects: list) -> None:
        """Check what followed from the end of a round against the mean worked out here."""
        usable = {c: w for c, w in self.received.items() if np.isfinite(w).all()}
        asked = len(self.round_before.work)
        assert len(effects) == 1
        if len(usable) < max(1, math.ceil(self.quorum * asked - 1e-9)):
            assert isinstance(effects[0], Abandon)
            return
        total = sum(CLIENTS[c] for c in usable)
        mean = sum(usable[c].astype(np.float64) * (CLIENTS[c] / total) for c in sorted(usable))
        self.model = mean.astype(np.float32)
        self.took_part |= set(usable)
        if isinstance(effects[0], Upload):
            assert self.round_before.index == self.lease_rounds - 1
            assert effects[0].weights.tobytes() == self.model.tobytes()
            assert effects[0].examples == sum(CLIENTS[c] for c in self.took_part)
            assert effects[0].lease_id == self.next_lease - 1
        else:
            assert isinstance(effects[0], Progress if self.asks else Round)
            if isinstance(effects[0], Round):
                assert effects[0].index == self.round_before.index + 1
                assert plain(effects[0].model) == plain(self.model)

    def close_with(self, event, received: dict[int, np.ndarray]) -> None:
        """Send the event that ends the round; the model learns the mean before it sees the next round."""
        self.round_before, self.received = self.round, received
        effects = self.edge.handle(event)
        if self.twin is not None:
            assert plain(self.twin.handle(event)) == plain(effects)
        self.expect_close(effects)
        for effect in effects:
            match effect:
                case Round():
                    self.opened(effect)
                case Progress():
                    self.phase = "asking"
                case Upload() | Abandon():
                    self.phase, self.round = "idle", None
                    self.checked_in(effect.check_in)

    @precondition(lambda self: self.phase == "idle")
    @rule(value=st.integers(-4, 4))
    def grant(self, value):
        self.lease_rounds = self.edge.rounds
        self.model = np.array([value, 1], dtype=np.float32)
        self.took_part = set()
        lease_id = self.next_lease
        self.next_lease += 1
        effects = self.tell(Grant(0, self.last_request, lease_id, 0, 3, self.model, self.now))
        assert [type(effect) for effect in effects] == [Round]

    @precondition(lambda self: self.phase == "idle")
    @rule()
    def refuse(self):
        rounds = self.edge.rounds
        effects = self.tell(Refuse(0, self.last_request, "waited", 0.05, self.now))
        assert [type(effect) for effect in effects] == [CheckIn]
        assert self.edge.rounds == rounds
        assert self.tell(Refuse(0, self.last_request - 1, "waited", 0.05, self.now)) == []

    @precondition(lambda self: self.phase == "round")
    @rule(
        client=clients,
        value=st.integers(-64, 64),
        bad=st.sampled_from([None, None, None, math.nan, math.inf]),
        told=st.sampled_from([0.0, 1.0, 1e9, -1.0, math.nan, math.inf]),
    )
    def update(self, client, value, bad, told):
        opened, wanted = self.round, {task.client for task in self.round.work}
        weights = np.array([value / 4, value if bad is None else bad], dtype=np.float32)
        event = ClientUpdate(
            client, opened.lease_id, opened.index, weights, CLIENTS[client], 0.0, told, self.now
        )
        if client not in wanted or client in self.received:  # a stranger, or a repeat: the first one stays
            before = plain(self.edge.snapshot())
            assert self.send(event) == []
            assert plain(self.edge.snapshot()) == before
            return
        received = self.received | {client: weights}
        if len(received) == len(wanted):
            self.close_with(event, received)
        else:
            assert self.send(event) == []
            self.received = received

    @precondition(lambda self: self.round is not None or self.phase == "idle")
    @rule(
        client=clients,
        lease=st.integers(-2, 1),
        index=st.integers(-1, 2),
        examples=st.sampled_from([0, 1, 9, True]),
    )
    def stray(self, client, lease, index, examples):
        """Something for another lease or round, or with examples that cannot be."""
        opened = self.round
        lease_id = (opened.lease_id if opened else self.next_lease - 1) + lease
        round_index = (opened.index if opened else 0) + index
        fits = opened is not None and lease == 0 and index == 0
        if (fits and examples == 1 and examples is not True) or self.phase == "asking":
            return
        if fits and type(examples) is int and 0 < examples <= CLIENTS[client]:
            return
        before = plain(self.edge.snapshot())
        weights = np.array([99, 99], dtype=np.float32)
        assert self.send(ClientUpdate(client, lease_id, round_index, weights, examples, 0, 1, self.now)) == []
        if not fits:
            assert self.send(Deadline(lease_id, round_index, self.now)) == []
            if lease != 0:
                assert self.tell(Proceed(0, lease_id, self.now)) == []
                assert self.tell(Cancel(0, lease_id, self.now)) == []
        assert plain(self.edge.snapshot()) == before

    @precondition(lambda self: self.phase == "round")
    @rule()
    def deadline(self):
        self.now += 20.0
        self.close_with(Deadline(self.round.lease_id, self.round.index, self.now), self.received)

    @precondition(lambda self: self.phase == "asking")
    @rule(go_on=st.booleans())
    def answered(self, go_on):
        lease_id = self.next_lease - 1
        (effect,) = self.tell((Proceed if go_on else Cancel)(0, lease_id, self.now))
        assert isinstance(effect, Round if go_on else CheckIn)

    @precondition(lambda self: self.phase == "idle" and self.next_lease > 1)
    @rule(dt=st.sampled_from([0.5, 2.0]), took_s=st.sampled_from([None, 0.5, -3.0, math.nan, math.inf]))
    def verdict(self, dt, took_s):
        self.now += dt
        assert self.tell(Verdict(0, self.next_lease - 1, "applied", 0, 1, "", self.now), took_s) == []

    @rule()
    def save_and_load(self):
        self.twin = self.make()
        self.twin.restore(copy.deepcopy(self.edge.snapshot()))

    @invariant()
    def steps_issued_are_counted(self):
        assert self.edge.taken == self.taken

    @invariant()
    def it_holds_a_lease_exactly_while_it_works(self):
        assert (self.edge.grant is not None) == (self.phase != "idle")

    @invariant()
    def twins_agree(self):
        if self.twin is not None:
            assert plain(self.twin.snapshot()) == plain(self.edge.snapshot())

    @invariant()
    def estimates_stay_possible(self):
        values = tuple(self.edge.estimates)
        assert all(math.isfinite(value) and value >= 0 for value in values)


TestEdge = EdgeMachine.TestCase
TestEdge.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
