"""Who takes part in a synchronous round."""

import math
from collections import Counter

import numpy as np
import pytest

from hiflash.core.selection import TierSelection, UniformSelection, tier_probabilities
from hiflash.core.sync_cloud import SyncCloud
from hiflash.messages import CheckIn, EdgeCosts, Grant, Measure, Measured, Slot, Upload

TIERS = [[0, 1, 2], [3, 4, 5], [6, 7]]


def tiers(**options) -> TierSelection:
    defaults = {"participants": 2, "interval": 3, "credits": 10, "seed": 1}
    return TierSelection(TIERS, np.eye(3), **{**defaults, **options})


def test_probabilities_fall_with_accuracy():
    # n = 5: (5 - i) / 10 for i = 1 (lowest) .. 5: 0.4, 0.3, 0.2, 0.1, 0
    assert tier_probabilities([0.5, 0.1, 0.9, 0.3, 0.7], [1] * 5) == [0.2, 0.4, 0.0, 0.3, 0.1]
    # n = 2: (2 - 1) / 1 = 1 and 0
    assert tier_probabilities([0.5, 0.1], [1, 1]) == [0.0, 1.0]


def test_only_tiers_with_credits_count():
    # tiers 0 and 2 are left: 2 is the less accurate
    assert tier_probabilities([0.5, 0.1, 0.4], [1, 0, 1]) == [0.0, 0.0, 1.0]
    assert tier_probabilities([0.5, 0.1, 0.4], [1, 0, 0]) == [1.0, 0.0, 0.0]  # n = 1: p = 1
    assert tier_probabilities([0.5, 0.1], [0, 0]) == [0.5, 0.5]  # more rounds than planned


def test_equal_accuracies_are_ranked_by_tier():
    assert tier_probabilities([0.5, 0.5, 0.5], [1] * 3) == [2 / 3, 1 / 3, 0.0]


def test_a_round_is_made_of_clients_of_one_tier_and_costs_it_a_credit():
    selection = tiers()
    for index in range(1, 9):
        chosen = selection.choose(range(8), index)
        assert len(chosen) == 2
        assert set(chosen) <= set(TIERS[selection.current])
    assert sum(selection.credits) == 3 * 10 - 8


def test_at_first_all_tiers_are_drawn_alike():
    selection, drawn = tiers(credits=math.inf), Counter()
    for index in range(1, 901):
        selection.choose(range(8), index)
        drawn[selection.current] += 1
    # 300 expected of each, standard deviation sqrt(900 * 1/3 * 2/3) = 14.1; five of them are 71
    assert all(abs(drawn[tier] - 300) < 71 for tier in range(3))


def test_probabilities_change_only_if_the_current_tier_has_not_gained():
    selection = tiers()
    selection.observe([0.1, 0.1, 0.1])  # the initial model: nothing to compare with
    selection.current = 1
    selection.observe([0.1, 0.2, 0.1])
    assert selection.probabilities == [1 / 3] * 3  # tier 1 has gained
    selection.observe([0.5, 0.2, 0.1])
    # it has not: tier 2 is the worst (2/3), then 1 (1/3), then 0
    assert selection.probabilities == [0.0, 1 / 3, 2 / 3]


def test_a_tiers_accuracy_is_recall_weighted_by_its_labels():
    selection = TierSelection(
        [[0], [1]], np.array([[0.5, 0.5], [0.25, 0.75]]), participants=1, interval=2, credits=4, seed=0
    )
    selection.observe([0.8, 0.4])
    assert selection.accuracies == [pytest.approx(0.6), pytest.approx(0.5)]  # .4 + .2; .2 + .3


def test_a_tier_without_credits_or_without_anyone_waiting_is_not_drawn():
    selection = tiers()
    selection.credits = [0, 50, 50]
    assert {tuple(TIERS[selection.current]) for i in range(1, 20) if selection.choose(range(6), i)} == {
        (3, 4, 5)
    }


def test_a_tier_selection_goes_on_from_its_snapshot():
    one, other = tiers(), tiers()
    one.observe([0.1, 0.2, 0.3])
    for index in range(1, 5):
        one.choose(range(8), index)
    other.restore(one.snapshot())
    one.observe([0.1, 0.1, 0.1])
    other.observe([0.1, 0.1, 0.1])
    assert [one.choose(range(8), i) for i in range(5, 9)] == [other.choose(range(8), i) for i in range(5, 9)]


def test_measurements_are_wanted_before_the_first_round_and_after_every_interval():
    assert [index for index in range(1, 10) if tiers().wants_recall(index)] == [1, 4, 7]
    unlabelled = TierSelection(TIERS, None, participants=2, interval=3, credits=10, seed=1)
    assert not any(unlabelled.wants_recall(index) for index in range(1, 10))
    assert not UniformSelection(2, 0).wants_recall(1)


def cloud() -> SyncCloud:
    made = SyncCloud(np.zeros(1, np.float32), dict.fromkeys(range(8), 10), selection=tiers())
    for edge in range(8):
        made.handle(CheckIn(edge, 1, EdgeCosts(1, 1, 1, 1, 1), 0.0))
    return made


def test_the_cloud_asks_for_a_measurement_and_opens_the_round_with_the_answer():
    made = cloud()
    assert made.handle(Slot(0, 0.0)) == [Measure(0, 0.0)]
    assert not made.answerable
    assert made.handle(Slot(1, 0.5)) == []  # it waits for the answer
    grants = made.handle(Measured((0.1, 0.2, 0.3), 1.0))
    assert [type(grant) for grant in grants] == [Grant, Grant]
    assert made.selection.accuracies == pytest.approx([0.1, 0.2, 0.3])
    assert made.handle(Measured((0.9, 0.9, 0.9), 1.0)) == []  # nobody asked
    assert made.selection.accuracies == pytest.approx([0.1, 0.2, 0.3])


def test_the_next_rounds_need_no_measurement():
    made = cloud()
    made.handle(Slot(0, 0.0))
    grants = made.handle(Measured(None, 0.0))
    for grant in grants:
        made.handle(Upload(grant.edge, grant.lease_id, np.ones(1, np.float32), 10, None, 1.0))
    assert made.version == 1
    assert all(isinstance(effect, Grant) for effect in made.handle(Slot(1, 1.0)))


def test_a_cloud_that_waits_for_a_measurement_goes_on_from_its_snapshot():
    made, fresh = cloud(), cloud()
    made.handle(Slot(0, 0.0))
    fresh.restore(made.snapshot())
    answer = Measured((0.1, 0.2, 0.3), 1.0)
    first, second = made.handle(answer), fresh.handle(answer)
    assert [grant.edge for grant in first] == [grant.edge for grant in second]
