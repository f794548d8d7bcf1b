"""Rules that withstand bad models: numbers worked by hand, and what the rules promise."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hiflash.core import aggregation
from hiflash.core.aggregation import (
    MEAN,
    Krum,
    Median,
    NormClip,
    Rule,
    TrimmedMean,
    clip_towards,
    combine_clients,
    krum,
    trimmed_mean,
)
from hiflash.messages import ClientUpdate

ZERO = np.zeros(2, np.float32)


def models(*rows: tuple[float, ...]) -> list[np.ndarray]:
    return [np.array(row, np.float32) for row in rows]


def combine(rule: Rule, rows: list[np.ndarray], counts: list[int] | None = None) -> list[float]:
    combined = rule.combine(rows, counts or [1] * len(rows), np.zeros_like(rows[0]))
    assert combined.dtype == np.float32
    return combined.tolist()


def test_the_median_of_every_coordinate_whatever_the_samples():
    odd = models((1, 9), (100, 2), (3, -70), (2, 4), (5, 5))
    assert combine(Median(), odd, [1, 900, 1, 1, 1]) == [3.0, 4.0]  # 1 2 3 5 100; -70 2 4 5 9
    # Of four the two in the middle: 1 2 | 3 100 is 2.5, -70 2 | 4 9 is 3.
    assert combine(Median(), odd[:4]) == [2.5, 3.0]
    assert combine(Median(), odd[:1]) == [1.0, 9.0]


def test_the_trimmed_mean_leaves_out_a_share_at_either_end():
    rows = models((-100,), (1,), (2,), (6,), (9,))
    assert combine(TrimmedMean(0.2), rows) == [3.0]  # one of five: (1 + 2 + 6) / 3
    assert combine(TrimmedMean(0.39), rows) == [3.0]  # floor(1.95) is one
    assert combine(TrimmedMean(0.4), rows) == [2.0]  # two of five: the median
    assert combine(TrimmedMean(0.19), rows) == pytest.approx([-16.4])  # none: -82 / 5
    hundred = models(*[(float(k),) for k in range(100)])
    hundred[28] = np.float32([1e9])  # 29 a side, though 0.29 * 100 is a bit less
    # Without 28 and with 1e9: trimmed are 0..27, 29 and 71..99 less one, 1e9; left are 30..71.
    assert combine(TrimmedMean(0.29), hundred) == [50.5]


def test_krum_takes_the_model_in_the_thickest_crowd():
    # n = 5, f = 1: two nearest others. Squared distances on a line at 0 1 3 4 50:
    # 0: 1 + 9, 1: 1 + 4, 3: 1 + 4, 4: 1 + 9, 50: 46^2 + 47^2. The tie of 1 and 3 goes to the lower id.
    rows = models((0,), (1,), (3,), (4,), (50,))
    assert combine(Krum(byzantine=1), rows, [1, 1, 900, 1, 1]) == [1.0]
    assert krum(rows[::-1], 1, 1).tolist() == [3.0]
    # The two best: 1 and 3.
    assert combine(Krum(byzantine=1, keep=2), rows, [1, 1, 900, 1, 1]) == [2.0]


def test_krum_in_the_plane_by_hand():
    # Five of seven at the corners of a square and its centre, two colluding at (9, 9); f = 2: 3 nearest.
    # Centre: 3 x 0.5 = 1.5. A corner: 0.5 (centre) + 1 + 1 = 2.5. A colluder: 0 + two at >= 2 x 8^2.
    rows = models((9, 9), (0, 0), (0, 1), (0.5, 0.5), (1, 0), (1, 1), (9, 9))
    assert combine(Krum(byzantine=2), rows) == [0.5, 0.5]


def test_what_moved_too_far_is_drawn_back_before_the_weighted_mean():
    base = np.float32([1, 1])
    # (4, 5) moved by (3, 4), 5 far: with a norm of 2.5 it comes to 1 + (1.5, 2).
    assert clip_towards(base, np.float32([4, 5]), 2.5).tolist() == [2.5, 3.0]
    near = np.float32([1.5, 1])
    assert clip_towards(base, near, 2.5) is near
    rule = NormClip(2.5)
    # (3 x (2.5, 3) + 1 x (1.5, 1)) / 4
    assert rule.combine([np.float32([4, 5]), near], [3, 1], base).tolist() == [2.25, 2.5]


def test_the_rule_of_everybody_is_the_mean_by_samples():
    assert combine(MEAN, models((4, 0), (0, 8)), [1, 3]) == [1.0, 6.0]


@pytest.mark.parametrize(
    ("rule", "least"),
    [
        (MEAN, 1),
        (Median(), 1),
        (TrimmedMean(0.49), 1),
        (NormClip(1.0), 1),
        (Krum(), 3),
        (Krum(byzantine=2), 7),  # 2 f + 3
        (Krum(byzantine=2, keep=3), 7),
        (Krum(byzantine=2, keep=5), 9),  # f + 2 + keep
    ],
)
def test_how_many_models_a_rule_needs(rule: Rule, least: int):
    assert rule.least == least
    updates = [ClientUpdate(k, 1, 0, np.float32([k]), 1, 0.0, 0.0, 0.0) for k in range(least)]
    made = combine_clients(updates, 1, np.float32([0]), rule)
    assert made is not None
    assert made[1] == tuple(range(least))
    assert combine_clients(updates[1:], 1, np.float32([0]), rule) is None


def test_a_model_that_is_not_finite_counts_as_none_for_every_rule():
    values = [5.0, math.nan, 1.0, math.inf, 3.0]
    updates = [ClientUpdate(k, 1, 0, np.float32([v]), 1, 0.0, 0.0, 0.0) for k, v in enumerate(values)]
    weights, clients = combine_clients(updates, 3, np.float32([0]), Median())
    assert weights.tolist() == [3.0]
    assert clients == (0, 2, 4)
    assert combine_clients(updates, 4, np.float32([0]), Median()) is None


def test_coordinates_are_taken_in_pieces_without_a_seam(monkeypatch: pytest.MonkeyPatch):
    rows = list(np.random.default_rng(0).normal(size=(5, 37)).astype(np.float32))
    whole = trimmed_mean(rows, 1)
    monkeypatch.setattr(aggregation, "COLUMNS", 10)
    np.testing.assert_array_equal(trimmed_mean(rows, 1), whole)
    np.testing.assert_allclose(trimmed_mean(rows, 2), np.median(rows, axis=0), rtol=1e-6)


def test_huge_models_stay_finite():
    top = float(np.finfo(np.float32).max)
    rows = models((top,), (top,), (-top,), (-top,), (top,))
    for rule in (Median(), TrimmedMean(0.2), Krum(byzantine=1)):
        assert np.isfinite(combine(rule, rows)).all()
    assert np.isfinite(clip_towards(rows[2], rows[0], 1e30)).all()


honest_models = st.lists(
    st.lists(st.floats(-1, 1, width=32), min_size=3, max_size=3), min_size=5, max_size=11
).map(lambda rows: [np.array(row, np.float32) for row in rows])


@st.composite
def poisoned(draw: st.DrawFn) -> tuple[list[np.ndarray], list[np.ndarray], int]:
    """Return honest models, all models with f bad ones among them, and f: n >= 2 f + 3."""
    honest = draw(honest_models)
    bad = draw(st.integers(1, len(honest) - 3))
    kind = draw(st.sampled_from(["sign flip x100", "collusion", "any"]))
    attackers = []
    for k in range(bad):
        if kind == "sign flip x100":
            attackers.append(-100 * np.where(np.abs(honest[k % len(honest)]) < 0.1, 1, honest[0]))
        elif kind == "collusion":
            attackers.append(np.full(3, 50.0))
        else:
            attackers.append(np.array(draw(st.lists(st.floats(-1e6, 1e6, width=32), min_size=3, max_size=3))))
    everybody = [*honest, *(np.asarray(model, np.float32) for model in attackers)]
    return honest, [everybody[k] for k in draw(st.permutations(range(len(everybody))))], bad


@settings(deadline=None)
@given(poisoned())
def test_median_and_trimmed_mean_stay_in_the_range_of_the_honest(case):
    honest, everybody, bad = case
    low, high = np.min(honest, axis=0), np.max(honest, axis=0)
    share = (bad + 0.5) / len(everybody)  # leaves out at least f a side
    for rule in (Median(), TrimmedMean(share)):
        combined = rule.combine(everybody, [1] * len(everybody), np.zeros(3, np.float32))
        assert (low - 1e-6 <= combined).all()
        assert (combined <= high + 1e-6).all()


@settings(deadline=None)
@given(honest=honest_models, collude=st.booleans(), data=st.data())
def test_krum_takes_an_honest_model_however_those_far_away_collude(honest, collude, data):
    bad = data.draw(st.integers(1, len(honest) - 3))
    far = [np.float32([100, 100 if collude else 100 + 40 * k, -100]) for k in range(bad)]
    everybody = data.draw(st.permutations([*honest, *far]))
    chosen = Krum(byzantine=bad).combine(everybody, [1] * len(everybody), ZERO)
    assert any(np.array_equal(chosen, model) for model in honest)


@settings(deadline=None)
@given(poisoned(), st.floats(0.01, 100))
def test_norm_clipping_bounds_what_anybody_can_do(case, clip):
    _, everybody, _ = case
    base = np.float32([0.5, -0.5, 0.0])
    combined = NormClip(clip).combine(everybody, [7] * len(everybody), base)
    assert np.linalg.norm(combined.astype(float) - base) <= clip * (1 + 1e-5) + 1e-6
