"""How much a stale model counts, worked by hand."""

import pytest

from hiflash.core.weighting import Constant, Exponential, Hinge, Polynomial


@pytest.mark.parametrize(
    ("staleness", "alpha", "penalty", "expected"),
    [
        (0, 0.7, 0.99, 0.7),  # a fresh model has staleness 0 and weighs alpha
        (2, 0.7, 0.5, 0.175),  # 0.7 * 0.5^2 = 0.7 * 0.25
        (3, 0.5, 0.5, 0.0625),  # 2^-1 * 2^-3 = 2^-4
        (16, 1.0, 1.0, 1.0),  # no penalty: age does not matter
        (1, 1.0, 0.99, 0.99),
    ],
)
def test_exponential_is_the_penalty_to_the_staleness(staleness, alpha, penalty, expected):
    assert alpha * Exponential(penalty)(staleness) == expected


def test_paper_defaults_fall_by_one_percent_per_version():
    # 0.7 * 0.99^10 = 0.7 * 0.904382075... = 0.633067...
    assert 0.7 * Exponential(0.99)(10) == pytest.approx(0.6330674526, abs=1e-9)


def test_polynomial_is_the_inverse_root_of_staleness_plus_one():
    # exponent 1/2: 1, 1/sqrt(2), 1/sqrt(4), 1/sqrt(9)
    assert [Polynomial(0.5)(d) for d in (0, 3, 8)] == [1.0, 0.5, pytest.approx(1 / 3)]
    assert Polynomial(0.5)(1) == pytest.approx(0.70710678)
    assert Polynomial(2)(1) == 0.25
    assert Polynomial(0)(7) == 1.0


def test_hinge_is_one_up_to_its_start_and_then_falls():
    hinge = Hinge(slope=10, start=4)
    # 1 / (10 * (5 - 4) + 1) = 1/11; 1 / (10 * 2 + 1) = 1/21
    assert [hinge(d) for d in (0, 4, 5, 6)] == [1.0, 1.0, 1 / 11, 1 / 21]


def test_exponential_without_penalty_is_constant():
    assert [Exponential(1.0)(d) for d in range(50)] == [Constant()(d) for d in range(50)]
