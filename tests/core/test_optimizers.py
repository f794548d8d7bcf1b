from __future__ import annotations

import math

import numpy as np
import pytest

from hiflash.core.optimizers import Adaptive, CloudOptimizer, Momentum
from hiflash.core.selection import UniformSelection
from hiflash.core.sync_cloud import SyncCloud
from hiflash.messages import CheckIn, CloudEffect, EdgeCosts, RoundApplied, Slot, Upload


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def after_rounds(optimizer: CloudOptimizer, *combined: float) -> list[float]:
    """Return the global model after each round; it starts at 0 and its statistic at 9."""
    weights, seen = f32(0, 9), []
    for value in combined:
        weights = optimizer.step(weights, f32(value, value))
        seen.append(weights[0].item())
        assert weights[1] == value  # statistics are those of the round
    return seen


def test_momentum_over_two_rounds() -> None:
    # m = 2, w = 0 + 0.5 * 2 = 1; then d = 3 - 1, m = 0.5 * 2 + 2 = 3, w = 1 + 0.5 * 3
    assert after_rounds(Momentum(1, lr=0.5, momentum=0.5), 2, 3) == [1, 2.5]


def test_without_momentum_and_with_rate_one_it_is_the_combined_model() -> None:
    assert after_rounds(Momentum(1, lr=1, momentum=0), 2, 3, -1) == [2, 3, -1]
    assert after_rounds(CloudOptimizer(), 2, 3, -1) == [2, 3, -1]


def test_adam_over_two_rounds() -> None:
    adam = Adaptive(1, lr=1, betas=(0.5, 0.75), adaptivity=0.5)
    # v starts at 0.25. d = 1: m = 0.5, v = 0.75 * 0.25 + 0.25 = 0.4375
    first = 0.5 / (math.sqrt(0.4375) + 0.5)
    # d = 1 again: m = 0.25 + 0.5, v = 0.75 * 0.4375 + 0.25 = 0.578125
    second = first + 0.75 / (math.sqrt(0.578125) + 0.5)
    assert after_rounds(adam, 1, first + 1) == pytest.approx([first, second], rel=1e-6)


def test_yogi_over_two_rounds() -> None:
    yogi = Adaptive(1, lr=1, betas=(0.5, 0.75), adaptivity=0.5, yogi=True)
    # d = 1: v = 0.25 - 0.25 * 1 * sign(0.25 - 1) = 0.5; then 0.75, and m as for adam
    first = 0.5 / (math.sqrt(0.5) + 0.5)
    second = first + 0.75 / (math.sqrt(0.75) + 0.5)
    assert after_rounds(yogi, 1, first + 1) == pytest.approx([first, second], rel=1e-6)


def test_a_snapshot_brings_momentum_back() -> None:
    one, other = Momentum(1, 1.0, 0.5), Momentum(1, 1.0, 0.5)
    one.step(f32(0), f32(2))
    other.restore(one.snapshot())
    np.testing.assert_array_equal(one.step(f32(2), f32(2)), other.step(f32(2), f32(2)))


def test_a_round_whose_step_is_not_finite_does_not_count_and_leaves_no_trace() -> None:
    optimizer = Momentum(1, lr=1e30, momentum=0.5)
    selection = UniformSelection(2, seed=0)
    cloud = SyncCloud(f32(0), {0: 10, 1: 10}, selection=selection, optimizer=optimizer)
    costs = EdgeCosts(1.0, 1.0, 1.0, 1.0, 1.0)
    effects: list[CloudEffect] = []
    for edge in (0, 1):
        cloud.handle(CheckIn(edge, 1, costs, 0.0))
    cloud.handle(Slot(0, 0.0))
    for lease in list(cloud.leases.values()):
        effects += cloud.handle(Upload(lease.edge, lease.lease_id, f32(1e20), 10, None, 1.0))
    (closed,) = [effect for effect in effects if isinstance(effect, RoundApplied)]
    assert closed.leases == ()
    assert len(closed.dropped) == 2
    assert cloud.version == 0
    assert cloud.weights.tolist() == [0]
    assert optimizer.direction is None
