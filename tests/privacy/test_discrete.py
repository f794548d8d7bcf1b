"""Exact samples of the discrete Gaussian: their distribution, and decisions that doubles leave open."""

import math

import numpy as np
import pytest

from hiflash.errors import ConfigError
from hiflash.privacy import discrete
from hiflash.privacy.discrete import LARGEST_VARIANCE, discrete_gaussian, sum_divergence
from hiflash.privacy.randomness import SeededRandomness, SystemRandomness


def stream(name="test"):
    return SeededRandomness(7).stream(name)


@pytest.mark.parametrize("variance", [1, 2, 9])
def test_frequencies_are_those_of_the_definition(variance):
    count = 60_000
    samples = discrete_gaussian(variance, count, stream())
    values = np.arange(-40, 41)
    probability = np.exp(-(values**2) / (2 * variance))
    probability /= probability.sum()
    frequent = probability * count >= 20
    observed = np.array([(samples == value).sum() for value in values[frequent]])
    expected = probability[frequent] * count
    # Chi-squared with at most 20 cells: above 50 has a chance below 1e-3, and the seed is fixed.
    assert ((observed - expected) ** 2 / expected).sum() < 50


@pytest.mark.parametrize("variance", [2**30, 2**40 + 12345, LARGEST_VARIANCE])
def test_large_variances_have_the_moments_of_a_gaussian(variance):
    samples = discrete_gaussian(variance, 40_000, stream()) / math.sqrt(variance)
    # Deviations of the means: 1 / 200 of z, sqrt(2) / 200 of z^2, sqrt(96) / 200 of z^4; five of them each.
    assert abs(samples.mean()) < 0.025
    assert abs((samples**2).mean() - 1) < 0.036
    assert abs((samples**4).mean() - 3) < 0.25


def test_a_seeded_stream_repeats_and_the_system_does_not():
    first, again = (discrete_gaussian(2**40, 50, stream()) for _ in range(2))
    assert (first == again).all()
    assert (first != discrete_gaussian(2**40, 50, stream("other"))).any()
    one, other = (discrete_gaussian(2**40, 50, SystemRandomness().stream("test")) for _ in range(2))
    assert (one != other).any()
    assert SeededRandomness.repeats
    assert not SystemRandomness.repeats


def test_a_variance_out_of_range_is_refused():
    for variance in (0, LARGEST_VARIANCE + 1):
        with pytest.raises(ConfigError, match="variance"):
            discrete_gaussian(variance, 1, stream())


class Bits:
    """A stream of prepared words."""

    def __init__(self, *words):
        self.left = list(words)

    def words(self, count):
        taken, self.left = self.left[:count], self.left[count:]
        return np.array(taken, np.uint64)


def test_a_comparison_too_close_for_doubles_is_settled_by_further_bits():
    third = (1, 3)  # 0.010101... in binary: 53 digits of it are 0b0101...01
    digits = int("01" * 27, 2) >> 1  # 53 binary digits of 1/3
    assert digits == (1 << 53) // 3
    top = 1 << 63
    assert discrete._exactly_below(digits - 1, *third, Bits())  # surely below: no further bit is drawn
    assert not discrete._exactly_below(digits + 1, *third, Bits())
    # (2^53) / 3 = digits + 2/3: the next binary digits of 1/3 are 1, 0, 1, 0, ...
    assert discrete._exactly_below(digits, *third, Bits(0))
    assert not discrete._exactly_below(digits, *third, Bits(top, top))
    assert discrete._exactly_below(digits, *third, Bits(top, 0, 0))


def test_the_law_holds_if_every_decision_is_taken_exactly(monkeypatch):
    """With a margin of 1 no comparison trusts doubles: all go through integers of any size."""
    monkeypatch.setattr(discrete, "MARGIN", 1.0)
    samples = discrete_gaussian(4, 3_000, stream())
    share = 1 / sum(math.exp(-(y**2) / 8) for y in range(-40, 41))  # of zero: 0.1995
    assert abs((samples == 0).mean() - share) < 4 * math.sqrt(share * (1 - share) / 3_000)
    assert abs(samples.var() - 4) < 4 * 4 * math.sqrt(2 / 3_000)


def test_the_divergence_of_a_sum_is_that_of_the_paper():
    # 10 (exp(-2 pi^2 0.5 / 1 * 1 / 2) + ...) for variance 1 and three terms: k / (k + 1) is 1/2 and 2/3
    assert sum_divergence(1, 3) == pytest.approx(
        10 * (math.exp(-(math.pi**2)) + math.exp(-4 * math.pi**2 / 3))
    )
    assert sum_divergence(5, 1) == 0  # one sample is a discrete Gaussian
    assert sum_divergence(2**30, 100) == 0.0  # below the smallest double
