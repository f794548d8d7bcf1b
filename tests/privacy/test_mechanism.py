"""The private sum: clipping, weights of 1, a fixed divisor, and the scale of its noise."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hiflash.privacy.mechanism import Grid, PrivateSum, encode
from hiflash.privacy.randomness import SeededRandomness

SEEDED = SeededRandomness(3)


def f32(*values):
    return np.array(values, np.float32)


def test_a_sum_of_clipped_changes_by_hand():
    base = f32(1, 1)
    models = {
        4: f32(1.5, 1),
        2: f32(4, 5),
    }  # changes (0.5, 0), and (3, 4) of norm 5, which becomes (0.6, 0.8)
    plain = PrivateSum(clip=1.0, noise=0.0, randomness=SEEDED)
    # (0.5 + 0.6, 0 + 0.8) / 4 = (0.275, 0.2), on a grid of 2^-20
    assert plain.combine(models, base, 4.0, 0, 0) == pytest.approx(f32(1.275, 1.2), abs=2e-6)


def test_the_divisor_does_not_depend_on_who_answers():
    base, plain = f32(0), PrivateSum(1.0, 0.0, SEEDED)
    one = plain.combine({0: f32(0.5)}, base, 10.0, 0, 0)
    two = plain.combine({0: f32(0.5), 1: f32(0.5)}, base, 10.0, 0, 0)
    nobody = plain.combine({}, base, 10.0, 0, 0)
    assert (one, two, nobody) == (f32(0.05), f32(0.1), f32(0))


def test_a_model_that_is_not_finite_counts_as_no_change():
    for bad in (f32(np.nan, 1), f32(np.inf, 1), f32(-np.inf, np.nan)):
        assert encode(bad, f32(0, 0), Grid(1.0, 10)).tolist() == [0, 0]


@given(
    arrays(np.float32, 20, elements=st.floats(-(2.0**100), 2.0**100, width=32)),
    arrays(np.float32, 20, elements=st.floats(-(2.0**100), 2.0**100, width=32)),
    st.floats(1e-6, 1e6),
    st.integers(4, 20),
)
def test_no_change_is_ever_longer_than_the_clip(model, base, clip, bits):
    steps = encode(model, base, Grid(clip, bits))
    assert sum(int(step) ** 2 for step in steps) <= 4**bits


def test_a_short_change_is_only_rounded_towards_zero():
    grid = Grid(2.0, 3)  # steps of 0.25
    assert encode(f32(0.9, -0.9), f32(0, 0), grid).tolist() == [3, -3]  # 0.9 / 0.25 = 3.6


def test_noise_of_the_edge_has_the_promised_deviation():
    size, noise, clip, divisor = 40_000, 1.5, 0.2, 5.0
    made = PrivateSum(clip, noise, SEEDED).combine({}, np.zeros(size, np.float32), divisor, 8, 1)
    deviation = noise * clip / divisor  # 0.06
    assert made.std() == pytest.approx(deviation, rel=5 / math.sqrt(2 * size))
    assert abs(made.mean()) < 5 * deviation / math.sqrt(size)


def test_rounds_have_noise_of_their_own_that_repeats():
    base, private = np.zeros(8, np.float32), PrivateSum(1.0, 1.0, SEEDED)
    first, again, other = (private.combine({}, base, 1.0, 8, index) for index in (0, 0, 1))
    assert (first == again).all()
    assert (first != other).all()
