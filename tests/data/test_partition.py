"""Every partition deals all clients something, by the rule that its name says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiflash.data import Partition, label_counts, own_indices, partition
from hiflash.data.partition import parse_name, usual_names
from hiflash.errors import DataError
from hiflash.seeding import rng

ONCE = ["iid", "dirichlet", "dirichlet0.001", "dirichlet100", "quantity", "quantity0.01"]


def deal(name: str, y: Any, clients: int, seed: int = 0, classes: int = 10, groups: Any = None) -> Partition:
    labels = np.asarray(y, np.int64)
    return partition(name, labels, clients, rng(seed, "partition"), classes=classes, groups=groups)


@st.composite
def labelled(draw: st.DrawFn) -> tuple[np.ndarray, int, int]:
    y = np.array(draw(st.lists(st.integers(0, 9), min_size=1, max_size=120)), np.int64)
    return y, draw(st.integers(1, len(y))), draw(st.integers(0, 2**32))


@given(
    labelled(),
    st.sampled_from(ONCE),
)
def test_every_sample_is_used_exactly_once_and_no_client_is_empty(
    case: tuple[np.ndarray, int, int], name: str
) -> None:
    y, clients, seed = case
    dealt = deal(name, y, clients, seed)
    assert len(dealt.indices) == clients
    assert min(map(len, dealt.indices)) >= 1
    assert sorted(np.concatenate(dealt.indices)) == list(range(len(y)))
    assert (dealt.overlap, dealt.name) == (0.0, name)
    assert all(part.dtype == np.int64 for part in dealt.indices)


@given(labelled())
def test_iid_sizes_differ_by_at_most_one(case: tuple[np.ndarray, int, int]) -> None:
    sizes = [len(part) for part in deal("iid", *case).indices]
    assert max(sizes) - min(sizes) <= 1


@given(labelled(), st.integers(1, 10))
def test_noniid_gives_each_client_k_classes_in_even_shares(case: tuple[np.ndarray, int, int], k: int) -> None:
    y, clients, seed = case
    size = len(y) // clients
    if k > len(np.unique(y)) or k > size:
        with pytest.raises(DataError, match=f"noniid{k}"):
            deal(f"noniid{k}", y, clients, seed)
        return
    dealt = deal(f"noniid{k}", y, clients, seed)
    counts = label_counts(y, dealt.indices, 10)
    assert counts.shape == (clients, 10)
    assert (counts.sum(1) == size).all()
    assert ((counts > 0).sum(1) == k).all()
    assert all(set(row[row > 0]) <= {size // k, -(-size // k)} for row in counts)
    uses = np.bincount(np.concatenate(dealt.indices), minlength=len(y))
    assert dealt.overlap == (uses > 1).mean()
    for label in np.unique(y):  # a class is used up before any of it is used again
        assert np.ptp(uses[y == label]) <= 1


def test_noniid_reports_no_overlap_where_none_is_needed_and_some_where_it_is() -> None:
    y = [0] * 10 + [1] * 10
    assert deal("noniid2", y, 2).overlap == 0.0
    # One client of one class takes that class twice over: half of all samples are used twice.
    assert deal("noniid1", y, 1).overlap == 0.5


@given(labelled(), st.sampled_from(["iid", "noniid1", "noniid1-balanced", "dirichlet", "quantity"]))
def test_the_same_stream_gives_the_same_parts(case: tuple[np.ndarray, int, int], name: str) -> None:
    first, second = deal(name, *case), deal(name, *case)
    assert all(np.array_equal(a, b) for a, b in zip(first.indices, second.indices, strict=True))


def test_another_stream_gives_other_parts() -> None:
    y = np.arange(1000) % 10
    for name in ("iid", "noniid2", "noniid2-balanced", "dirichlet", "quantity"):
        assert any(
            not np.array_equal(a, b)
            for a, b in zip(deal(name, y, 10).indices, deal(name, y, 10, seed=1).indices, strict=True)
        )


def test_a_smaller_alpha_is_a_stronger_skew() -> None:
    y = np.arange(10_000) % 10

    def largest_share(name: str) -> float:
        counts = label_counts(y, deal(name, y, 10).indices, 10)
        return float((counts.max(1) / counts.sum(1)).mean())

    assert largest_share("dirichlet0.1") > largest_share("dirichlet1") > largest_share("dirichlet100")


def test_quantity_skews_sizes_but_not_labels() -> None:
    y = np.arange(10_000) % 10
    counts = label_counts(y, deal("quantity", y, 10).indices, 10)
    sizes = counts.sum(1)
    assert sizes.max() > 5 * sizes.min()
    big = counts[sizes > 1000] / sizes[sizes > 1000, None]
    assert np.abs(big - 0.1).max() < 0.03


@given(st.lists(st.integers(0, 20), min_size=1, max_size=80))
def test_writer_gives_each_writer_its_own_client(writers: list[int]) -> None:
    owners = np.array(writers)
    present = np.unique(owners)
    dealt = deal("writer", np.zeros(len(writers)), len(present), groups=owners)
    assert sorted(np.concatenate(dealt.indices)) == list(range(len(writers)))
    assert all((owners[part] == writer).all() for part, writer in zip(dealt.indices, present, strict=True))


def test_group_and_writer_are_one_partition() -> None:
    owners = np.array([7, 3, 5, 3, 7, 5])
    dealt = [deal(name, [0] * 6, 3, groups=owners).indices for name in ("group", "writer")]
    assert [part.tolist() for part in dealt[0]] == [part.tolist() for part in dealt[1]]
    assert [part.tolist() for part in dealt[0]] == [[1, 3], [2, 5], [0, 4]]
    with pytest.raises(DataError, match="4 clients but only 3 groups"):
        deal("group", [0] * 6, 4, groups=owners)


def test_fewer_clients_than_writers_take_the_first_writers() -> None:
    dealt = deal("writer", [0] * 6, 2, groups=np.array([7, 3, 5, 3, 7, 5]))
    assert [part.tolist() for part in dealt.indices] == [[1, 3], [2, 5]]


@pytest.mark.parametrize(
    ("name", "clients", "writers", "message"),
    [
        ("writer", 3, np.array([0, 0, 1, 1]), "3 clients but only 2 writers"),
        ("writer", 1, None, "does not know its writers"),
        ("writer", 1, np.array([0]), "1 writers for 4 samples"),
        ("iid", 5, None, "5 clients but only 4 training samples"),
        ("iid", 0, None, "at least 1 client"),
        ("iid", -1, None, "at least 1 client"),
        ("noniid3", 1, None, r"noniid2 or less"),
        ("noniid2", 4, None, "1 samples each, too few for 2 classes"),
        (
            "noniid3-balanced",
            2,
            None,
            r"3 classes per client, but the .* holds 2 .* noniid2-balanced or less",
        ),
        ("noniid2-balanced", 3, None, "3 clients need 6 shards, and the 2 classes have samples for 4"),
    ],
)
def test_impossible_partitions_are_refused(name: str, clients: int, writers: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        deal(name, [0, 1, 0, 1], clients, groups=writers)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("idd", "Did you mean 'iid'"),
        ("non-iid2", "Did you mean 'noniid2'"),
        ("noniid", "Did you mean 'noniid2'"),
        ("noniid0", "Did you mean 'noniid2'"),
        ("Dirichlet", "Did you mean 'dirichlet0.5'"),
        ("dirichlet-1", "Known: iid"),
        ("dirichletnan", "Known: iid"),
        ("noniid2balanced", "Did you mean 'noniid2-balanced'"),
        ("noniid-balanced", "Did you mean 'noniid2-balanced'"),
        ("noniid0-balanced", "Did you mean 'noniid2-balanced'"),
        ("noniid-balanced2", "Did you mean 'noniid2-balanced'"),
        ("iid-balanced", "unknown partition 'iid-balanced'"),
        ("noniid2-", "Did you mean 'noniid2'"),
        ("writers", "Did you mean 'writer'"),
        ("", "Known: iid"),
        ("iid\n", "Known: iid"),
        ("dirichlet0", "must lie in"),
        ("quantity99999999", "must lie in"),
    ],
)
def test_unknown_names_are_refused_with_a_suggestion(name: str, hint: str) -> None:
    with pytest.raises(DataError, match=hint):
        deal(name, [0, 1], 1)


def test_the_listed_names_can_be_used() -> None:
    assert [parse_name(name)[0] for name in usual_names()] == [
        "iid",
        "noniid",
        "noniid-balanced",
        "dirichlet",
        "quantity",
        "group",
        "writer",
    ]
    assert parse_name("dirichlet") == parse_name("dirichlet0.5") == ("dirichlet", 0.5)
    assert parse_name("noniid12") == ("noniid", 12.0)
    assert parse_name("noniid12-balanced") == ("noniid-balanced", 12.0)


def test_own_parts_are_sorted_and_their_overlap_reported() -> None:
    dealt = own_indices([[3, 0], np.array([1, 3], np.uint8)], 4)
    assert [part.tolist() for part in dealt.indices] == [[0, 3], [1, 3]]
    assert (dealt.overlap, dealt.name) == (0.25, "own")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "no clients"),
        ([[0], []], "client 1 has no samples"),
        ([[0], [4]], r"client 1 has index 4, outside 0\.\.3"),
        ([[-1]], "client 0 has index -1"),
        ([[0.0]], "client 0 has indices of type float64"),
        ([[True, False]], "np.flatnonzero"),
        ([["a"]], "expected integers"),
        ([[[0], [1]]], "expected a flat list"),
        ([[[0], [1, 2]]], "not a flat list"),
    ],
)
def test_bad_own_parts_are_refused_with_the_client(parts: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        own_indices(parts, 4)
