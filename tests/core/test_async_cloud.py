"""The asynchronous cloud: slots, admission, and the three ways to enforce a threshold."""

import copy
import math
from collections import Counter

import numpy as np
import pytest

from hiflash.core.async_cloud import ENFORCEMENTS, AsyncCloud
from hiflash.core.compression import Downlink, TopK
from hiflash.core.mixing import Buffer, Delta, Interpolate, TierWeighting
from hiflash.core.state import Stateful
from hiflash.core.thresholds.fixed import FixedThreshold
from hiflash.core.thresholds.random import RandomThreshold
from hiflash.core.weighting import Constant, Exponential
from hiflash.errors import ProtocolError
from hiflash.messages import (
    Cancel,
    CheckIn,
    EdgeCosts,
    Grant,
    Hello,
    Proceed,
    Progress,
    Refuse,
    RoundApplied,
    Slot,
    Upload,
)


def f32(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def costs(duration: float = 10.0) -> EdgeCosts:
    return EdgeCosts(compute_s=1.0, send_s=1.0, down_s=1.0, train_s=duration - 2.0, up_s=1.0)


def make(
    threshold: float = math.inf, *, policy=None, mixing=None, edges: int = 5, slot_s=None, **options
) -> AsyncCloud:
    return AsyncCloud(
        f32(0),
        dict.fromkeys(range(edges), 10),
        mixing=mixing or Interpolate(0.5, Exponential(0.5)),
        policy=policy or FixedThreshold(threshold),
        seed=3,
        slot_s=slot_s or 0.05,
        slotted=slot_s is not None,
        **options,
    )


def ask(cloud, edge: int, now: float = 0.0, duration: float = 10.0, request: int | None = None):
    request = cloud.requests.get(edge, 0) + 1 if request is None else request
    return cloud.handle(CheckIn(edge, request, costs(duration), now))


def deliver(cloud, grant: Grant, value: float = 8.0, now: float = 1.0):
    return cloud.handle(Upload(grant.edge, grant.lease_id, f32(value), 10, None, now))


def test_the_enforcements_are_those_of_the_specification():
    assert ENFORCEMENTS == ("admit", "discard", "cancel")


def test_uploads_are_mixed_at_once_with_their_staleness_penalty():
    cloud = make(enforce="discard")
    (a,), (b,), (c,) = (ask(cloud, edge) for edge in range(3))
    deliver(cloud, a, 8.0)  # staleness 0: a = 1/2; 0 + (8 - 0) / 2 = 4
    assert cloud.weights.tolist() == [4.0]
    deliver(cloud, b, 8.0)  # staleness 1: a = 1/4; 4 + (8 - 4) / 4 = 5
    assert cloud.weights.tolist() == [5.0]
    deliver(cloud, c, 13.0)  # staleness 2: a = 1/8; 5 + (13 - 5) / 8 = 6
    assert cloud.weights.tolist() == [6.0]
    assert cloud.version == 3


def test_delta_mixing_uses_the_base_of_the_lease():
    cloud = make(enforce="discard", mixing=Delta(1.0, Exponential(0.5)))
    (a,), (b,) = ask(cloud, 0), ask(cloud, 1)
    deliver(cloud, a, 8.0)  # 0 + 1 * (8 - 0)
    deliver(cloud, b, 4.0)  # staleness 1, base 0: 8 + 1/2 * (4 - 0) = 10
    assert cloud.weights.tolist() == [10.0]


# Slots (decision 14).


def test_with_slots_a_check_in_waits_for_the_next_slot():
    cloud = make(slot_s=0.05)
    assert not cloud.answerable
    assert ask(cloud, 0) == []
    assert cloud.answerable
    (grant,) = cloud.handle(Slot(1, 0.05))
    assert isinstance(grant, Grant)
    assert grant.now == 0.05
    assert not cloud.answerable


def test_one_waiting_edge_is_answered_per_slot():
    cloud = make(slot_s=0.05)
    for edge in range(5):
        ask(cloud, edge)
    answered = []
    for index in range(5):
        (grant,) = cloud.handle(Slot(index, 0.05 * index))
        answered.append(grant.edge)
    assert sorted(answered) == [0, 1, 2, 3, 4]
    assert cloud.handle(Slot(6, 0.3)) == []


def test_not_being_admitted_uses_up_the_slot():
    cloud = make(threshold=0, slot_s=0.05)
    for edge in range(3):
        ask(cloud, edge)
    (grant,) = cloud.handle(Slot(0, 0.0))
    (refuse,) = cloud.handle(Slot(1, 0.05))  # threshold 0: one at a time
    assert isinstance(grant, Grant)
    assert isinstance(refuse, Refuse)
    assert (refuse.reason, refuse.retry_after) == ("waited", 0.05)
    assert refuse.edge != grant.edge
    assert len(cloud.waiting) == 1  # the third edge was not asked in this slot, the refused one asks again


def test_the_edge_of_a_slot_is_drawn_uniformly():
    counts = [0] * 5
    for index in range(1000):
        cloud = make(slot_s=0.05)
        for edge in range(5):
            ask(cloud, edge)
        counts[cloud.handle(Slot(index, 0.0))[0].edge] += 1
    # 200 expected of each, deviation sqrt(1000 * 0.2 * 0.8) = 12.6; 5 of them is 63
    assert all(abs(count - 200) < 63 for count in counts)


def test_the_draw_of_a_slot_does_not_depend_on_the_order_of_check_ins():
    for index in range(20):
        forward, backward = make(slot_s=0.05), make(slot_s=0.05)
        for edge in range(5):
            ask(forward, edge)
            ask(backward, 4 - edge)
        assert forward.handle(Slot(index, 0.0))[0].edge == backward.handle(Slot(index, 0.0))[0].edge


def test_without_slots_every_check_in_is_answered_at_once():
    cloud = make()
    assert all(isinstance(ask(cloud, edge)[0], Grant) for edge in range(5))
    assert cloud.handle(Slot(0, 0.0)) == []


# Admission (decision 3).


def test_a_policy_that_refuses_is_told_apart_from_waiting():
    cloud = make(threshold=-1)
    (refuse,) = ask(cloud, 0, now=2.0)
    assert refuse == Refuse(0, 1, "refused", 0.05, 2.0)
    assert not cloud.waiting
    assert not cloud.leases


@pytest.mark.parametrize("enforce", ENFORCEMENTS)
def test_the_policy_can_refuse_under_every_enforcement(enforce):
    assert ask(make(threshold=-1, enforce=enforce), 0)[0].reason == "refused"


def test_threshold_zero_admits_one_edge_at_a_time():
    cloud = make(threshold=0)
    (grant,) = ask(cloud, 0, duration=10.0)
    assert ask(cloud, 1, duration=5.0)[0].reason == "waited"  # would make edge 0 stale
    assert ask(cloud, 2, duration=15.0)[0].reason == "waited"  # would be stale itself
    deliver(cloud, grant)
    (grant,) = ask(cloud, 2)
    assert grant.base_version == 1


def test_admission_counts_expected_arrivals_by_hand():
    # Threshold 1. Edge 0 arrives at 10. Edge 1 at 4: edge 0 will have staleness 1, fine. Edge 2 at 6 would
    # make edge 0 arrive with staleness 2. At 20 it would itself have staleness 2. At 4, tied with edge 1,
    # edge 0 would have staleness 2. At 10, tied with edge 0 and granted later, it would itself have 2.
    for duration, admitted in ((6.0, False), (20.0, False), (4.0, False), (10.0, False)):
        cloud = make(threshold=1)
        assert isinstance(ask(cloud, 0, duration=10.0)[0], Grant)
        assert isinstance(ask(cloud, 1, duration=4.0)[0], Grant)
        assert isinstance(ask(cloud, 2, duration=duration)[0], Grant) is admitted


def test_an_overdue_lease_is_expected_now():
    # Threshold 1: edges 0 (eta 3) and 1 (eta 5) run; at 100 both are overdue, so eta = 100 for both and
    # edge 0, granted first, counts as the earlier one; a candidate arriving at 110 comes after both:
    # staleness 2.
    cloud = make(threshold=1)
    ask(cloud, 0, duration=3.0)
    ask(cloud, 1, duration=5.0)
    assert [lease.eta for lease in cloud.view(4.0).leases] == [4.0, 5.0]
    assert [lease.eta for lease in cloud.view(100.0).leases] == [100.0, 100.0]
    assert ask(cloud, 2, now=100.0)[0].reason == "waited"
    # With threshold 2 it may start.
    cloud = make(threshold=2)
    ask(cloud, 0, duration=3.0)
    ask(cloud, 1, duration=5.0)
    assert isinstance(ask(cloud, 2, now=100.0)[0], Grant)


def overtaken_twice(cloud):
    """Return edge 0's grant after two edges that were expected behind it came before it."""
    (slow,) = ask(cloud, 0, duration=10.0)
    for edge in (1, 2):
        (early,) = ask(cloud, edge, duration=20.0)
        deliver(cloud, early, now=1.0)
    return slow


def test_a_lease_that_is_already_over_its_threshold_blocks_admission_until_it_ends():
    cloud = make(threshold=1)
    slow = overtaken_twice(cloud)  # staleness 2 > 1
    assert ask(cloud, 2, now=9.5)[0].reason == "waited"
    assert deliver(cloud, slow, now=10.0)[0].reason == "stale"
    assert isinstance(ask(cloud, 2, now=10.0)[0], Grant)


@pytest.mark.parametrize("enforce", ["discard", "cancel"])
def test_discard_and_cancel_start_any_edge(enforce):
    cloud = make(threshold=0, enforce=enforce)
    grants = [ask(cloud, edge)[0] for edge in range(5)]
    assert all(isinstance(grant, Grant) for grant in grants)
    verdicts = [deliver(cloud, grant)[0] for grant in grants]
    assert [v.status for v in verdicts] == ["applied"] + ["rejected"] * 4
    assert [v.staleness for v in verdicts] == [0, 1, 1, 1, 1]


def test_the_policy_is_asked_again_at_the_next_check_in():
    policy = RandomThreshold(16, seed=1)
    cloud = make(policy=policy)
    ask(cloud, 0)
    ask(cloud, 0)
    assert policy.asked == 2


def test_a_repeated_check_in_does_not_ask_the_policy_again():
    policy = RandomThreshold(16, seed=1)
    cloud = make(policy=policy)
    (first,) = ask(cloud, 0, request=1)
    (again,) = ask(cloud, 0, request=1)
    assert (again.lease_id, again.threshold, policy.asked) == (first.lease_id, first.threshold, 1)


def test_a_refusal_without_slots_asks_the_edge_to_wait_some_time():
    # With wan = "off" sending takes no time, and an edge that asks again after 0 s asks for ever.
    cloud = make(threshold=0)
    free = EdgeCosts(compute_s=1.0, send_s=1.0, down_s=0.0, train_s=5.0, up_s=0.0)
    cloud.handle(CheckIn(0, 1, free, 0.0))
    (refuse,) = cloud.handle(CheckIn(1, 1, free._replace(train_s=6.0), 0.0))
    assert refuse.reason == "waited"
    assert refuse.retry_after > 0


# Cancel.


def test_cancel_tells_an_edge_between_rounds_that_going_on_is_useless():
    cloud = make(threshold=0, enforce="cancel")
    (a,), (b,) = ask(cloud, 0), ask(cloud, 1)
    assert cloud.handle(Progress(1, b.lease_id, 1.0)) == [Proceed(1, b.lease_id, 1.0)]
    deliver(cloud, a, now=2.0)
    assert cloud.handle(Progress(1, b.lease_id, 3.0)) == [Cancel(1, b.lease_id, 3.0)]
    assert not cloud.leases
    (late,) = deliver(cloud, b, now=4.0)
    assert (late.status, late.reason, late.now) == ("rejected", "cancelled", 3.0)
    assert cloud.version == 1


def test_a_repeated_progress_call_of_a_cancelled_lease_is_cancelled_again():
    cloud = make(threshold=0, enforce="cancel")
    (a,), (b,) = ask(cloud, 0), ask(cloud, 1)
    deliver(cloud, a)
    assert cloud.handle(Progress(1, b.lease_id, 3.0)) == [Cancel(1, b.lease_id, 3.0)]
    assert cloud.handle(Progress(1, b.lease_id, 4.0)) == [Cancel(1, b.lease_id, 4.0)]


def test_a_lease_exactly_at_its_threshold_is_not_cancelled():
    cloud = make(threshold=1, enforce="cancel")
    (a,), (b,) = ask(cloud, 0), ask(cloud, 1)
    deliver(cloud, a)
    assert isinstance(cloud.handle(Progress(1, b.lease_id, 3.0))[0], Proceed)


@pytest.mark.parametrize("enforce", ["admit", "discard"])
def test_only_cancel_stops_an_edge_between_rounds(enforce):
    cloud = make(threshold=1, enforce=enforce)
    slow = overtaken_twice(cloud)
    assert isinstance(cloud.handle(Progress(0, slow.lease_id, 3.0))[0], Proceed)
    assert deliver(cloud, slow)[0].reason == "stale"


def test_nobody_can_cancel_another_edges_lease():
    cloud = make(threshold=0, enforce="cancel")
    (a,), (b,) = ask(cloud, 0), ask(cloud, 1)
    deliver(cloud, a)
    cloud.handle(Progress(0, b.lease_id, 3.0))
    assert list(cloud.leases) == [b.lease_id]


# What a policy sees, and going on from a snapshot.


def test_a_view_shows_leases_costs_and_version():
    cloud = make(threshold=4)
    (a,) = ask(cloud, 0, now=1.0, duration=10.0)
    deliver(cloud, a, now=2.0)
    ask(cloud, 1, now=3.0, duration=6.0)
    view = cloud.view(5.0)
    assert (view.now, view.version) == (5.0, 1)
    (lease,) = view.leases
    assert (lease.edge, lease.base_version, lease.threshold, lease.granted_at, lease.eta) == (
        1,
        1,
        4,
        3.0,
        9.0,
    )
    assert view.costs[0].duration_s == 10.0


def test_a_view_is_kept_until_a_lease_comes_or_goes():
    cloud = make(threshold=4)
    (a,) = ask(cloud, 0, now=1.0, duration=10.0)
    assert cloud.view(1.0) is cloud.view(1.0)
    ask(cloud, 1, now=1.0, duration=6.0)
    assert [lease.edge for lease in cloud.view(1.0).leases] == [0, 1]
    deliver(cloud, a, now=1.0)
    view = cloud.view(1.0)
    assert (view.version, [lease.edge for lease in view.leases]) == (1, [1])


def test_a_view_after_going_back_shows_the_leases_of_then():
    cloud, other = make(threshold=4), make(threshold=4)
    ask(cloud, 0, now=1.0)
    ask(other, 1, now=1.0)  # one lease of one grant too
    assert [lease.edge for lease in cloud.view(1.0).leases] == [0]
    cloud.restore(other.snapshot())
    assert [lease.edge for lease in cloud.view(1.0).leases] == [1]


def test_a_restored_cloud_goes_on_alike():
    def fresh():
        return make(
            policy=RandomThreshold(4, 1),
            mixing=Delta(0.5, Exponential(0.5), 0.5),
            slot_s=0.05,
            enforce="discard",
        )

    cloud = fresh()
    for edge in range(4):
        ask(cloud, edge)
    grants = [cloud.handle(Slot(index, 0.05 * index))[0] for index in range(3)]
    deliver(cloud, grants[0], 4.0)
    other = fresh()
    other.restore(copy.deepcopy(cloud.snapshot()))
    for machine in (cloud, other):
        deliver(machine, grants[1], 16.0)
        machine.handle(Slot(4, 0.2))
    assert cloud.weights.tolist() == other.weights.tolist()
    assert repr(cloud.snapshot()) == repr(other.snapshot())


def test_a_full_buffer_settles_the_leases_that_waited_in_it():
    cloud = make(enforce="discard", mixing=Buffer(1.0, Constant(), 2))
    (first,), (second,) = ask(cloud, 0), ask(cloud, 1)
    (held,) = deliver(cloud, first, 2.0)
    assert (held.status, held.version, cloud.version) == ("buffered", 0, 0)
    applied, closed = deliver(cloud, second, 4.0, now=2.0)
    assert (applied.status, applied.version) == ("applied", 1)
    assert closed == RoundApplied(1, (first.lease_id,), (), 2.0)
    assert cloud.weights.tolist() == [3.0]  # (2 + 4) / 2
    assert cloud.buffered == ()


def crowd(seed: int = 3, **options) -> AsyncCloud:
    cloud = make(edges=3, **options)
    cloud.seed = seed
    for edge in range(3):
        assert ask(cloud, edge) == []  # answered at the slot that follows at once
    return cloud


def test_no_more_edges_run_than_the_concurrency_allows():
    cloud = crowd(concurrency=2, enforce="discard")
    granted = cloud.handle(Slot(0, 0.0))
    assert [type(effect) for effect in granted] == [Grant, Grant]
    assert not cloud.answerable
    assert cloud.handle(Slot(1, 0.0)) == []
    deliver(cloud, granted[0])
    assert cloud.answerable
    (next_one,) = cloud.handle(Slot(2, 1.0))
    assert {next_one.edge, *(grant.edge for grant in granted)} == {0, 1, 2}


def test_whoever_gets_a_place_is_drawn_uniformly():
    clouds = (crowd(seed, concurrency=1, enforce="discard") for seed in range(300))
    drawn = Counter(cloud.handle(Slot(0, 0.0))[0].edge for cloud in clouds)
    # 100 expected of each, standard deviation 8.2; five of them are 41
    assert all(abs(drawn[edge] - 100) < 41 for edge in range(3))


def test_a_place_goes_to_the_next_one_when_the_drawn_one_may_not_start():
    cloud = crowd(threshold=0, concurrency=2)  # admit: one at a time
    answers = cloud.handle(Slot(0, 0.0))
    assert [type(answer) for answer in answers] == [Grant, Refuse, Refuse]
    assert not cloud.waiting


# A rule or policy that fails, or whose result is refused, leaves its own state as it was.


class Careless(Stateful):
    """A mixing rule that changes its state before it looks at anything."""

    STATE = ("seen",)

    def __init__(self, result):
        self.seen = []
        self.result = result

    def mix(self, weights, update, base, edge, staleness):
        self.seen.append(float(update[0]))
        return self.result(weights, update)


BIG = 3e38


@pytest.mark.parametrize(
    "mixing",
    [
        Delta(1.0, Constant(), momentum=0.5),
        Buffer(1.0, Constant(), 2),
        Buffer(1.0, Constant(), 3),
        TierWeighting(5),
        Careless(lambda weights, update: weights + update),
    ],
    ids=["delta", "full buffer", "buffer", "tiers", "careless"],
)
def test_an_update_that_overflows_leaves_no_trace_in_the_rule(mixing):
    cloud = make(enforce="discard", mixing=mixing)
    grants = [grant for edge in range(4) for grant in ask(cloud, edge)]
    deliver(cloud, grants[0], 8.0 if not isinstance(mixing, Buffer) else BIG)
    before = copy.deepcopy(cloud.mixing.snapshot())
    if isinstance(mixing, TierWeighting):
        mixing.mix = lambda *arguments: np.float32([np.inf]) + 0 * TierWeighting.mix(mixing, *arguments)
    refused = deliver(cloud, grants[1], BIG)
    if isinstance(mixing, Delta | Careless):  # one big step is fine, the second overflows
        before = copy.deepcopy(cloud.mixing.snapshot())
        refused = deliver(cloud, grants[2], BIG)
    assert (refused[0].status, refused[0].reason) == ("rejected", "not finite")
    assert repr(cloud.mixing.snapshot()) == repr(before)


def test_a_mixing_rule_that_raises_is_as_it_was_and_its_error_passes_through():
    cloud = make(mixing=Careless(lambda weights, update: 1 // 0))
    (given,) = ask(cloud, 0)
    with pytest.raises(ZeroDivisionError):
        deliver(cloud, given)
    assert (cloud.mixing.seen, cloud.version, list(cloud.leases)) == ([], 0, [given.lease_id])


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (lambda weights, update: np.zeros(3, np.float32), r"got float32 of shape \(3,\)"),
        (lambda weights, update: weights.astype(np.int64), r"got int64 of shape \(1,\)"),
        (lambda weights, update: [0.0], "got list"),
    ],
)
def test_a_mixing_rule_with_a_result_that_is_no_model_is_named(result, told):
    cloud = make(mixing=Careless(result))
    (given,) = ask(cloud, 0)
    with pytest.raises(ProtocolError, match=rf"Careless.mix must return the next model, float32 .*{told}"):
        deliver(cloud, given)
    assert (cloud.mixing.seen, cloud.weights.tolist()) == ([], [0.0])


class Counting(Stateful):
    """A policy that counts before it answers."""

    STATE = ("asked",)

    def __init__(self, answer):
        self.asked = 0
        self.answer = answer

    def decide(self, view, edge):
        self.asked += 1
        return self.answer()


@pytest.mark.parametrize(
    "answer", [lambda: 1 // 0, lambda: math.nan, lambda: "two", lambda: None, lambda: -3, lambda: 1j]
)
def test_a_policy_that_fails_is_as_if_it_had_not_been_asked(answer):
    cloud = make(policy=Counting(answer))
    with pytest.raises((ZeroDivisionError, ProtocolError)):
        ask(cloud, 0)
    assert (cloud.policy.asked, cloud.leases, list(cloud.waiting)) == (0, {}, [0])


def test_an_idle_edge_that_restarts_gets_the_whole_model():
    cloud = make(edges=2, download=Downlink(TopK(1, 1.0)))
    (given,) = ask(cloud, 0)
    deliver(cloud, given)
    assert 0 in cloud.download.held
    cloud.handle(Hello(0, 2.0))
    assert 0 not in cloud.download.held
