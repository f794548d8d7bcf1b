"""An edge: H synchronous rounds per lease, quorum and deadline, and what it expects them to take."""

import copy
import itertools
import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiflash.core.aggregation import Krum, combine_clients
from hiflash.core.edge import Edge, EdgeRules, Workload
from hiflash.errors import ProtocolError
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
    Promise,
    Received,
    Recluster,
    Refuse,
    Report,
    Round,
    Slot,
    Upload,
    Verdict,
    Welcome,
)

MEANS = Estimates(compute_s=10.0, send_s=5.0, round_s=4.0, down_s=1.0, up_s=2.0)


def f32(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def workload(
    examples: int = 10, steps: int = 3, lr: float = 0.5, decay: float = 0.5, every: int = 100
) -> Workload:
    return Workload(examples, steps, lr, decay, every)


def make(clients=(2, 5, 9), *, rounds=(1,), workloads=None, aggregate=combine_clients, **options) -> Edge:
    workloads = workloads or {client: workload() for client in clients}
    rules = EdgeRules(edge_rounds=tuple(rounds), seed=4, **options)
    return Edge(1, workloads, workloads, rules, MEANS, aggregate)


def ask(edge: Edge, now: float) -> CheckIn:
    (check_in,) = edge.handle(Ask(now))
    return check_in


def tell(edge: Edge, answer, took_s: float | None = None) -> list:
    """Let an answer of the cloud reach an edge at once."""
    return edge.handle(Received(answer, took_s, answer.now))


def grant(edge: Edge, lease_id: int = 1, weights=None, now: float = 0.0) -> Grant:
    return Grant(1, edge.request_id, lease_id, 0, 5, f32(0, 0) if weights is None else weights, now)


def begin(edge: Edge, lease_id: int = 1, now: float = 0.0) -> Round:
    ask(edge, now)
    (opened,) = tell(edge, grant(edge, lease_id, now=now))
    return opened


def answer(opened: Round, client: int, *values: float, examples=10, now: float = 1.0) -> ClientUpdate:
    return ClientUpdate(
        client, opened.lease_id, opened.index, f32(*(values or (1, 1))), examples, 0.1, 0.75, now
    )


def finish(edge: Edge, opened: Round, now: float = 1.0) -> list:
    """Deliver every client's update and return what follows from the last."""
    effects = []
    for task in opened.work:
        assert effects == []
        effects = edge.handle(answer(opened, task.client, now=now))
    return effects


def test_a_grant_starts_a_round_of_all_clients_from_the_granted_model():
    edge = make(deadline_s=30.0)
    ask(edge, 0.0)
    weights = f32(1, 2)
    (opened,) = tell(edge, grant(edge, 7, weights, now=3.0))
    assert isinstance(opened, Round)
    assert (opened.edge, opened.lease_id, opened.index, opened.deadline, opened.now) == (1, 7, 0, 33.0, 3.0)
    assert [task.client for task in opened.work] == [2, 5, 9]
    assert opened.model is weights
    assert all(task.seed == 4 for task in opened.work)


def test_one_round_ends_in_an_upload_with_the_next_check_in():
    edge = make()
    opened = begin(edge)
    edge.handle(answer(opened, 9, 4, 0))
    edge.handle(answer(opened, 2, 1, 3))
    (sent,) = edge.handle(answer(opened, 5, 1, 3, now=6.0))
    assert isinstance(sent, Upload)
    assert (sent.edge, sent.lease_id, sent.examples, sent.now) == (1, 1, 30, 6.0)
    assert sent.weights.tolist() == [2.0, 2.0]  # (4 + 1 + 1) / 3, (0 + 3 + 3) / 3
    assert isinstance(sent.check_in, CheckIn)
    assert sent.check_in.request_id == 2


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_h_rounds_build_on_each_other(rounds):
    edge = make(clients=[0], rounds=[rounds])
    effects = [begin(edge)]
    for index in range(rounds):
        (opened,) = effects
        assert (opened.index, opened.model.tolist()) == (index, [float(index)] * 2)
        effects = edge.handle(answer(opened, 0, index + 1, index + 1))
    (sent,) = effects
    assert sent.weights.tolist() == [float(rounds)] * 2


def test_clients_are_averaged_by_their_samples():
    edge = make(workloads={0: workload(examples=30), 1: workload(examples=10)})
    opened = begin(edge)
    edge.handle(answer(opened, 0, 8, 0, examples=30))
    (sent,) = edge.handle(answer(opened, 1, 0, 8, examples=10))
    assert sent.weights.tolist() == [6.0, 2.0]  # 3/4 * 8, 1/4 * 8
    assert sent.examples == 40


# Decision 16: steps and learning rate.


def test_a_client_goes_on_counting_its_steps_over_rounds_and_leases():
    edge = make(clients=[0], rounds=[2])
    firsts = []
    effects = [begin(edge)]
    for lease_id in (2, 3, 4):
        while isinstance(effects[0], Round):
            firsts.append(effects[0].work[0].first_step)
            effects = finish(edge, effects[0])
        effects = tell(edge, grant(edge, lease_id))
    assert firsts == [0, 3, 6, 9, 12, 15]


def test_the_learning_rate_decays_with_the_clients_own_steps_and_is_fixed_within_a_task():
    # 40 steps per task from 0: first steps 0, 40, 80, 120, 160, 200; 80 // 100 = 0 although 80 + 40 > 100
    edge = make(workloads={0: workload(steps=40, lr=0.5, decay=0.5, every=100)}, rounds=[6])
    rates, effects = [], [begin(edge)]
    while isinstance(effects[0], Round):
        rates.append(effects[0].work[0].lr)
        effects = finish(edge, effects[0])
    assert rates == [0.5, 0.5, 0.5, 0.25, 0.25, 0.125]


def test_learning_rate_of_the_papers_constants():
    # 250 // 100 = 2: 0.01 * 0.99^2 = 0.009801
    assert Workload(600, 3, 0.01, 0.99, 100).rate(250) == pytest.approx(0.009801, rel=1e-12)
    assert Workload(600, 3, 0.01, 0.99, 100).rate(99) == 0.01


def test_steps_count_when_a_task_is_issued_whether_or_not_its_result_is_used():
    edge = make(clients=[0, 1], quorum=1.0, deadline_s=5.0)
    opened = begin(edge)
    edge.handle(answer(opened, 0))
    (given_up,) = edge.handle(Deadline(1, 0, 5.0))  # client 1 never answered, the lease is abandoned
    assert isinstance(given_up, Abandon)
    (again,) = tell(edge, grant(edge, 2))
    assert [task.first_step for task in again.work] == [3, 3]


def test_steps_of_clients_that_were_not_drawn_do_not_advance():
    edge = make(clients=range(6), clients_per_round=2)
    opened = begin(edge)
    drawn = {task.client for task in opened.work}
    assert {client for client, taken in edge.taken.items() if taken} == drawn
    assert len(drawn) == 2


# Participants.


def test_clients_per_round_draws_anew_every_round_and_lease():
    edge = make(clients=range(10), clients_per_round=3)
    draws = {edge.participants(lease, index) for lease in range(5) for index in range(5)}
    assert len(draws) > 15
    assert all(len(d) == len(set(d)) == 3 and list(d) == sorted(d) for d in draws)
    assert edge.participants(2, 1) == edge.participants(2, 1)
    counts = [sum(c in edge.participants(k, 0) for k in range(1000)) for c in range(10)]
    # 300 expected of each, deviation sqrt(1000 * 0.3 * 0.7) = 14.5; 5 of them is 73
    assert all(abs(count - 300) < 73 for count in counts)


@given(st.integers(0, 60), st.floats(0.001, 0.999), st.integers(0, 2**32))
def test_a_share_of_an_uneven_cluster_is_rounded_up(clients, share, lease):
    edge = make(clients=range(clients), clients_per_round=share)
    drawn = edge.participants(lease, 0)
    assert set(drawn) <= set(range(clients))
    assert len(set(drawn)) == len(drawn)
    assert share * clients - 1e-6 <= len(drawn) < share * clients + 1
    assert len(drawn) >= min(1, clients)


@pytest.mark.parametrize(
    ("share", "clients", "expected"),
    [(0.5, 10, 5), (0.5, 7, 4), (0.5, 1, 1), (0.28, 25, 7), (0.1, 3, 1), (0.9, 3, 3), (1 / 3, 9, 3)],
)
def test_a_share_draws_as_many_as_its_number(share, clients, expected):
    by_share = make(clients=range(clients), clients_per_round=share)
    by_number = make(clients=range(clients), clients_per_round=expected)
    assert by_share.participants(4, 2) == by_number.participants(4, 2)
    assert len(by_share.participants(4, 2)) == expected


def test_a_share_follows_the_cluster():
    edge = make(clients=range(6), clients_per_round=0.5)
    assert len(edge.participants(1, 0)) == 3
    edge.handle(Recluster((1, 2, 3), {}, None, 0.0))
    assert len(edge.participants(2, 0)) == 2  # of 0, 4 and 5
    assert set(edge.participants(2, 0)) <= {0, 4, 5}


@pytest.mark.parametrize("per_round", [None, 3, 4, 100])
def test_all_clients_take_part_when_as_many_are_asked_for(per_round):
    assert make(clients=[9, 2, 5], clients_per_round=per_round).participants(1, 0) == (2, 5, 9)


def test_upload_examples_are_those_of_every_client_that_took_part_in_some_round():
    workloads = {client: workload(examples=2**client) for client in range(8)}
    edge = make(workloads=workloads, clients_per_round=2, rounds=[3])
    effects, took_part = [begin(edge)], set()
    while isinstance(effects[0], Round):
        (opened,) = effects
        took_part |= {task.client for task in opened.work}
        for task in opened.work:
            effects = edge.handle(answer(opened, task.client, examples=2**task.client))
    assert effects[0].examples == sum(2**client for client in took_part)
    assert len(took_part) > 2


# every subset of 5 clients dropped.


@pytest.mark.parametrize("quorum", [0.2, 0.4, 0.6, 0.8, 1.0])
def test_a_round_closes_with_a_quorum_and_is_abandoned_below(quorum):
    needed = round(5 * quorum)
    values = [1.0, 2.0, 4.0, 8.0, 16.0]
    counts = [8, 4, 2, 1, 1]
    for dropped in itertools.chain.from_iterable(itertools.combinations(range(5), n) for n in range(6)):
        edge = make(
            workloads={k: workload(examples=counts[k]) for k in range(5)}, quorum=quorum, deadline_s=10.0
        )
        opened = begin(edge)
        kept = [k for k in range(5) if k not in dropped]
        effects = []
        for k in kept:
            effects += edge.handle(answer(opened, k, values[k], -values[k], examples=counts[k]))
        if dropped:
            assert effects == []
            effects = edge.handle(Deadline(1, 0, 10.0))
        (effect,) = effects
        if len(kept) >= needed:
            total = sum(counts[k] for k in kept)
            mean = sum(values[k] * counts[k] for k in kept) / total  # renormalised over who is in
            assert isinstance(effect, Upload)
            assert effect.weights.tolist() == pytest.approx([mean, -mean], rel=1e-6)
            assert effect.examples == total
        else:
            assert isinstance(effect, Abandon)
            assert (effect.lease_id, effect.check_in.request_id, effect.now) == (1, 2, 10.0)
            assert opened.model.tolist() == [0.0, 0.0]  # nothing was written into the model
            assert edge.grant is None


def test_a_rule_that_needs_more_clients_than_the_quorum_gets_them_or_the_round_is_abandoned():
    for answers in range(1, 6):
        edge = make(
            workloads={k: workload() for k in range(5)},
            aggregate=partial(combine_clients, rule=Krum()),
            quorum=0.2,
            least=Krum().least,  # 3, though one of five would be a quorum
            deadline_s=10.0,
        )
        opened = begin(edge)
        assert edge.needed == 3
        effects = [e for k in range(answers) for e in edge.handle(answer(opened, k, k, 0))]
        (effect,) = effects or edge.handle(Deadline(1, 0, 10.0))
        assert isinstance(effect, Upload if answers >= 3 else Abandon)


def test_examples_of_clients_whose_models_are_not_finite_are_not_claimed():
    edge = make(workloads={0: workload(examples=30), 1: workload(examples=12)}, quorum=0.5)
    opened = begin(edge)
    edge.handle(answer(opened, 0, float("nan"), 0, examples=30))
    (sent,) = edge.handle(answer(opened, 1, 4, 8, examples=12))
    assert (sent.weights.tolist(), sent.examples) == ([4.0, 8.0], 12)


@pytest.mark.parametrize(
    ("clients", "quorum", "enough"), [(25, 0.28, 7), (20, 0.55, 11), (10, 0.7, 7), (5, 0.5, 3)]
)
def test_the_quorum_is_the_share_of_the_clients_whatever_floats_make_of_it(clients, quorum, enough):
    # 0.28 of 25 is 7, although ceil(0.28 * 25) = ceil(7.000000000000001) = 8
    for delivered in (enough - 1, enough):
        edge = make(clients=range(clients), quorum=quorum, deadline_s=10.0)
        opened = begin(edge)
        for client in range(delivered):
            edge.handle(answer(opened, client))
        (effect,) = edge.handle(Deadline(1, 0, 10.0))
        assert isinstance(effect, Upload) is (delivered >= enough)


def test_a_client_whose_model_is_not_finite_counts_as_missing():
    edge = make(clients=[0, 1, 2], quorum=0.6)
    opened = begin(edge)
    edge.handle(answer(opened, 0, 2, 4))
    edge.handle(answer(opened, 1, np.nan, 0))
    (sent,) = edge.handle(answer(opened, 2, 4, 8))
    assert sent.weights.tolist() == [3.0, 6.0]
    opened = begin(edge, 2)
    edge.handle(answer(opened, 0, 2, 4))
    edge.handle(answer(opened, 1, np.inf, 0))
    (effect,) = edge.handle(answer(opened, 2, np.nan, 8))  # one of three is below 0.6
    assert isinstance(effect, Abandon)


def test_a_deadline_with_nobody_in_abandons_the_lease():
    edge = make(quorum=0.01, deadline_s=10.0)
    begin(edge)
    assert isinstance(edge.handle(Deadline(1, 0, 10.0))[0], Abandon)


def test_a_deadline_closes_the_round_it_belongs_to_and_no_other():
    edge = make(clients=[0, 1], rounds=[2], quorum=0.5, deadline_s=10.0)
    opened = begin(edge)
    edge.handle(answer(opened, 0))
    assert edge.handle(Deadline(99, 0, 9.0)) == []
    assert edge.handle(Deadline(1, 1, 9.0)) == []
    (second,) = edge.handle(Deadline(1, 0, 10.0))
    assert (second.index, second.deadline) == (1, 20.0)
    assert edge.handle(Deadline(1, 0, 10.0)) == []  # again


# Between rounds.


def test_an_edge_that_asks_between_rounds_waits_for_the_answer():
    edge = make(clients=[0], rounds=[2], asks_between_rounds=True)
    opened = begin(edge)
    assert finish(edge, opened, now=5.0) == [Progress(1, 1, 5.0)]
    (second,) = tell(edge, Proceed(1, 1, 6.0))
    assert (second.index, second.now) == (1, 6.0)
    (sent,) = finish(edge, second)
    assert isinstance(sent, Upload)  # no call after the last round


def test_a_cancelled_edge_drops_its_lease_and_checks_in():
    edge = make(clients=[0], rounds=[3], asks_between_rounds=True)
    finish(edge, begin(edge))
    (asked,) = tell(edge, Cancel(1, 1, 6.0))
    assert isinstance(asked, CheckIn)
    assert (asked.request_id, asked.now) == (2, 6.0)
    assert tell(edge, Proceed(1, 1, 7.0)) == []
    assert tell(edge, Cancel(1, 1, 7.0)) == []  # a repeat does not check in twice


def test_a_refused_edge_checks_in_again_with_a_new_request():
    edge = make()
    ask(edge, 0.0)
    (asked,) = tell(edge, Refuse(1, 1, "waited", 0.05, 2.0))
    assert (asked.request_id, asked.now) == (2, 2.0)
    assert tell(edge, Refuse(1, 1, "waited", 0.05, 3.0)) == []  # the old refusal again


# Bad input, repeats and things that come late.


@pytest.mark.parametrize(
    "examples", [0, -1, 11, 10**18, float("nan"), 5.0, True, "5", None, np.int64(5)], ids=repr
)
def test_an_update_with_impossible_examples_is_ignored(examples):
    edge = make(clients=[0, 1])
    opened = begin(edge)
    assert edge.handle(answer(opened, 0, examples=examples)) == []
    assert edge.updates == {}
    edge.handle(answer(opened, 0, 2, 2))  # the client may still answer properly
    (sent,) = edge.handle(answer(opened, 1, 4, 4))
    assert sent.weights.tolist() == [3.0, 3.0]


def test_a_repeated_update_counts_once_and_the_first_stays():
    edge = make(clients=[0, 1])
    opened = begin(edge)
    edge.handle(answer(opened, 0, 2, 2))
    assert edge.handle(answer(opened, 0, 100, 100)) == []
    (sent,) = edge.handle(answer(opened, 1, 4, 4))
    assert sent.weights.tolist() == [3.0, 3.0]


def test_updates_of_strangers_other_rounds_and_other_leases_are_ignored():
    edge = make(clients=[0, 1], rounds=[2])
    opened = begin(edge, 5)
    for stray in (
        ClientUpdate(7, 5, 0, f32(9, 9), 10, 0.0, 1.0, 1.0),
        ClientUpdate(0, 5, 1, f32(9, 9), 10, 0.0, 1.0, 1.0),
        ClientUpdate(0, 4, 0, f32(9, 9), 10, 0.0, 1.0, 1.0),
    ):
        assert edge.handle(stray) == []
    assert edge.updates == {}
    assert isinstance(finish(edge, opened)[0], Round)
    assert edge.handle(answer(opened, 0, 9, 9)) == []  # round 0 is over


def test_a_client_that_was_not_drawn_is_ignored():
    edge = make(clients=range(6), clients_per_round=2)
    opened = begin(edge)
    outsider = next(c for c in range(6) if c not in edge.expected)
    assert edge.handle(answer(opened, outsider)) == []
    assert edge.updates == {}


def test_nothing_counts_after_the_upload():
    edge = make(clients=[0])
    opened = begin(edge)
    finish(edge, opened)
    before = repr(edge.snapshot())
    for event in (answer(opened, 0, 9, 9), Deadline(1, 0, 9.0)):
        assert edge.handle(event) == []
    for message in (Proceed(1, 1, 9.0), Cancel(1, 1, 9.0)):
        assert tell(edge, message) == []
    assert repr(edge.snapshot()) == before


def test_a_repeated_grant_does_not_start_the_lease_over():
    edge = make(clients=[0, 1])
    ask(edge, 0.0)
    message = grant(edge, 1)
    (opened,) = tell(edge, message)
    edge.handle(answer(opened, 0, 2, 2))
    before = repr(edge.snapshot())
    assert tell(edge, message) == []  # the cloud gives a grant again when a check-in is repeated
    assert repr(edge.snapshot()) == before
    (sent,) = edge.handle(answer(opened, 1, 4, 4))
    assert sent.weights.tolist() == [3.0, 3.0]


def test_a_grant_that_comes_again_after_its_upload_changes_nothing():
    edge = make(clients=[0])
    ask(edge, 0.0)
    message = grant(edge, 1)
    (opened,) = tell(edge, message)
    finish(edge, opened)
    before = repr(edge.snapshot())
    assert tell(edge, message) == []
    assert repr(edge.snapshot()) == before


def test_a_repeated_proceed_does_not_start_the_round_over():
    edge = make(clients=[0, 1], rounds=[2], asks_between_rounds=True)
    finish(edge, begin(edge))
    (second,) = tell(edge, Proceed(1, 1, 6.0))
    edge.handle(answer(second, 0, 2, 2))
    before = repr(edge.snapshot())
    assert tell(edge, Proceed(1, 1, 7.0)) == []
    assert repr(edge.snapshot()) == before


def test_an_update_for_a_round_that_has_not_begun_is_ignored():
    # Client 1 misses round 0; before the cloud says Proceed it sends something "for round 1".
    edge = make(clients=[0, 1], rounds=[2], quorum=0.5, deadline_s=10.0, asks_between_rounds=True)
    opened = begin(edge)
    edge.handle(answer(opened, 0, 2, 2))
    assert isinstance(edge.handle(Deadline(1, 0, 10.0))[0], Progress)
    early = ClientUpdate(1, 1, 1, f32(9, 9), 10, 0.0, 1.0, 11.0)
    assert edge.handle(early) == []
    assert edge.index == 1


def test_a_kind_of_event_that_no_edge_handles_is_an_error():
    edge = make()
    before = repr(edge.snapshot())
    with pytest.raises(AssertionError, match="Slot"):
        edge.handle(Slot(0, 0.0))
    assert repr(edge.snapshot()) == before


# Estimates.


def test_the_first_check_in_declares_the_means():
    edge = make(rounds=[3])
    costs = ask(edge, 1.0).costs
    # three rounds: compute 3 * 10, send 3 * 5, train 3 * 4; the WAN once each way
    assert (costs.compute_s, costs.send_s, costs.train_s) == (30.0, 15.0, 12.0)
    assert (costs.down_s, costs.up_s, costs.duration_s) == (1.0, 2.0, 15.0)


def test_estimates_move_a_fifth_of_the_way_to_what_was_observed():
    edge = make(clients=[0, 1])
    ask(edge, 0.0)
    (opened,) = edge.handle(Received(grant(edge, 1, now=0.0), 6.0, 6.0))  # down took 6: 0.8 * 1 + 0.2 * 6 = 2
    assert edge.estimates.down_s == pytest.approx(2.0)
    finish(edge, opened, now=15.0)  # the round took 9: 0.8 * 4 + 0.2 * 9 = 5
    assert edge.estimates.round_s == pytest.approx(5.0)
    assert edge.estimates.compute_s == pytest.approx(8.3)  # 2 clients x 0.75 s: 0.8 * 10 + 0.2 * 1.5
    assert edge.estimates.send_s == pytest.approx(7.3)  # 2 clients x (9 - 0.75) s: 0.8 * 5 + 0.2 * 16.5
    tell(edge, Verdict(1, 1, "applied", 0, 1, "", 27.0), took_s=12.0)  # 0.8 * 2 + 0.2 * 12 = 4
    assert edge.estimates.up_s == pytest.approx(4.0)
    assert ask(edge, 30.0).costs.duration_s == pytest.approx(11.0)


def test_observing_leaves_the_other_estimates_alone():
    assert MEANS.observe_round(20.0, 5.0, 9.0) == Estimates(0.8 * 10.0 + 0.2 * 20.0, 5.0, 5.0, 1.0, 2.0)
    assert MEANS.observe_down(6.0) == Estimates(10.0, 5.0, 4.0, 0.8 * 1.0 + 0.2 * 6.0, 2.0)
    assert MEANS.observe_up(7.0) == Estimates(10.0, 5.0, 4.0, 1.0, 3.0)  # 0.8 * 2 + 0.2 * 7


def test_a_repeated_verdict_is_observed_once():
    edge = make(clients=[0])
    finish(edge, begin(edge), now=15.0)
    verdict = Verdict(1, 1, "applied", 0, 1, "", 27.0)
    tell(edge, verdict)
    before = edge.estimates
    tell(edge, verdict)
    assert edge.estimates == before


@pytest.mark.parametrize("took_s", [None, -3.0, math.nan, math.inf])
def test_a_duration_that_nobody_can_have_measured_is_not_observed(took_s):
    # Two clocks that are three seconds apart gave a download of -3 s, and the cloud refused every check-in.
    edge = make(clients=[0])
    ask(edge, 0.0)
    (opened,) = tell(edge, grant(edge), took_s)
    finish(edge, opened, now=15.0)
    tell(edge, Verdict(1, 1, "rejected", 0, 1, "expired", 3.0), took_s)
    assert (edge.estimates.down_s, edge.estimates.up_s) == (MEANS.down_s, MEANS.up_s)
    assert ask(edge, 20.0).costs.valid


def test_an_edge_goes_by_its_own_clock_whatever_the_clouds_says():
    edge = make(clients=[0], deadline_s=10.0)
    ask(edge, 100.0)
    (opened,) = edge.handle(Received(grant(edge, 1, now=3.0), 0.5, 101.0))  # the cloud's clock is behind
    assert (opened.now, opened.deadline) == (101.0, 111.0)


@pytest.mark.parametrize("told", [math.nan, math.inf, -1.0, 1e9])
def test_a_client_that_tells_impossible_seconds_does_not_lock_its_edge_out(told):
    edge = make(clients=[0])
    opened = begin(edge)
    (sent,) = edge.handle(ClientUpdate(0, 1, 0, f32(1, 1), 10, 0.1, told, 4.0))
    assert sent.check_in.costs.valid
    assert edge.estimates.compute_s == pytest.approx(8.8)  # measured instead: 0.8 * 10 + 0.2 * 4
    assert edge.estimates.send_s == pytest.approx(4.0)  # nothing is left: 0.8 * 5
    assert opened.index == 0


# Reports and promises.


def test_a_report_ends_a_round_with_the_promise_of_its_model():
    edge = make(clients=[0, 1], rounds=[2])
    begin(edge)
    first, second = Promise(), Promise()
    (opened,) = edge.handle(Report(1, 0, (0, 1), first, 4.0, 2.0, 1.0))
    assert opened.model is first
    assert edge.handle(Report(1, 0, (0, 1), second, 4.0, 2.0, 1.0)) == []  # again
    (sent,) = edge.handle(Report(1, 1, (0, 1), second, 4.0, 2.0, 2.0))
    assert (sent.weights, sent.examples) == (second, 20)


def test_a_report_without_a_model_leaves_the_granted_one():
    edge = make(clients=[0])
    opened = begin(edge)
    (sent,) = edge.handle(Report(1, 0, (0,), None, 4.0, 2.0, 1.0))
    assert sent.weights is opened.model


def test_a_report_below_the_quorum_abandons_the_lease():
    edge = make(clients=[0, 1])
    begin(edge)
    (given_up,) = edge.handle(Report(1, 0, (0,), Promise(), 4.0, 2.0, 1.0))
    assert isinstance(given_up, Abandon)


def test_updates_cannot_be_averaged_onto_a_promise():
    edge = make(clients=[0], rounds=[2])
    begin(edge)
    (opened,) = edge.handle(Report(1, 0, (0,), Promise(), 4.0, 2.0, 1.0))
    with pytest.raises(ProtocolError, match="edge 1 has a promise"):
        edge.handle(answer(opened, 0))


# H (decision 5).


def test_an_edge_draws_its_rounds_at_set_up_and_keeps_them():
    rounds = set()
    for index in range(40):
        edge = Edge(index, [0], {0: workload()}, EdgeRules((1, 2, 3), seed=0), MEANS, combine_clients)
        drawn = edge.rounds
        ask(edge, 0.0)
        tell(edge, grant(edge))
        assert edge.handle(Ask(1.0)) == []
        assert edge.rounds == drawn
        rounds.add(drawn)
    assert rounds == {1, 2, 3}


def test_redraw_grant_draws_once_per_grant_and_not_again_on_refusal():
    edge = make(clients=[0], rounds=[1, 2, 3], redraw="grant")
    history = []
    ask(edge, 0.0)
    for lease_id in range(1, 60):
        drawn = edge.rounds
        for _ in range(3):
            tell(edge, Refuse(1, edge.request_id, "waited", 0.05, 0.0))
            assert edge.rounds == drawn
        effects = tell(edge, grant(edge, lease_id))
        done = 0
        while isinstance(effects[0], Round):
            effects = finish(edge, effects[0])
            done += 1
        assert done == drawn
        history.append(drawn)
    assert set(history) == {1, 2, 3}
    # 59 draws: about 19.7 each, deviation 3.6; 5 of them is 18
    assert all(abs(history.count(h) - 59 / 3) < 18 for h in (1, 2, 3))


def test_the_costs_of_a_check_in_are_those_of_the_rounds_that_will_run():
    edge = make(clients=[0], rounds=[1, 2, 3], redraw="grant")
    for lease_id in range(1, 20):
        asked = ask(edge, 0.0)
        assert asked.costs.train_s == pytest.approx(edge.rounds * edge.estimates.round_s)
        effects = tell(edge, grant(edge, lease_id))
        while isinstance(effects[0], Round):
            effects = finish(edge, effects[0])


# State.


def test_a_restored_edge_goes_on_alike():
    edge = make(clients=[0, 1], rounds=[2], redraw="grant")
    opened = begin(edge)
    edge.handle(answer(opened, 0, 2, 2))
    other = make(clients=[0, 1], rounds=[2], redraw="grant")
    other.restore(copy.deepcopy(edge.snapshot()))
    results = []
    for machine in (edge, other):
        (second,) = machine.handle(answer(opened, 1, 4, 4))
        (sent,) = finish(machine, second, now=3.0)
        results.append((second.work[0].first_step, sent.weights.tolist(), sent.check_in))
    assert results[0] == results[1]


def test_a_snapshot_of_an_edge_stays_as_it_was_when_the_edge_goes_on():
    edge = make(clients=[0, 1])
    opened = begin(edge)
    saved = edge.snapshot()
    taken = dict(saved["taken"])
    edge.handle(answer(opened, 0))
    assert saved["updates"] == {}
    edge.handle(answer(opened, 1))
    tell(edge, grant(edge, 2))
    assert saved["taken"] == taken


def test_an_edge_declares_the_samples_of_its_whole_cluster():
    assert make(workloads={0: workload(examples=30), 1: workload(examples=12)}).examples == 42


def test_an_edge_without_a_deadline_waits_for_ever():
    assert begin(make()).deadline == math.inf


def test_an_edge_with_a_lease_does_not_ask_for_another():
    edge = make(clients=[0])
    begin(edge)
    before = repr(edge.snapshot())
    assert edge.handle(Ask(1.0)) == []
    assert repr(edge.snapshot()) == before


def test_nothing_ends_a_round_that_has_not_begun():
    edge = make(clients=[0], rounds=[2], asks_between_rounds=True, deadline_s=10.0)
    finish(edge, begin(edge))  # it waits for Proceed, and round 1 has not begun
    assert edge.handle(Deadline(1, 1, 11.0)) == []
    assert edge.handle(Report(1, 1, (0,), Promise(), 1.0, 1.0, 11.0)) == []
    (opened,) = tell(edge, Proceed(1, 1, 12.0))
    assert opened.index == 1


def test_a_restarted_edge_counts_its_requests_on_from_the_welcome():
    edge = make(clients=[0])
    assert tell(edge, Welcome(1, 7, 0.0)) == []
    assert ask(edge, 1.0).request_id == 8
