"""The synchronous cloud: rounds that start together and are averaged together."""

import copy
import itertools
import math
from collections import Counter

import numpy as np
import pytest

from hiflash.core.aggregation import Krum, Median, NormClip
from hiflash.core.selection import UniformSelection
from hiflash.core.sync_cloud import SyncCloud
from hiflash.messages import (
    Abandon,
    CheckIn,
    EdgeCosts,
    Expire,
    Expired,
    Grant,
    Proceed,
    Progress,
    RoundApplied,
    Slot,
    Upload,
    Verdict,
)

COSTS = EdgeCosts(compute_s=1.0, send_s=1.0, down_s=1.0, train_s=8.0, up_s=1.0)


def f32(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def make(edges: int = 3, participants: int = 3, **options) -> SyncCloud:
    selection = UniformSelection(participants, seed=2)
    return SyncCloud(f32(0, 0), dict.fromkeys(range(edges), 100), selection=selection, **options)


def ask(cloud, *edges: int, now: float = 0.0):
    effects = []
    for edge in edges:
        effects += cloud.handle(CheckIn(edge, cloud.requests.get(edge, 0) + 1, COSTS, now))
    return effects


def open_round(cloud, *edges: int, now: float = 0.0) -> dict[int, Grant]:
    """Let these edges check in and return the grants of the round by edge."""
    assert ask(cloud, *edges, now=now) == []
    return {grant.edge: grant for grant in cloud.handle(Slot(0, now))}


def deliver(cloud, grant: Grant, *values: float, examples: int = 10, now: float = 1.0):
    return cloud.handle(Upload(grant.edge, grant.lease_id, f32(*values), examples, None, now))


def test_check_ins_are_answered_together_when_the_round_starts():
    cloud = make()
    assert not cloud.answerable
    assert ask(cloud, 0, 1, 2) == []
    assert cloud.answerable
    grants = cloud.handle(Slot(0, 0.5))
    assert [type(g) for g in grants] == [Grant] * 3
    assert [g.edge for g in grants] == [0, 1, 2]
    assert {(g.base_version, g.threshold, g.now) for g in grants} == {(0, math.inf, 0.5)}
    assert not cloud.answerable


def test_a_round_draws_its_participants_uniformly():
    counts: Counter[int] = Counter()
    cloud = make(edges=6, participants=2)
    ask(cloud, *range(6))
    for index in range(600):
        grants = cloud.handle(Slot(index, float(index)))
        assert len(grants) == len({g.edge for g in grants}) == 2
        for grant in grants:
            counts[grant.edge] += 1
            deliver(cloud, grant, 1, 1, now=index + 0.5)
        ask(cloud, *(g.edge for g in grants), now=index + 0.6)
    # each edge is in a third of 600 rounds: 200, deviation sqrt(600 * 1/3 * 2/3) = 11.5; 5 of them is 58
    assert all(abs(counts[edge] - 200) < 58 for edge in range(6))
    assert cloud.version == 600


def test_the_draw_does_not_depend_on_the_order_of_check_ins():
    a, b = make(edges=6, participants=2), make(edges=6, participants=2)
    assert set(open_round(a, *range(6))) == set(open_round(b, *reversed(range(6))))


def test_nobody_joins_a_round_under_way():
    cloud = make(participants=2)
    open_round(cloud, 0, 1)
    ask(cloud, 2)
    assert cloud.handle(Slot(1, 0.5)) == []
    assert list(cloud.waiting) == [2]


def test_uploads_are_acknowledged_as_buffered_and_applied_when_all_are_in():
    cloud = make()
    grants = open_round(cloud, 0, 1, 2)
    assert deliver(cloud, grants[0], 4, 0) == [Verdict(0, 1, "buffered", 0, 0, "", 1.0)]
    assert deliver(cloud, grants[1], 8, 0)[0].status == "buffered"
    assert (cloud.version, cloud.weights.tolist()) == (0, [0.0, 0.0])
    verdict, applied = deliver(cloud, grants[2], 0, 12, now=7.0)
    assert (verdict.status, verdict.staleness) == ("buffered", 0)
    assert applied == RoundApplied(1, (1, 2, 3), (), 7.0)
    assert cloud.weights.tolist() == [4.0, 4.0]  # (4 + 8 + 0) / 3, (0 + 0 + 12) / 3
    assert (cloud.version, cloud.leases, cloud.round) == (1, {}, None)


def test_a_round_is_combined_by_the_rule_of_the_cloud():
    cloud = make(rule=Median())
    grants = open_round(cloud, 0, 1, 2)
    deliver(cloud, grants[0], 4, 1, examples=90)
    deliver(cloud, grants[1], 900, 3)
    deliver(cloud, grants[2], 5, -70)
    assert cloud.weights.tolist() == [5.0, 1.0]


def test_updates_are_clipped_against_the_model_that_the_round_started_from():
    cloud = make(edges=1, participants=1, rule=NormClip(5.0))
    for expected in ([3.0, 4.0], [6.0, 8.0]):  # towards (30, 40), five further each time
        (grant,) = open_round(cloud, 0).values()
        deliver(cloud, grant, 30, 40)
        assert cloud.weights.tolist() == expected


def test_a_round_with_too_few_for_its_rule_leaves_the_model_unchanged():
    cloud = make(deadline_s=10.0, quorum=0.3, rule=Krum())  # which needs three
    grants = open_round(cloud, 0, 1, 2)
    deliver(cloud, grants[0], 4, 0)
    deliver(cloud, grants[1], 8, 0)
    *_, applied = cloud.handle(Slot(1, 10.0))
    assert applied == RoundApplied(0, (), (1, 2), 10.0)
    assert (cloud.version, cloud.weights.tolist()) == (0, [0.0, 0.0])


def test_the_average_is_weighted_by_samples():
    cloud = make(edges=2, participants=2)
    grants = open_round(cloud, 0, 1)
    deliver(cloud, grants[0], 8, 0, examples=30)
    deliver(cloud, grants[1], 0, 8, examples=10)
    assert cloud.weights.tolist() == [6.0, 2.0]  # 3/4 * 8, 1/4 * 8


def test_the_average_does_not_depend_on_the_order_of_arrival():
    stream = np.random.default_rng(5)
    models = stream.normal(size=(4, 2)).astype(np.float32)
    digests = set()
    for order in itertools.permutations(range(4)):
        cloud = make(edges=4, participants=4)
        grants = open_round(cloud, 0, 1, 2, 3)
        for edge in order:
            effects = deliver(cloud, grants[edge], *models[edge], examples=edge + 3)
        assert effects[-1] == RoundApplied(1, (1, 2, 3, 4), (), 1.0)
        digests.add(cloud.weights.tobytes())
    assert len(digests) == 1


def test_the_last_upload_of_a_round_may_ask_for_the_next():
    cloud = make(edges=1, participants=1)
    grants = open_round(cloud, 0)
    effects = cloud.handle(Upload(0, grants[0].lease_id, f32(1, 1), 10, CheckIn(0, 2, COSTS, 1.0), 1.0))
    assert [type(e) for e in effects] == [Verdict, RoundApplied]
    (following,) = cloud.handle(Slot(1, 1.0))
    assert (following.base_version, following.weights.tolist()) == (1, [1.0, 1.0])


def test_the_model_of_a_round_is_the_mean_alone_whatever_it_was_before():
    cloud = make(edges=1, participants=1)
    for value in (3.0, -5.0):
        (grant,) = open_round(cloud, 0).values()
        deliver(cloud, grant, value, value)
        assert cloud.weights.tolist() == [value, value]


def test_a_repeated_upload_gets_the_first_verdict_during_and_after_the_round():
    cloud = make(edges=2, participants=2)
    grants = open_round(cloud, 0, 1)
    (first,) = deliver(cloud, grants[0], 4, 0)
    assert deliver(cloud, grants[0], 9, 9, now=2.0) == [first]
    deliver(cloud, grants[1], 4, 0)
    assert deliver(cloud, grants[0], 9, 9, now=3.0) == [first]
    assert (cloud.version, cloud.weights.tolist()) == (1, [4.0, 0.0])


def test_a_forged_upload_does_not_stand_in_for_a_participant():
    cloud = make(edges=3, participants=2)
    grants = open_round(cloud, 0, 1)
    (verdict,) = cloud.handle(Upload(2, grants[0].lease_id, f32(9, 9), 10, None, 1.0))
    assert verdict.reason == "no such lease"
    assert cloud.round.missing == {1, 2}


def test_progress_is_always_answered_with_proceed():
    cloud = make()
    grants = open_round(cloud, 0, 1, 2)
    assert cloud.handle(Progress(0, grants[0].lease_id, 1.0)) == [Proceed(0, grants[0].lease_id, 1.0)]


# Deadline and quorum.


def test_the_cloud_asks_to_be_woken_at_the_deadline():
    cloud = make(deadline_s=10.0)
    assert cloud.deadline == math.inf
    open_round(cloud, 0, 1, 2, now=2.0)
    assert cloud.deadline == 12.0


def test_at_the_deadline_a_quorum_closes_the_round_with_who_is_in():
    cloud = make(deadline_s=10.0, quorum=0.6)  # 0.6 * 3 = 1.8: two are enough
    grants = open_round(cloud, 0, 1, 2)
    deliver(cloud, grants[2], 0, 8, examples=10)
    deliver(cloud, grants[0], 8, 0, examples=30)
    assert cloud.handle(Slot(1, 9.9)) == []
    late, applied = cloud.handle(Slot(2, 10.0))
    assert late == Expired(1, grants[1].lease_id, "late", 10.0)
    assert applied == RoundApplied(1, (grants[0].lease_id, grants[2].lease_id), (), 10.0)
    assert cloud.weights.tolist() == [6.0, 2.0]  # renormalised: 30/40 * 8, 10/40 * 8


def test_below_the_quorum_the_model_is_unchanged():
    cloud = make(deadline_s=10.0, quorum=0.6)
    grants = open_round(cloud, 0, 1, 2)
    deliver(cloud, grants[0], 8, 8)
    effects = cloud.handle(Slot(1, 10.0))
    assert [e.reason for e in effects[:-1]] == ["late", "late"]
    assert effects[-1] == RoundApplied(0, (), (grants[0].lease_id,), 10.0)  # its upload was in vain
    assert (cloud.version, cloud.weights.tolist(), cloud.leases) == (0, [0.0, 0.0], {})


def test_a_round_in_which_nobody_delivers_leaves_the_model_unchanged():
    cloud = make(deadline_s=10.0, quorum=0.01)
    open_round(cloud, 0, 1, 2)
    assert cloud.handle(Slot(1, 10.0))[-1] == RoundApplied(0, (), (), 10.0)


def test_a_late_upload_is_told_so_and_its_edge_takes_part_again():
    cloud = make(deadline_s=10.0, quorum=0.3)
    grants = open_round(cloud, 0, 1, 2)
    deliver(cloud, grants[0], 8, 8)
    cloud.handle(Slot(1, 10.0))
    (verdict,) = cloud.handle(Upload(1, grants[1].lease_id, f32(9, 9), 10, CheckIn(1, 2, COSTS, 11.0), 11.0))
    assert (verdict.status, verdict.reason) == ("rejected", "late")
    assert (cloud.version, cloud.weights.tolist()) == (1, [8.0, 8.0])
    assert [g.edge for g in cloud.handle(Slot(2, 11.0))] == [1]


def test_the_slot_at_the_deadline_closes_one_round_and_opens_the_next():
    cloud = make(participants=2, deadline_s=10.0, quorum=0.5)
    grants = open_round(cloud, 0, 1)
    deliver(cloud, grants[0], 8, 8)
    ask(cloud, 0, 2, now=5.0)
    effects = cloud.handle(Slot(1, 10.0))
    assert [type(e) for e in effects] == [Expired, RoundApplied, Grant, Grant]
    assert {g.base_version for g in effects[2:]} == {1}
    assert cloud.deadline == 20.0


@pytest.mark.parametrize(
    ("size", "quorum", "enough"), [(25, 0.28, 7), (20, 0.55, 11), (10, 0.7, 7), (5, 0.5, 3)]
)
def test_the_quorum_is_the_share_of_the_round_whatever_floats_make_of_it(size, quorum, enough):
    # 0.28 of 25 is 7, although 0.28 * 25 = 7.000000000000001 in floating point
    for delivered in (enough - 1, enough):
        cloud = make(edges=size, participants=size, deadline_s=10.0, quorum=quorum)
        grants = open_round(cloud, *range(size))
        for edge in range(delivered):
            deliver(cloud, grants[edge], 1, 1)
        cloud.handle(Slot(1, 10.0))
        assert cloud.version == int(delivered >= enough)


# What cannot block a round.


def test_a_rejected_upload_does_not_block_its_round():
    cloud = make(quorum=0.5)
    grants = open_round(cloud, 0, 1, 2)
    deliver(cloud, grants[0], 2, 4)
    deliver(cloud, grants[1], 4, 8)
    verdict, applied = deliver(cloud, grants[2], np.nan, 0)
    assert (verdict.status, verdict.reason) == ("rejected", "not finite")
    assert applied == RoundApplied(1, (1, 2), (), 1.0)
    assert cloud.weights.tolist() == [3.0, 6.0]


def test_a_rejected_upload_in_the_middle_of_a_round_is_left_out():
    cloud = make(quorum=0.5)
    grants = open_round(cloud, 0, 1, 2)
    assert len(deliver(cloud, grants[1], np.inf, 0)) == 1
    deliver(cloud, grants[0], 2, 4)
    assert deliver(cloud, grants[2], 4, 8)[-1] == RoundApplied(1, (1, 3), (), 1.0)
    assert cloud.weights.tolist() == [3.0, 6.0]


def test_a_rejected_upload_counts_against_the_quorum():
    cloud = make()  # quorum 1
    grants = open_round(cloud, 0, 1, 2)
    deliver(cloud, grants[0], 2, 4)
    deliver(cloud, grants[1], 2, 4)
    assert deliver(cloud, grants[2], np.nan, 0)[-1] == RoundApplied(0, (), (1, 2), 1.0)
    assert cloud.weights.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("how", ["abandoned", "superseded", "expired"])
def test_a_participant_that_gives_up_does_not_block_its_round(how):
    cloud = make(edges=2, participants=2, quorum=0.5)
    grants = open_round(cloud, 0, 1)
    deliver(cloud, grants[0], 2, 4)
    event = {
        "abandoned": Abandon(1, grants[1].lease_id, None, 5.0),
        "superseded": CheckIn(1, 2, COSTS, 5.0),
        "expired": Expire(grants[1].lease_id, 30.0),
    }[how]
    expired, applied = cloud.handle(event)[:2]
    assert (expired.edge, expired.reason) == (1, how)
    assert (applied.version, applied.leases) == (1, (1,))
    assert cloud.weights.tolist() == [2.0, 4.0]


def test_the_last_participant_that_expires_closes_the_round():
    cloud = make()
    grants = open_round(cloud, 0, 1, 2)
    effects = [effect for given in grants.values() for effect in cloud.handle(Expire(given.lease_id, 30.0))]
    assert [type(e) for e in effects] == [Expired, Expired, Expired, RoundApplied]
    assert cloud.round is None


def test_a_restored_cloud_closes_the_round_alike():
    cloud = make(deadline_s=10.0, quorum=0.5)
    grants = open_round(cloud, 0, 1, 2)
    deliver(cloud, grants[0], 2, 4)
    other = make(deadline_s=10.0, quorum=0.5)
    other.restore(copy.deepcopy(cloud.snapshot()))
    for machine in (cloud, other):
        deliver(machine, grants[2], 4, 8)
        machine.handle(Slot(1, 10.0))
    assert other.weights.tolist() == cloud.weights.tolist() == [3.0, 6.0]
    assert repr(other.snapshot()) == repr(cloud.snapshot())
