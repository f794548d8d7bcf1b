"""Threshold policies by rule, worked by hand."""

import pytest

from hiflash.core.thresholds.heuristics import KeepParallel, LatencyAware, SkipSlowest
from hiflash.core.thresholds.policy import REFUSE, CloudView, LeaseView
from hiflash.messages import EdgeCosts


def costs(*durations: float) -> dict[int, EdgeCosts]:
    return {edge: EdgeCosts(1.0, 1.0, 0.0, duration, 0.0) for edge, duration in enumerate(durations)}


def view(
    durations: tuple[float, ...], *leases: tuple[int, float], now: float = 0.0, examples: tuple[int, ...] = ()
) -> CloudView:
    running = tuple(LeaseView(edge, 0, 8, 0.0, eta) for edge, eta in leases)
    declared = dict(enumerate(examples or (10,) * len(durations)))
    return CloudView(now=now, version=0, leases=running, costs=costs(*durations), examples=declared)


def test_parallel_refuses_when_enough_edges_run():
    policy = KeepParallel(2)
    assert policy.decide(view((1.0, 1.0, 1.0), (0, 1.0), (1, 1.0)), 2) == REFUSE
    assert policy.decide(view((1.0, 1.0, 1.0), (0, 1.0)), 2) >= 0


def test_one_at_a_time_needs_no_staleness():
    assert KeepParallel(1).decide(view((5.0, 1.0)), 0) == 0


@pytest.mark.parametrize(
    ("durations", "leases", "now", "edge", "expected"),
    [
        # edge 1 is due at 1 and takes 1, so before 3.5 it arrives at 1, 2 and 3
        ((3.5, 1.0), [(1, 1.0)], 0.0, 0, 3),
        # it is due at 4, after the candidate at 3.5
        ((3.5, 9.0), [(1, 4.0)], 0.0, 0, 0),
        # due at the same time as the candidate: not before it
        ((3.0, 9.0), [(1, 3.0)], 0.0, 0, 0),
        # nobody runs yet: the other place counts as one of the median duration (1 + 3) / 2 = 2, due at 2
        ((3.0, 1.0), [], 0.0, 0, 1),
        # from now = 10: eta 12.5; the other is due at 11 and every second, so at 11 and 12
        ((2.5, 1.0), [(1, 11.0)], 10.0, 0, 2),
    ],
)
def test_parallel_counts_who_arrives_before(durations, leases, now, edge, expected):
    assert KeepParallel(2).decide(view(durations, *leases, now=now), edge) == expected


def test_parallel_survives_edges_that_take_no_time():
    assert KeepParallel(3).decide(view((0.0, 0.0, 0.0), (1, 0.0)), 0) == 0
    assert KeepParallel(2).decide(view((1.0, 0.0), (1, 0.0)), 0) == 1


def test_latency_grants_in_proportion_to_the_duration():
    policy = LatencyAware(base=2, maximum=5)
    durations = (1.0, 2.0, 4.0, 2.0, 20.0)  # median 2
    # 2 * 1/2 = 1, 2 * 1 = 2, 2 * 2 = 4, 2, and 2 * 10 = 20 cut to 5
    assert [policy.decide(view(durations), edge) for edge in range(5)] == [1, 2, 4, 2, 5]
    assert policy.decide(view((0.0, 0.0)), 0) == 2


def test_skip_slowest_refuses_the_slowest_and_no_others():
    policy = SkipSlowest(3, skipped=2)
    durations = (1.0, 9.0, 2.0, 9.0)
    assert [policy.decide(view(durations), edge) for edge in range(4)] == [3, REFUSE, 3, REFUSE]
    # of equally slow ones the lower index counts as slower
    assert [SkipSlowest(3, 1).decide(view(durations), edge) for edge in range(4)] == [3, REFUSE, 3, 3]


def test_skip_slowest_knows_nobody_as_slow_before_all_have_checked_in():
    assert SkipSlowest(3, skipped=2).decide(view((1.0, 9.0), examples=(10, 10, 10)), 1) == 3


def test_skip_slowest_does_not_wait_for_an_edge_without_clients():
    without = view((1.0, 9.0, 2.0), examples=(10, 10, 10, 0))
    assert [SkipSlowest(3, skipped=1).decide(without, edge) for edge in range(3)] == [3, REFUSE, 3]
    # with one edge left to ask, refusing it would end the run
    assert [SkipSlowest(3, skipped=3).decide(without, edge) for edge in range(3)] == [3, REFUSE, REFUSE]
