"""Clients at their edge, edges at the cloud: every rule with numbers worked by hand."""

import numpy as np
import pytest

from hiflash.core.aggregation import combine_clients
from hiflash.core.mixing import Buffer, Delta, Interpolate, TierWeighting
from hiflash.core.weighting import Constant, Exponential, Polynomial
from hiflash.messages import ClientUpdate
from hiflash.weights import weighted_mean


def f32(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def update(client: int, weights: np.ndarray, examples: int) -> ClientUpdate:
    return ClientUpdate(client, 1, 0, weights, examples, 0.0, 1.0, 0.0)


def average_clients(updates: list[ClientUpdate], quorum: int) -> np.ndarray | None:
    made = combine_clients(updates, quorum, base=f32())
    return made and made[0]


def test_clients_are_averaged_by_their_samples():
    # (1 * [4, 0] + 3 * [0, 8]) / 4 = [1, 6]
    mean = average_clients([update(0, f32(4, 0), 1), update(1, f32(0, 8), 3)], quorum=1)
    assert mean.tolist() == [1.0, 6.0]
    assert mean.dtype == np.float32


def test_the_mean_does_not_depend_on_arrival_order():
    stream = np.random.default_rng(0)
    updates = [update(k, stream.normal(size=50).astype(np.float32), 7 + k) for k in range(9)]
    shuffled = [updates[k] for k in stream.permutation(9)]
    assert average_clients(updates, 1).tobytes() == average_clients(shuffled, 1).tobytes()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_client_that_is_not_finite_is_dropped_and_the_others_renormalised(bad):
    # Without client 1: (1 * [2, 4] + 1 * [4, 8]) / 2 = [3, 6]
    updates = [update(0, f32(2, 4), 5), update(1, f32(0, bad), 90), update(2, f32(4, 8), 5)]
    assert average_clients(updates, quorum=2).tolist() == [3.0, 6.0]


def test_too_few_usable_clients_give_no_mean():
    updates = [update(0, f32(2, 4), 5), update(1, f32(0, np.nan), 5)]
    assert average_clients(updates, quorum=2) is None
    assert average_clients(updates, quorum=1).tolist() == [2.0, 4.0]
    assert average_clients([], quorum=1) is None


def test_the_mean_of_one_client_is_its_model_bit_for_bit():
    model = f32(0.1, -0.0, 1e-45, 3.4e38, -7.7)
    assert average_clients([update(3, model, 601)], 1).tobytes() == model.tobytes()


def test_the_mean_of_huge_models_stays_finite():
    top = np.finfo(np.float32).max
    updates = [update(k, f32(top, -top), n) for k, n in enumerate((3, 7, 11))]
    assert np.isfinite(average_clients(updates, 1)).all()


def test_interpolation_moves_the_share_alpha_times_penalty_to_the_staleness():
    # staleness 1: a = 0.5 * 0.5 = 0.25; 0.75 * [8, 0] + 0.25 * [0, 8] = [6, 2]
    rule = Interpolate(0.5, Exponential(0.5))
    assert rule.mix(f32(8, 0), f32(0, 8), f32(99, 99), 0, 1).tolist() == [6.0, 2.0]


def test_interpolation_by_hand_over_three_updates():
    rule = Interpolate(0.5, Exponential(0.5))
    w = f32(0, 16)
    w = rule.mix(w, f32(16, 0), w, 0, 0)  # a = 1/2: [8, 8]
    assert w.tolist() == [8.0, 8.0]
    w = rule.mix(w, f32(0, 16), w, 1, 1)  # a = 1/4: [6, 10]
    assert w.tolist() == [6.0, 10.0]
    w = rule.mix(w, f32(14, 2), w, 2, 2)  # a = 1/8: 6 + (14 - 6) / 8 = 7, 10 + (2 - 10) / 8 = 9
    assert w.tolist() == [7.0, 9.0]


def test_interpolation_with_the_papers_constants():
    # a = 0.7 * 0.99^2 = 0.68607: 0.31393 * 1 + 0.68607 * 2 = 1.68607
    rule = Interpolate(0.7, Exponential(0.99))
    assert rule.mix(f32(1), f32(2), f32(0), 0, 2)[0] == pytest.approx(1.68607, abs=1e-6)


def test_interpolation_with_alpha_one_is_the_edge_model_bit_for_bit():
    stream = np.random.default_rng(3)
    model = stream.normal(size=1000).astype(np.float32) * np.float32(1e-3)
    current = stream.normal(size=1000).astype(np.float32)
    mixed = Interpolate(1.0, Exponential(0.5)).mix(current, model, current, 0, 0)
    assert mixed.tobytes() == model.tobytes()
    assert mixed.dtype == np.float32


def test_interpolation_with_alpha_one_keeps_the_sign_of_zero():
    model, current = f32(-0.0, 0.0, -0.0, 0.0), f32(1, 1, -1, -1)
    mixed = Interpolate(1.0, Exponential(1.0)).mix(current, model, current, 0, 0)
    assert mixed.tobytes() == model.tobytes()


def test_interpolation_changes_neither_of_its_inputs_and_keeps_no_state():
    rule = Interpolate(0.5, Exponential(1.0))
    w, u = f32(1, 2), f32(3, 4)
    rule.mix(w, u, w, 0, 0)
    assert (w.tolist(), u.tolist(), rule.snapshot()) == ([1.0, 2.0], [3.0, 4.0], {})
    rule.restore({})


def test_delta_adds_what_the_edge_changed_to_the_current_model():
    # The base is [0, 0], the current model [10, 10]; the edge went to [2, -4]: 10 + 2 / 2, 10 - 4 / 2
    rule = Delta(0.5, Exponential(1.0))
    assert rule.mix(f32(10, 10), f32(2, -4), f32(0, 0), 0, 3).tolist() == [11.0, 8.0]


def test_delta_without_momentum_by_hand_over_three_updates():
    rule = Delta(1.0, Exponential(0.5))
    w = f32(0)
    w = rule.mix(w, f32(8), f32(0), 0, 0)  # a = 1: 0 + 8
    assert w.tolist() == [8.0]
    w = rule.mix(w, f32(4), f32(0), 1, 1)  # a = 1/2: 8 + 4 / 2 = 10
    assert w.tolist() == [10.0]
    w = rule.mix(w, f32(2), f32(10), 2, 2)  # a = 1/4: 10 + (2 - 10) / 4 = 8
    assert w.tolist() == [8.0]
    assert not any(part is not None for part in rule.snapshot().values())  # nothing to remember


def test_delta_with_momentum_by_hand_over_three_updates():
    rule = Delta(1.0, Exponential(0.5), momentum=0.5)
    w = f32(0)
    w = rule.mix(w, f32(8), f32(0), 0, 0)  # u = 0 + 8 = 8; w = 0 + 1 * 8 = 8
    assert w.tolist() == [8.0]
    w = rule.mix(w, f32(4), f32(0), 1, 1)  # u = 4 + 4 = 8; w = 8 + 8 / 2 = 12
    assert w.tolist() == [12.0]
    w = rule.mix(w, f32(6), f32(12), 2, 0)  # u = 4 + (6 - 12) = -2; w = 12 - 2 = 10
    assert w.tolist() == [10.0]
    assert rule.snapshot()["direction"].tolist() == [-2.0]


def test_delta_goes_on_from_a_snapshot():
    rule = Delta(1.0, Exponential(1.0), momentum=0.5)
    w = rule.mix(f32(0), f32(8), f32(0), 0, 0)
    fresh = Delta(1.0, Exponential(1.0), momentum=0.5)
    fresh.restore(rule.snapshot())
    assert fresh.mix(w, f32(1), f32(0), 0, 0).tolist() == rule.mix(w, f32(1), f32(0), 0, 0).tolist() == [13.0]
    fresh.restore(Delta(1.0, Exponential(1.0), momentum=0.5).snapshot())
    assert fresh.mix(w, f32(1), f32(0), 0, 0).tolist() == [9.0]  # back at u = 0: 8 + 1


def test_delta_changes_none_of_its_inputs():
    rule = Delta(1.0, Exponential(1.0), momentum=0.5)
    w, u, base = f32(1), f32(2), f32(3)
    for _ in range(3):
        rule.mix(w, u, base, 0, 0)
    assert (w.tolist(), u.tolist(), base.tolist()) == ([1.0], [2.0], [3.0])


def test_delta_with_alpha_one_and_a_fresh_base_is_the_edge_model():
    w = f32(1.5, -2.25)
    assert Delta(1.0, Exponential(1.0)).mix(w, f32(4.0, 8.5), w, 0, 0).tolist() == [4.0, 8.5]


def test_delta_interpolates_running_statistics_so_that_no_variance_turns_negative():
    # Two edges saw the variance fall from 1 to 0.25 at the same time. Their differences add up to -1.5,
    # which would make it -0.5; interpolated with a = 1/2 it is 0.625, then 0.4375. The weight in front
    # of it moves by half of each difference: 0 + 4/2, 2 + 4/2.
    rule = Delta(0.5, Exponential(1.0), trained=1)
    w = base = f32(0, 1)
    w = rule.mix(w, f32(4, 0.25), base, 0, 0)
    assert w.tolist() == [2.0, 0.625]
    w = rule.mix(w, f32(4, 0.25), base, 1, 1)
    assert w.tolist() == [4.0, 0.4375]
    without = Delta(1.0, Exponential(1.0))  # what it would be if all entries were mixed alike
    assert without.mix(without.mix(base, f32(4, 0.25), base, 0, 0), f32(4, 0.25), base, 1, 1)[1] == -0.5


def test_delta_has_no_momentum_in_running_statistics():
    rule = Delta(1.0, Exponential(1.0), momentum=0.5, trained=1)
    w = rule.mix(f32(0, 4), f32(8, 2), f32(0, 4), 0, 0)
    w = rule.mix(w, f32(8, 1), f32(8, 2), 0, 0)  # u = 4 + 0: 8 + 4; the statistics are the edge's
    assert w.tolist() == [12.0, 1.0]
    assert rule.snapshot()["direction"].tolist() == [4.0]


def test_one_edge_with_alpha_one_gives_what_fedavg_gives():
    # One edge with H = 1 is FedAvg.
    stream = np.random.default_rng(1)
    models = [stream.normal(size=20).astype(np.float32) for _ in range(4)]
    counts = [10, 20, 30, 40]
    fedavg = weighted_mean(models, counts)
    edge = average_clients([update(k, m, n) for k, (m, n) in enumerate(zip(models, counts, strict=True))], 4)
    w = np.zeros(20, dtype=np.float32)
    assert Interpolate(1.0, Exponential(0.99)).mix(w, edge, w, 0, 0).tolist() == fedavg.tolist()


def test_a_buffer_moves_the_model_only_when_it_is_full():
    rule = Buffer(1.0, Polynomial(0.5), size=2)
    w = f32(10.0, 0.0)
    # d = 3 weighs 1/sqrt(4) = 0.5: 0.5 * ((6, 2) - (2, 0)) = (2, 1); the base is what was downloaded, not w
    assert rule.mix(w, f32(6.0, 2.0), f32(2.0, 0.0), 0, 3) is None
    # d = 0 weighs 1: (11, 1) - (10, 0) = (1, 1); w + ((2, 1) + (1, 1)) / 2 = (11.5, 1)
    assert rule.mix(w, f32(11.0, 1.0), w, 1, 0).tolist() == [11.5, 1.0]
    # empty again: the first of the next two is held back
    assert rule.mix(f32(11.5, 1.0), f32(12.5, 1.0), f32(11.5, 1.0), 0, 0) is None
    assert rule.count == 1


def test_the_buffers_alpha_is_the_cloud_learning_rate():
    rule = Buffer(0.5, Constant(), size=1)
    # 8 + 0.5 * (12 - 8) = 10
    assert rule.mix(f32(8.0), f32(12.0), f32(8.0), 0, 9).tolist() == [10.0]


def test_a_buffer_goes_on_from_its_snapshot():
    rule, fresh = Buffer(1.0, Constant(), 3), Buffer(1.0, Constant(), 3)
    for value in (1.0, 2.0):
        rule.mix(f32(0.0), f32(value), f32(0.0), 0, 0)
    fresh.restore(rule.snapshot())
    # (1 + 2 + 6) / 3 = 3
    assert fresh.mix(f32(0.0), f32(6.0), f32(0.0), 0, 0).tolist() == [3.0]


def test_tiers_are_weighted_by_the_counts_of_their_opposites():
    rule = TierWeighting(3)
    w = f32(9.0)
    # tier 0 reports 3: T = (1, 0, 0), reversed (0, 0, 1): all weight on tier 2, which holds the initial 9
    w = rule.mix(w, f32(3.0), w, 0, 0)
    assert w.tolist() == [9.0]
    # tier 0 again, 4: T = (2, 0, 0) -> still tier 2 alone
    assert rule.mix(w, f32(4.0), w, 0, 0).tolist() == [9.0]
    # tier 2 reports 1: T = (2, 0, 1), reversed (1, 0, 2): (1 * 4 + 2 * 1) / 3 = 2
    assert rule.mix(w, f32(1.0), w, 2, 5).tolist() == [2.0]
    # tier 1 reports 8: T = (2, 1, 1), reversed (1, 1, 2): (4 + 8 + 2 * 1) / 4 = 3.5
    assert rule.mix(w, f32(8.0), w, 1, 1).tolist() == [3.5]


def test_one_tier_is_its_last_model():
    rule = TierWeighting(1)
    assert rule.mix(f32(5.0, 1.0), f32(-2.0, 3.0), f32(5.0, 1.0), 0, 4).tolist() == [-2.0, 3.0]


def test_tiers_go_on_from_their_snapshot():
    rule, fresh = TierWeighting(2), TierWeighting(2)
    for edge, value in ((0, 2.0), (1, 4.0)):
        rule.mix(f32(1.0), f32(value), f32(1.0), edge, 0)
    saved = rule.snapshot()
    rule.mix(f32(1.0), f32(100.0), f32(1.0), 0, 0)
    fresh.restore(saved)
    # T = (1, 2), reversed (2, 1): (2 * 2 + 1 * 7) / 3 = 11/3
    assert fresh.mix(f32(1.0), f32(7.0), f32(1.0), 1, 0).tolist() == [pytest.approx(11 / 3)]
