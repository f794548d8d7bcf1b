"""Whole numbers modulo 2^32: exact sums, a stated error, clipped values that are counted."""

import numpy as np
import pytest

pytest.importorskip("Crypto", reason='needs pip install "hiflash[serve]"')

from hypothesis import given, settings
from hypothesis import strategies as st

from hiflash.privacy.sums.fixed_point import FixedPoint
from hiflash.privacy.sums.messages import Refused


def summed(form, changes, examples):
    total = np.zeros(changes[0].size + 2, np.uint32)
    for change, count in zip(changes, examples, strict=True):
        total += form.encode(change, count)
    return form.decode(total, len(changes))


def test_values_worked_by_hand():
    form = FixedPoint(clients=3, most_examples=2**10, bound=2.0)
    # (2^31 - 3) / 2^11 is just below 2^20, so the scale is 2^19.
    assert form.scale == 2**19
    words = form.encode(np.float32([0.5, -0.5, 2.5, 0.0]), 3)
    # 0.5 * 3 * 2^19 = 786,432; the third is clipped to 2: 2 * 3 * 2^19.
    assert words.tolist() == [786_432, 2**32 - 786_432, 3_145_728, 0, 3, 1]
    opened = form.decode(words + form.encode(np.float32([0, 0, 0, 1]), 1), 2)
    assert opened.mean.tolist() == [0.375, -0.375, 1.5, 0.25]  # 0.5 * 3 / 4, ..., 1 * 1 / 4
    assert (opened.examples, opened.clipped) == (4, 1)


def test_the_largest_sum_does_not_leave_the_range():
    form = FixedPoint(clients=4, most_examples=64, bound=8.0)
    opened = summed(form, [np.full(3, 8.0)] * 4, [16] * 4)
    assert opened.mean.tolist() == [8.0] * 3
    opened = summed(form, [np.full(3, -100.0)] * 4, [16] * 4)
    assert opened.mean.tolist() == [-8.0] * 3
    assert opened.clipped == 12


@settings(max_examples=200, deadline=None)
@given(
    clients=st.integers(1, 100),
    most=st.integers(1, 20_000),
    bound=st.floats(1e-3, 1e3),
    seed=st.integers(0, 10**6),
)
def test_the_mean_is_off_by_no_more_than_stated(clients, most, bound, seed):
    form = FixedPoint(clients, clients * most, bound)
    stream = np.random.default_rng(seed)
    changes = [stream.uniform(-bound, bound, 50) for _ in range(clients)]
    examples = stream.integers(1, most, clients, endpoint=True).tolist()
    opened = summed(form, changes, examples)
    exact = np.average(changes, axis=0, weights=examples)
    stated = form.error(clients, sum(examples))
    assert np.abs(opened.mean - exact).max() <= stated
    ratio = clients * most / sum(examples)
    assert stated <= 1.01 * clients * bound * ratio / (2**31 - clients)
    assert opened.clipped == 0


def test_the_error_in_the_docstring():
    """Ten clients, B = 8, twice as many samples allowed as there are: k B (N / n) / 2^31 = 7.45e-8."""
    assert FixedPoint(10, 12_000, 8.0).error(10, 6000) < 7.5e-8


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_change_that_is_not_finite_is_not_sent(bad):
    with pytest.raises(ValueError, match="not finite"):
        FixedPoint(3, 100, 1.0).encode(np.float32([0, bad]), 1)


@pytest.mark.parametrize("examples", [0, -1, 101])
def test_a_client_cannot_have_these_samples(examples):
    with pytest.raises(ValueError, match="1 to 100 samples"):
        FixedPoint(3, 100, 1.0).encode(np.float32([0]), examples)


def test_a_sum_that_its_clients_cannot_have_made_is_refused():
    form = FixedPoint(clients=3, most_examples=30, bound=1.0)
    total = form.encode(np.float32([0.5]), 4) + form.encode(np.float32([0.5]), 4)
    assert form.decode(total, 2).examples == 8
    for change, words in [
        ([0, 30, 0], "38 samples, and 2 clients have 2 to 30"),
        ([0, -8, 0], "0 samples"),
        ([int(8 * 0.6 * form.scale), 0, 0], "1 values of the sum are larger"),
        ([2**31, 0, 0], "1 values of the sum are larger"),
        ([0, 0, 3], "3 clipped values"),
    ]:
        with pytest.raises(Refused, match=words):
            form.decode(total + np.array(change, np.int64).astype(np.uint32), 2)
