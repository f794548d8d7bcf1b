"""Balanced shards use no sample twice, and every client gets k shards of different classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hiflash
from hiflash.data import Partition, label_counts, partition
from hiflash.data.shards import shards_per_class
from hiflash.errors import DataError
from hiflash.seeding import rng


def deal(k: int, y: np.ndarray, clients: int, seed: int = 0) -> Partition:
    return partition(f"noniid{k}-balanced", y, clients, rng(seed, "partition"), classes=10)


@st.composite
def dealt_cases(draw: st.DrawFn) -> tuple[np.ndarray, int, int, int]:
    y = np.array(draw(st.lists(st.integers(0, 9), min_size=1, max_size=150)), np.int64)
    return y, draw(st.integers(1, len(y))), draw(st.integers(1, 10)), draw(st.integers(0, 2**32))


@given(dealt_cases())
def test_disjoint_shards_of_different_classes(case: tuple[np.ndarray, int, int, int]) -> None:
    y, clients, k, seed = case
    sizes = np.bincount(y, minlength=10)
    present = int((sizes > 0).sum())
    if k > present or (clients * k >= present and np.minimum(sizes, clients).sum() < clients * k):
        with pytest.raises(DataError, match=f"noniid{k}-balanced"):
            deal(k, y, clients, seed)
        return
    try:
        dealt = deal(k, y, clients, seed)
    except DataError:  # fewer shards than classes: the drawn classes may be too small
        assert clients * k < present
        return
    uses = np.bincount(np.concatenate(dealt.indices), minlength=len(y))
    counts = label_counts(y, dealt.indices, 10)
    assert uses.max() == 1
    assert dealt.overlap == 0.0
    assert ((counts > 0).sum(1) == k).all()
    for label in np.flatnonzero(counts.any(0)):
        own = counts[:, label][counts[:, label] > 0]
        assert own.max() - own.min() <= 1  # the shards of a class are equal
        assert own.sum() == sizes[label]  # and nothing of it is left over
    if clients * k >= present:
        assert (uses == 1).all()
    else:
        assert counts.any(0).sum() == clients * k  # a shard of each drawn class


@given(st.lists(st.integers(1, 500), min_size=1, max_size=12), st.integers(1, 60), st.data())
def test_no_other_cut_has_a_smaller_largest_shard(
    sizes: list[int], clients: int, data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, len(sizes)))
    if clients * k < len(sizes) or sum(min(clients, size) for size in sizes) < clients * k:
        return
    cuts = shards_per_class(sizes, clients, k)
    assert sum(cuts) == clients * k
    assert all(1 <= cut <= min(clients, size) for cut, size in zip(cuts, sizes, strict=True))
    # A cut moved from any class to any other leaves a shard at least as large as the largest one now,
    # among the classes that can be cut further.
    free = [size / cut for size, cut in zip(sizes, cuts, strict=True) if cut < min(clients, size)]
    for size, cut in zip(sizes, cuts, strict=True):
        if cut > 1 and free:
            assert size / (cut - 1) >= max(free)


def test_equal_classes_are_cut_equally() -> None:
    """10 classes of 40 among 20 clients, k = 2: 40 shards, 4 of each class, 10 samples each."""
    y = np.repeat(np.arange(10), 40)
    dealt = deal(2, y, 20)
    counts = label_counts(y, dealt.indices, 10)
    assert set(counts.ravel()) == {0, 10}
    assert ((counts > 0).sum(0) == 4).all()


def test_uneven_classes_give_shards_of_like_size() -> None:
    """60, 30 and 33 samples in 4 shards: only two of the 60 avoid a shard of 60."""
    y = np.repeat([0, 1, 2], [60, 30, 33])
    sizes = sorted(len(part) for part in deal(1, y, 4).indices)
    assert sizes == [30, 30, 30, 33]


def test_shards_that_do_not_divide_differ_by_one() -> None:
    """10 samples of one class in 3 shards: 4 + 3 + 3."""
    assert sorted(len(part) for part in deal(1, np.zeros(10, np.int64), 3).indices) == [3, 3, 4]


def test_fewer_shards_than_classes_leave_out_a_drawn_class() -> None:
    y = np.repeat([0, 1, 2], 5)
    left_out = Counter()
    for seed in range(60):
        held = np.unique(y[np.concatenate(deal(1, y, 2, seed).indices)])
        left_out[({0, 1, 2} - set(held.tolist())).pop()] += 1
    assert set(left_out) == {0, 1, 2}


def test_classes_of_a_client_are_drawn_not_paired_by_a_pattern() -> None:
    """With 4 shards of each of 10 classes, 45 pairs are possible; 20 seeds show nearly all of them."""
    y = np.repeat(np.arange(10), 40)
    pairs: Counter[tuple[int, ...]] = Counter()
    for seed in range(20):
        pairs.update(tuple(np.unique(y[part]).tolist()) for part in deal(2, y, 20, seed).indices)
    assert len(pairs) == 45
    assert max(pairs.values()) < 4 * min(pairs.values())


def test_a_run_takes_the_name_and_reports_no_overlap(run_tiny: Callable[..., hiflash.Result]) -> None:
    result = run_tiny(data__partition="noniid2-balanced", trainer="none")
    assert (result.partition, result.sample_overlap) == ("noniid2-balanced", 0.0)
