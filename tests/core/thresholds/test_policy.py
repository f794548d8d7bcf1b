"""Threshold policies, and who may start without making anyone too stale."""

import math
from collections import Counter

from hiflash.core.thresholds.fixed import FixedThreshold
from hiflash.core.thresholds.policy import REFUSE, CloudView, LeaseView, admits
from hiflash.core.thresholds.random import RandomThreshold, UnevenThreshold


def view(*leases: LeaseView, version: int = 0, now: float = 0.0) -> CloudView:
    return CloudView(now=now, version=version, leases=leases, costs={}, examples={})


def lease(edge: int, *, base: int = 0, threshold: float, eta: float) -> LeaseView:
    return LeaseView(edge, base, threshold, granted_at=0.0, eta=eta)


def test_fixed_threshold_is_the_same_for_everyone_and_keeps_no_state():
    policy = FixedThreshold(3)
    assert [policy.decide(view(), edge) for edge in range(3)] == [3, 3, 3]
    policy.restore(policy.snapshot())
    assert policy.snapshot() == {}
    assert FixedThreshold(math.inf).decide(view(), 0) == math.inf
    assert FixedThreshold(REFUSE).decide(view(), 0) == -1


def test_random_threshold_is_uniform_on_zero_to_maximum_inclusive():
    policy = RandomThreshold(4, seed=1)
    drawn = Counter(policy.decide(view(), 0) for _ in range(5000))
    assert sorted(drawn) == [0, 1, 2, 3, 4]
    # 1,000 expected of each; the standard deviation is sqrt(5000 * 0.2 * 0.8) = 28.3, so 5 of them is 142
    assert all(abs(count - 1000) < 142 for count in drawn.values())


def test_random_threshold_of_maximum_zero_is_always_zero():
    policy = RandomThreshold(0, seed=1)
    assert {policy.decide(view(), 0) for _ in range(20)} == {0}


def test_random_threshold_repeats_for_a_seed_and_differs_between_seeds():
    draws = [[RandomThreshold(16, seed).decide(view(), 0)] for seed in range(40)]
    assert len({tuple(d) for d in draws}) > 5
    first, second = RandomThreshold(16, seed=3), RandomThreshold(16, seed=3)
    assert [first.decide(view(), 0) for _ in range(50)] == [second.decide(view(), 7) for _ in range(50)]


def test_random_threshold_draws_anew_at_every_ask_of_the_same_edge():
    policy = RandomThreshold(16, seed=0)
    assert len({policy.decide(view(), 0) for _ in range(50)}) > 8


def test_random_threshold_goes_on_from_a_snapshot():
    policy = RandomThreshold(16, seed=5)
    for _ in range(7):
        policy.decide(view(), 0)
    saved = policy.snapshot()
    ahead = [policy.decide(view(), 0) for _ in range(20)]
    fresh = RandomThreshold(16, seed=5)
    fresh.restore(saved)
    assert [fresh.decide(view(), 0) for _ in range(20)] == ahead


def test_admits_anyone_when_no_lease_is_open():
    assert admits(view(version=9), lease(0, base=9, threshold=0, eta=5.0))


def test_threshold_zero_means_one_edge_at_a_time():
    # Whichever of the two arrives second has staleness 1 > 0.
    open_lease = lease(0, threshold=0, eta=10.0)
    assert not admits(view(open_lease), lease(1, threshold=0, eta=5.0))  # would make lease 0 stale
    assert not admits(view(open_lease), lease(1, threshold=0, eta=15.0))  # would itself be stale


def test_admits_protects_the_open_lease_from_a_faster_candidate():
    # The candidate (eta 5) arrives before lease 0 (eta 10), which then has staleness 1.
    faster = lease(1, threshold=5, eta=5.0)
    assert not admits(view(lease(0, threshold=0, eta=10.0)), faster)
    assert admits(view(lease(0, threshold=1, eta=10.0)), faster)


def test_admits_holds_the_candidate_to_its_own_threshold():
    # Two leases arrive before the candidate: its staleness will be 2.
    others = (lease(0, threshold=9, eta=1.0), lease(1, threshold=9, eta=2.0))
    assert not admits(view(*others), lease(2, threshold=1, eta=3.0))
    assert admits(view(*others), lease(2, threshold=2, eta=3.0))


def test_admits_counts_the_versions_that_passed_since_the_grant():
    # Version 7, lease 0 from base 4: already 3 old; the candidate arrives before it: 3 + 1 = 4.
    candidate = lease(1, base=7, threshold=9, eta=5.0)
    assert not admits(view(lease(0, base=4, threshold=3, eta=10.0), version=7), candidate)
    assert admits(view(lease(0, base=4, threshold=4, eta=10.0), version=7), candidate)


def test_of_two_expected_at_the_same_time_the_one_granted_first_counts_as_earlier():
    # One of them will be first; without an order two edges would run at threshold 0.
    assert not admits(view(lease(0, threshold=0, eta=5.0)), lease(1, threshold=0, eta=5.0))
    assert admits(view(lease(0, threshold=0, eta=5.0)), lease(1, threshold=1, eta=5.0))


def test_a_lease_that_is_already_too_old_blocks_every_candidate():
    # (version - base) = 3 > 2 whatever the candidate does.
    late = lease(0, base=0, threshold=2, eta=1.0)
    assert not admits(view(late, version=3), lease(1, base=3, threshold=99, eta=50.0))


def test_infinite_threshold_never_binds():
    others = tuple(lease(edge, threshold=math.inf, eta=float(edge)) for edge in range(50))
    assert admits(view(*others, version=1000), lease(50, base=1000, threshold=math.inf, eta=99.0))
    assert not admits(view(*others, version=1000), lease(50, base=1000, threshold=49, eta=99.0))
    assert admits(view(*others, version=1000), lease(50, base=1000, threshold=50, eta=99.0))


def test_admits_three_leases_by_hand():
    # version 5. A: base 5, eta 4, threshold 1. B: base 4, eta 9, threshold 3. C (candidate): base 5, eta 6.
    # A: 0 + 0 earlier = 0 <= 1.  B: 1 + {A, C} = 3 <= 3.  C: 0 + {A} = 1.
    a, b = lease(0, base=5, threshold=1, eta=4.0), lease(1, base=4, threshold=3, eta=9.0)
    assert admits(view(a, b, version=5), lease(2, base=5, threshold=1, eta=6.0))
    assert not admits(view(a, b, version=5), lease(2, base=5, threshold=0, eta=6.0))
    b_tight = lease(1, base=4, threshold=2, eta=9.0)
    assert not admits(view(a, b_tight, version=5), lease(2, base=5, threshold=1, eta=6.0))
    # Later than B, the candidate leaves B at 1 + {A} = 2 and has itself {A, B} = 2.
    assert admits(view(a, b_tight, version=5), lease(2, base=5, threshold=2, eta=10.0))


def everyone(edges: int, empty: tuple[int, ...] = ()) -> CloudView:
    examples = {edge: 0 if edge in empty else 10 for edge in range(edges)}
    return CloudView(now=0.0, version=0, leases=(), costs={}, examples=examples)


def refusals(seed: int, edges: int, asks: int, empty: tuple[int, ...] = ()) -> list[float]:
    policy = UnevenThreshold(16, seed)
    said = {edge: [policy.decide(everyone(edges, empty), edge) for _ in range(asks)] for edge in range(edges)}
    assert {threshold for thresholds in said.values() for threshold in thresholds} <= set(range(-1, 17))
    return [thresholds.count(REFUSE) / asks for thresholds in said.values()]


def test_uneven_thresholds_refuse_half_of_the_edges_never_and_the_others_often_or_always():
    drawn = [UnevenThreshold(16, seed)._drawn(edge) for seed in range(20) for edge in range(10)]
    # of 200 edges 100, 50 and 50 are expected, with deviations of 7.1 and 6.1: 5 of them is 35 and 31
    assert abs(drawn.count(0.0) - 100) < 35
    assert abs(drawn.count(0.9) - 50) < 31
    assert abs(drawn.count(1.0) - 50) < 31
    # 0.9 of 100 asks has a deviation of sqrt(0.09 / 100) = 0.03; never and always are exact
    assert {drawn[edge] for edge in range(10)} == {0.0, 0.9, 1.0}
    for share, kind in zip(refusals(0, 10, 100), drawn[:10], strict=True):
        assert share == kind or (kind == 0.9 and abs(share - 0.9) < 0.1 and share < 1)


def test_uneven_thresholds_never_refuse_everyone_always():
    always = [seed for seed in range(200) if all(UnevenThreshold(4, seed)._drawn(m) == 1 for m in (0, 1))]
    assert always  # about one in sixteen
    for seed in always:
        assert refusals(seed, 2, 40) == [0, 1]
        # an edge without clients never asks: the first one that does is the next
        assert refusals(seed, 2, 40, empty=(0,))[1] == 0


def test_uneven_thresholds_go_on_from_a_snapshot():
    policy = UnevenThreshold(16, seed=5)
    for ask in range(7):
        policy.decide(everyone(4), ask % 4)
    saved = policy.snapshot()
    ahead = [policy.decide(everyone(4), ask % 4) for ask in range(40)]
    fresh = UnevenThreshold(16, seed=5)
    fresh.restore(saved)
    assert [fresh.decide(everyone(4), ask % 4) for ask in range(40)] == ahead
    assert len(set(ahead)) > 5
