"""Held-out samples: a share of every client's, trained on by nobody."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiflash.data import Partition, hold_out
from hiflash.data.partition import own_indices
from hiflash.errors import DataError
from hiflash.seeding import rng


@given(
    parts=st.lists(st.lists(st.integers(0, 39), min_size=1, max_size=12), min_size=1, max_size=6),
    share=st.floats(0.05, 0.5),
    seed=st.integers(0, 5),
)
def test_no_client_trains_on_what_any_client_holds_out(
    parts: list[list[int]], share: float, seed: int
) -> None:
    split = own_indices(parts, 40)
    try:
        rest, held = hold_out(split, share, rng(seed, "held out"))
    except DataError:
        return  # a client would be left without a sample, see below
    taken = set(np.concatenate(held).tolist())
    for before, trained, own in zip(split.indices, rest.indices, held, strict=True):
        assert len(trained) >= 1
        assert not taken & set(trained.tolist())
        unique = np.unique(before)
        assert set(own.tolist()) <= set(unique.tolist())
        assert len(own) == min(max(1, round(share * len(unique))), len(unique) - 1)
        assert set(trained.tolist()) == set(before.tolist()) - taken


def test_the_same_stream_holds_out_the_same_samples() -> None:
    split = Partition([np.arange(50), np.arange(50, 80)], 0.0, "own")
    first, second = (hold_out(split, 0.2, rng(3, "held out"))[1] for _ in range(2))
    assert [part.tolist() for part in first] == [part.tolist() for part in second]
    assert [len(part) for part in first] == [10, 6]


def test_a_client_whose_samples_others_hold_out_is_named() -> None:
    lots = [np.array([0, 1])] * 2 + [np.array([0]), np.array([1])]
    with pytest.raises(DataError, match=r"evaluate.clients = 0.5 leaves client [23] no sample to train on"):
        hold_out(Partition(lots, 1.0, "own"), 0.5, rng(0, "held out"))
