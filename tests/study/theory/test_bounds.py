"""Lemma 2, both theorems and the tighter bound, against numbers worked by hand and counterexamples."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hiflash.errors import ConfigError
from hiflash.study.theory.bounds import (
    Constants,
    Schedule,
    WeakConstants,
    convex_drift_bound,
    delayed_bound,
    drift_bound,
    drift_bounds,
    strongly_convex_bound,
    weakly_convex_bound,
)

# eta beta = 0.5, eta mu = 0.25, c = 2, H from 1 to 2
CONSTANTS = Constants(beta=2.0, mu=1.0, rho=3.0, delta_max=4.0, Delta=0.8, V=9.0)
SCHEDULE = Schedule(eta=0.25, c=2, H_min=1, H_max=2)


@pytest.mark.parametrize(
    ("x", "g"),
    [
        (0, 0.0),
        (1, 0.0),  # 4/2 (1.5 - 1) - 0.25 * 4 = 1 - 1
        (2, 0.5),  # 2 (2.25 - 1) - 2
        (3, 1.75),  # 2 (3.375 - 1) - 3
    ],
)
def test_g_of_lemma_2(x: int, g: float) -> None:
    assert drift_bound(x, eta=0.25, beta=2.0, delta=4.0) == pytest.approx(g, abs=1e-15)


def test_all_g_at_once_are_those_one_by_one() -> None:
    assert drift_bounds(3, eta=0.25, beta=2.0, delta=4.0) == pytest.approx([0.0, 0.0, 0.5, 1.75], abs=1e-15)
    many = drift_bounds(100_000, eta=1e-4, beta=2.0, delta=4.0)  # each by its own sum would take minutes
    assert many[-1] == pytest.approx(drift_bound(100_000, eta=1e-4, beta=2.0, delta=4.0))
    assert len(many) == 100_001


def test_a_g_beyond_the_range_of_numbers_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"1\.5\^2000, which is beyond 1e290; use fewer local steps"):
        drift_bound(2000, eta=0.25, beta=2.0, delta=4.0)


def test_g_does_not_lose_its_digits_where_the_printed_formula_does() -> None:
    """Small eta beta: g(2) = eta delta eta beta, and the printed formula subtracts nearly equal numbers."""
    assert drift_bound(2, eta=1e-9, beta=1.0, delta=1.0) == pytest.approx(1e-18, rel=1e-6)
    printed = ((1e-9 + 1) ** 2 - 1) - 2e-9
    assert abs(printed - 1e-18) > 1e-17


def test_the_bound_for_convex_losses_is_never_above_g() -> None:
    assert convex_drift_bound(3, eta=0.25, beta=2.0, delta=4.0) == 1.5  # 0.0625 * 2 * 4 * 3
    for x in range(60):
        assert convex_drift_bound(x, 0.25, 2.0, 4.0) <= drift_bound(x, 0.25, 2.0, 4.0) + 1e-15
    assert drift_bound(60, 0.25, 2.0, 4.0) > 1e10 > 1e4 > convex_drift_bound(60, 0.25, 2.0, 4.0)


def test_theorem_1_by_hand() -> None:
    bound = strongly_convex_bound(CONSTANTS, SCHEDULE, alpha_tau=0.5, gap=10.0)
    assert pytest.approx(0.4375) == bound.B  # 1 - 0.75^2
    assert bound.A1 == 0.5  # 1 / (2 mu)
    assert pytest.approx(0.75) == bound.A2  # 3 * 2 * ((1.5^2 - 1) / 2 - 0.25 * 2) = 6 * 0.125
    assert bound.A3 == 0.5  # 2 * 2 * 0.25 / 2
    assert pytest.approx(0.78125) == bound.C1  # 1 - 0.5 + 0.5 * 0.5625
    c3 = (0.5 * 9 + 0.75 * 4 + 0.5 * 0.8) / 0.4375
    assert c3 == pytest.approx(7.9 / 0.4375)
    assert pytest.approx(c3) == bound.C3
    assert bound.kappa(2) == pytest.approx(0.78125**2)
    assert bound.after(2) == pytest.approx(0.6103515625 * 10 + 0.3896484375 * c3)
    assert not bound.informative


def test_theorem_2_by_hand() -> None:
    weak = WeakConstants(
        beta=2.0, mu=1.0, rho=3.0, mu_tilde=3.0, beta_tilde=4.0, rho_tilde=5.0, delta_tilde=2.0,
        Delta_tilde=0.5, V_tilde=8.0,
    )  # fmt: skip
    bound = weakly_convex_bound(weak, SCHEDULE, alpha_tau=0.5, gap=10.0)
    assert pytest.approx(0.4375) == bound.B  # 1 - (1 - 0.25 * 2 / 2)^2
    assert pytest.approx(27 + 1.75) == bound.A1  # 12 * 9 * 2 / 8, (15 - 1) / (2 * 4)
    assert pytest.approx(2.5) == bound.A2  # 5 * 2 / 4 * (2^2 - 1 - 4 * 0.25 * 2)
    assert bound.A3 == 2.0  # 2 * 2 / 2
    assert pytest.approx((28.75 * 8 + 2.5 * 2 + 2 * 0.5) / 0.4375) == bound.C3
    assert pytest.approx(0.78125) == bound.C1


def test_the_bound_without_v_by_hand() -> None:
    bound = delayed_bound(CONSTANTS, SCHEDULE, alpha_tau=0.5, tau=1, gap=10.0)
    assert bound.edge_part == pytest.approx(0.4)  # 0.8 / 2
    assert bound.client_part == pytest.approx(3 * 0.5 / 0.4375)  # rho * 0.0625 * 2 * 4 * 1 / (1 - 0.75^2)
    assert pytest.approx(0.78125**0.5) == bound.C1
    assert bound.after(4) == pytest.approx(bound.C3 + 0.78125**2 * (10 - bound.C3))
    assert bound.informative
    below = delayed_bound(CONSTANTS, SCHEDULE, alpha_tau=0.5, tau=1, gap=1.0)
    assert below.after(4) == below.C3  # the initial gap is below the limit already


def scaled(constants: Constants, s: float) -> Constants:
    """Return the constants after a change of the unit of the weights: F(w) becomes F(s w)."""
    return Constants(
        constants.beta * s**2, constants.mu * s**2, constants.rho * s, constants.delta_max * s,
        constants.Delta * s**2, constants.V * s**2,
    )  # fmt: skip


def test_theorem_1_does_not_depend_on_the_unit_of_the_weights_and_theorem_2_does() -> None:
    other = replace(SCHEDULE, eta=SCHEDULE.eta / 4)  # s = 2, and eta beta stays
    for bound in (strongly_convex_bound, lambda *args: delayed_bound(*args[:3], 1, args[3])):
        assert (
            pytest.approx(bound(CONSTANTS, SCHEDULE, 0.5, 10.0).C3)
            == bound(scaled(CONSTANTS, 2), other, 0.5, 10.0).C3
        )
    weak = WeakConstants(2.0, 1.0, 3.0, 3.0, 4.0, 5.0, 2.0, 0.5, 8.0)
    wider = WeakConstants(8.0, 4.0, 6.0, 12.0, 16.0, 10.0, 4.0, 2.0, 32.0)
    here = weakly_convex_bound(weak, SCHEDULE, 0.5, 10.0)
    there = weakly_convex_bound(wider, other, 0.5, 10.0)
    assert pytest.approx(here.B) == there.B
    assert there.C3 < here.C3 / 2  # the term 12 rho^2 H V / (mu~ - mu)^3 alone is a quarter of what it was


def test_a_larger_tau_lowers_theorem_1_and_raises_the_bound_without_v() -> None:
    """Remark 3 needs C2 > C3, which cannot be; here 0.7 and 0.7 * 0.99^8 are the weights."""
    low, high = 0.7, 0.7 * 0.99**8
    assert strongly_convex_bound(CONSTANTS, SCHEDULE, high, 1.0).after(5) < strongly_convex_bound(
        CONSTANTS, SCHEDULE, low, 1.0
    ).after(5)
    assert delayed_bound(CONSTANTS, SCHEDULE, high, 8, 10.0).after(5) > delayed_bound(
        CONSTANTS, SCHEDULE, low, 0, 10.0
    ).after(5)


def stale_run(q: float, tau: int, updates: int) -> list[float]:
    """Return F(w) = w^2 / 2 after every update; every update is one step from the model tau versions ago."""
    models = [1.0]
    for version in range(updates):
        models.append(q * models[max(version - tau, 0)])  # alpha = 1
    return [model**2 / 2 for model in models]


def test_theorem_1_without_v_would_be_false_because_its_rate_ignores_staleness() -> None:
    """One client, mu = 1, eta = 0.5, tau = 2: w(3) = 0.5, so F = 1/8; kappa F(0) is only 1/16."""
    gaps = stale_run(0.5, tau=2, updates=12)
    constants = Constants(beta=1.0, mu=1.0, rho=1.0, delta_max=0.0, Delta=0.0, V=0.0)
    schedule = Schedule(eta=0.5, c=1, H_min=1, H_max=1)
    without = strongly_convex_bound(constants, schedule, 1.0, gaps[0])
    assert without.C3 == 0
    assert gaps[3] == 0.125 > without.after(3) == 0.0625
    delayed = delayed_bound(constants, schedule, 1.0, 2, gaps[0])
    assert delayed.after(3) == pytest.approx(0.25)  # 0.5^(3/3) / 2
    assert all(gap <= delayed.after(version) for version, gap in enumerate(gaps))


def huber(w: float) -> float:
    return w * w / 2 if abs(w) <= 1 else abs(w) - 0.5


def test_theorem_2_as_printed_is_false_for_a_slope_that_is_long_enough() -> None:
    """One client, F = Huber (convex, so mu = 0; beta = rho = 1), w(0) = 1000, one step of 0.5 per update.

    With w~ the received model, |grad G| <= 1 + mu~ * 0.5 = 1.5 for mu~ = 1.
    """
    w = 1000.0
    for _ in range(100):
        w -= 0.5 * max(-1.0, min(1.0, w))
    assert huber(w) == 949.5  # 1000 - 100 * 0.5 - 0.5
    weak = WeakConstants(1.0, 0.0, 1.0, 1.0, 2.0, 1.5, 0.0, 0.0, 2.25)
    bound = weakly_convex_bound(weak, Schedule(0.5, 1, 1, 1), 1.0, huber(1000.0))
    assert pytest.approx((12 + 2.5) * 2.25 / 0.25) == bound.C3  # 130.5
    assert bound.after(100) < 131 < huber(w)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"eta": 0.5}, "Theorem 1 needs eta < 1 / beta = 0.5, got 0.5"),
        ({"eta": 0.0}, "eta must be above 0"),
        ({"c": 0}, "c must be at least 1"),
        ({"H_min": 3}, "1 <= H_min <= H_max"),
    ],
)
def test_schedules_outside_the_theorem_are_refused(change: dict[str, float], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        strongly_convex_bound(CONSTANTS, replace(SCHEDULE, **change), 0.5, 1.0)  # type: ignore[arg-type]


def test_constants_outside_the_theorems_are_refused() -> None:
    with pytest.raises(ConfigError, match="needs 0 < mu <= beta"):
        strongly_convex_bound(replace(CONSTANTS, mu=0.0), SCHEDULE, 0.5, 1.0)
    with pytest.raises(ConfigError, match="alpha_tau must be in"):
        strongly_convex_bound(CONSTANTS, SCHEDULE, 1.5, 1.0)
    with pytest.raises(ConfigError, match="tau must be at least 0"):
        delayed_bound(CONSTANTS, SCHEDULE, 0.5, -1, 1.0)
    weak = WeakConstants(2.0, 1.0, 3.0, 1.0, 4.0, 5.0, 2.0, 0.5, 8.0)
    with pytest.raises(ConfigError, match="needs mu_tilde > mu"):
        weakly_convex_bound(weak, SCHEDULE, 0.5, 1.0)
    with pytest.raises(ConfigError, match=r"needs eta < min\(1 / beta, 2 / \(mu_tilde - mu\)\) = 0.2,"):
        weakly_convex_bound(replace(weak, mu_tilde=11.0), SCHEDULE, 0.5, 1.0)
