"""Noise has the size that its epsilon asks for, alone and in shares."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

from hiflash.errors import ConfigError
from hiflash.privacy.noise import _gamma, draw, gaussian_sigma, laplace_scale
from hiflash.privacy.randomness import SeededRandomness, Stream, SystemRandomness

DRAWS = 40_000


def seeded() -> Stream:
    return SeededRandomness(1).stream("noise")


def of_the_system() -> Stream:
    return SystemRandomness().stream("noise")


def test_laplace_scale_is_the_sensitivity_over_epsilon() -> None:
    assert laplace_scale(0.5, 1.0) == 2.0
    assert laplace_scale(4.0, 2.0) == 0.5


@pytest.mark.parametrize(("epsilon", "delta", "sensitivity"), [(1.0, 1e-5, 1.0), (0.1, 1e-6, math.sqrt(2))])
def test_gaussian_sigma_is_the_smallest_that_keeps_delta(epsilon, delta, sensitivity) -> None:
    """Against the exact curve of Balle and Wang 2018 (Theorem 8), written out here."""
    pytest.importorskip("dp_accounting", reason='needs pip install "hiflash[dp]"')

    def normal(value: float) -> float:
        return (1 + math.erf(value / math.sqrt(2))) / 2

    def delta_of(sigma: float) -> float:
        half, shift = sensitivity / (2 * sigma), epsilon * sigma / sensitivity
        return normal(half - shift) - math.exp(epsilon) * normal(-half - shift)

    sigma = gaussian_sigma(epsilon, delta, sensitivity)
    assert delta_of(sigma) <= delta
    assert delta_of(0.999 * sigma) > delta


def test_gaussian_noise_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting.pld.privacy_loss_mechanism", None)
    with pytest.raises(ConfigError, match=r'hiflash\[dp\].*"laplace"'):
        gaussian_sigma(1.0, 1e-5, 1.0)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("shares", [1, 3, 7])
def test_shares_add_up_to_noise_of_the_full_scale(noise, shares) -> None:
    source = seeded()
    total = sum(draw(noise, 2.0, DRAWS, source, shares) for _ in range(shares))
    variance = 8.0 if noise == "laplace" else 4.0  # 2 b^2, sigma^2
    assert total.mean() == pytest.approx(0.0, abs=0.06)
    assert total.var() == pytest.approx(variance, rel=0.06)
    beyond = math.exp(-2.0) if noise == "laplace" else math.erfc(2 / math.sqrt(2))  # P(|X| > 2 scales)
    assert (abs(total) > 4.0).mean() == pytest.approx(beyond, rel=0.1)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_the_operating_system_draws_the_same_distributions(noise) -> None:
    found = draw(noise, 1.0, 20_000, of_the_system())
    # Four standard errors of the mean absolute value: E|X| = b = 1 with deviation 1, or sqrt(2 / pi).
    expected = 1.0 if noise == "laplace" else math.sqrt(2 / math.pi)
    assert abs(found).mean() == pytest.approx(expected, abs=6 / math.sqrt(20_000))
    again = draw(noise, 1.0, 5, of_the_system())
    assert not np.array_equal(found[:5], again)


def test_a_seeded_source_repeats() -> None:
    assert np.array_equal(draw("laplace", 1.0, 9, seeded(), 3), draw("laplace", 1.0, 9, seeded(), 3))


@pytest.mark.parametrize("shape", [1.0, 0.5, 1 / 3, 0.02])
def test_gamma_draws_have_the_moments_of_their_shape(shape: float) -> None:
    """Mean and variance are the shape; P(X <= x) of shape 1/2 is that of a squared normal over 2."""
    found = _gamma(shape, DRAWS, seeded())
    assert (found >= 0).all()
    assert found.mean() == pytest.approx(shape, rel=5 / math.sqrt(shape * DRAWS))
    assert found.var() == pytest.approx(shape, rel=5 * math.sqrt((2 + 6 / shape) / DRAWS))
    if shape == 0.5:
        for x in (0.1, 0.5, 2.0):
            expected = math.erf(math.sqrt(x))  # |N| <= sqrt(2 x)
            assert (found <= x).mean() == pytest.approx(expected, abs=5 * math.sqrt(0.25 / DRAWS))


class Extreme:
    """A stream of all zeros, or of all ones."""

    def __init__(self, word: int) -> None:
        self.word = word

    def words(self, count: int) -> np.ndarray:
        return np.full(count, self.word, np.uint64)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("word", [0, 2**64 - 1])
def test_no_bits_give_infinite_noise(noise, word) -> None:
    assert np.isfinite(draw(noise, 1.0, 4, Extreme(word))).all()
