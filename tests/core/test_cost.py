"""Seconds of computing and sending, the WAN, and how resources fluctuate."""

import copy
import math

import numpy as np
import pytest

from hiflash.core.cost import Fluctuation, WanLink, compute_seconds, send_seconds
from hiflash.seeding import rng


def test_compute_seconds_by_hand():
    # 3 steps x (60 x 784 x 8 = 376,320 bits) x 20 cycles/bit = 22,579,200 cycles; at 1.5 GHz 15.0528 ms
    seconds = compute_seconds(np.array([3.0]), np.array([376_320.0]), np.array([20.0]), np.array([1.5e9]))
    assert seconds[0] * 1e3 == pytest.approx(15.0528, rel=1e-12)


def test_compute_seconds_are_those_of_each_client():
    seconds = compute_seconds(
        np.array([1.0, 2.0, 1.0]),
        np.array([8.0, 8.0, 16.0]),
        np.array([2.0, 2.0, 4.0]),
        np.array([4.0, 4.0, 32.0]),
    )
    assert seconds.tolist() == [4.0, 8.0, 2.0]  # 8*2/4, 2*8*2/4, 16*4/32


def test_send_seconds_by_hand():
    # 21,840 x 32 = 698,880 bits. 17 dB is 10^1.7 = 50.1187; log2(51.1187) = ln 51.1187 / ln 2
    # = 3.934149 / 0.693147 = 5.675782; 698,880 / 5,675,782 bit/s = 0.123134 s
    (seconds,) = send_seconds(21_840, np.array([1e6]), 17.0)
    assert seconds == pytest.approx(0.123134, abs=2e-6)


def test_send_seconds_fall_with_bandwidth():
    slow, fast = send_seconds(21_840, np.array([1e6, 10e6]), 17.0)
    assert slow == pytest.approx(10 * fast)


def test_at_zero_decibel_a_hertz_carries_one_bit_per_second():
    # SNR = 1, log2(1 + 1) = 1: 100 x 32 bits over 1,600 Hz take 2 s
    assert send_seconds(100, np.array([1600.0]), 0.0).tolist() == [2.0]


def test_wan_link_takes_half_a_round_trip_and_the_transfer():
    # 100 ms round trip; 87,360 bytes at 10 Mbit/s = 1.25 MB/s take 69.888 ms: 50 + 69.888
    link = WanLink(rtt_s=0.1, bytes_per_s=1.25e6, jitter=0.25)
    assert link.mean_s(87_360) == pytest.approx(0.119888, rel=1e-12)


def test_without_jitter_every_transfer_takes_the_mean():
    link = WanLink(0.125, 1024.0, jitter=0.0)
    assert link.draw_s(512, rng(0, "x")) == 0.5625  # 0.0625 + 0.5


@pytest.mark.parametrize("jitter", [0.1, 0.25, 0.5])
def test_jitter_has_mean_one(jitter):
    link, stream = WanLink(0.0, 1.0, jitter), rng(1, "jitter")
    draws = np.array([link.draw_s(1, stream) for _ in range(20_000)])
    deviation = math.sqrt(math.exp(jitter**2) - 1)  # of a log-normal with mean 1
    assert abs(draws.mean() - 1) < 5 * deviation / math.sqrt(20_000)
    assert draws.std() == pytest.approx(deviation, rel=0.1)
    assert np.log(draws).std() == pytest.approx(jitter, rel=0.05)
    assert (draws > 0).all()


# Fluctuation (decision 13).


def make(size: int = 4, seed: int = 0) -> Fluctuation:
    return Fluctuation(size, rho=0.95, spread=0.3, seed=seed)


def test_resources_fluctuate_with_the_stated_spread_from_the_first_second_on():
    many = Fluctuation(20_000, rho=0.95, spread=0.3, seed=1)
    for second in (0, 1, 10, 100):
        x = np.log(many.factors(second))
        # the deviation of a mean of 20,000 is 0.3 / 141 = 0.0021, of a standard deviation 0.0015
        assert abs(x.mean()) < 0.011
        assert x.std() == pytest.approx(0.3, abs=0.008)


def test_a_second_resembles_the_one_before_by_rho():
    many = Fluctuation(20_000, rho=0.95, spread=0.3, seed=2)
    a, b, c = (np.log(many.factors(second)) for second in (3, 4, 23))
    assert np.corrcoef(a, b)[0, 1] == pytest.approx(0.95, abs=0.005)
    assert np.corrcoef(a, c)[0, 1] == pytest.approx(0.95**20, abs=0.05)  # 0.358


def test_a_step_by_hand():
    process = make()
    x0 = np.log(process.factors(0.0))
    noise = rng(0, "fluctuation", 1).standard_normal(4)
    # sqrt(1 - 0.95^2) = sqrt(0.0975) = 0.3122499
    expected = 0.95 * x0 + 0.3122498999 * 0.3 * noise
    assert np.log(process.factors(1.0)) == pytest.approx(expected, rel=1e-9)


def test_the_factor_holds_for_the_whole_second():
    process = make()
    assert process.factors(3.0).tolist() == process.factors(3.999).tolist()
    assert process.factors(3.0).tolist() != process.factors(4.0).tolist()


def test_what_is_drawn_does_not_depend_on_who_asks_when():
    one, other = make(), make()
    for second in range(30):
        one.factors(second)
        one.forget(second)
    assert one.factors(30).tolist() == other.factors(30).tolist()
    assert other.factors(7).tolist() == make().factors(7.5).tolist()  # going back is fine before forgetting


def test_forgetting_keeps_the_present_and_bounds_the_memory():
    process = make()
    expected = {second: make().factors(second).tolist() for second in (50, 51, 60)}
    for second in range(51):
        process.factors(second + 5.0)
        process.forget(second + 0.5)
        assert len(process.states) <= 6
    assert {second: process.factors(second).tolist() for second in (50, 51, 60)} == expected


def test_forgetting_ahead_of_what_is_known_loses_nothing():
    process = make()
    process.factors(3)
    process.forget(1000.0)
    assert process.factors(1000).tolist() == make().factors(1000).tolist()
    process.forget(-5.0)
    assert process.factors(1001).tolist() == make().factors(1001).tolist()


def test_a_restored_process_goes_on_alike():
    process = make()
    process.factors(12)
    process.forget(9)
    fresh = make()
    fresh.restore(copy.deepcopy(process.snapshot()))
    assert fresh.factors(10).tolist() == process.factors(10).tolist()
    assert fresh.factors(40).tolist() == process.factors(40).tolist()


def test_seeds_give_different_fluctuations():
    assert make(seed=1).factors(0).tolist() != make(seed=2).factors(0).tolist()
