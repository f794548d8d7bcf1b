"""The state that a policy sees, worked by hand."""

import numpy as np
import pytest

from hiflash.core.thresholds.observation import observe, refusal_would_stall
from hiflash.core.thresholds.policy import CloudView, LeaseView
from hiflash.messages import EdgeCosts


def view(leases=(), costs=None):
    declared = costs or {
        0: EdgeCosts(compute_s=3.0, send_s=2.0, down_s=0.1, train_s=0.2, up_s=0.1),
        1: EdgeCosts(compute_s=1.5, send_s=6.0, down_s=0.2, train_s=0.5, up_s=0.3),
    }
    examples = {0: 10, 1: 20, 2: 30}
    return CloudView(5.0, 7, leases, declared, examples, slot_s=0.05, cost_unit_s=(1.5, 4.0))


def test_costs_are_in_units_and_times_in_tens_of_slots():
    running = LeaseView(edge=1, base_version=6, threshold=3, granted_at=4.9, eta=5.4)
    state = observe(view((running,)), 0).reshape(5, 3)
    assert state.dtype == np.float32
    assert state[0].tolist() == [2.0, 1.0, 0.0]  # 3 / 1.5, 1.5 / 1.5; edge 2 has declared nothing
    assert state[1].tolist() == [0.5, 1.5, 0.0]  # 2 / 4, 6 / 4
    assert state[2].round(6).tolist() == [np.float32(0.8), 2.0, 0.0]  # 0.4 s and 1 s in units of 0.5 s
    assert state[3].round(6).tolist() == [0.0, np.float32(0.8), 0.0]  # 0.4 s are left
    assert state[4].tolist() == [1.0, 0.0, 0.0]


def test_a_late_edge_still_runs():
    late = LeaseView(edge=1, base_version=6, threshold=3, granted_at=3.0, eta=5.0)  # was due just now
    assert observe(view((late,)), None).reshape(5, 3)[3, 1] == np.float32(0.1)  # one slot of ten


def test_nothing_is_shown_as_larger_than_ten():
    slow = {0: EdgeCosts(compute_s=1e6, send_s=1e6, down_s=0.0, train_s=1e6, up_s=0.0)}
    assert observe(view(costs=slow), None).max() == 10.0


def test_nobody_checks_in():
    assert not observe(view(), None).reshape(5, 3)[4].any()


@pytest.mark.parametrize(
    ("durations", "edge", "waits"),
    [
        ([3.0, 1.0, 2.0], 1, True),  # the fastest
        ([3.0, 1.0, 2.0], 2, True),  # two of three are as slow or slower
        ([3.0, 1.0, 2.0], 0, False),  # two are faster
        ([2.0, 1.0, 0.0], 1, True),
        (
            [2.0, 1.0, 0.0],
            0,
            False,
        ),  # one of the two that have declared anything is faster, and edge 2 unknown
        ([2.0, 2.0, 2.0], 2, True),  # all alike
    ],
)
def test_refusing_the_faster_half_is_waiting_for_nobody(durations, edge, waits):
    costs = {
        m: EdgeCosts(compute_s=1.0, send_s=1.0, down_s=0.0, train_s=duration, up_s=0.0)
        for m, duration in enumerate(durations)
        if duration
    }
    assert refusal_would_stall(observe(view(costs=costs), edge)) == waits
    running = LeaseView(edge=(edge + 1) % 3, base_version=6, threshold=3, granted_at=4.9, eta=5.4)
    assert not refusal_would_stall(observe(view((running,), costs), edge))
