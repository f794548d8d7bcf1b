"""Sums of a group: exact for whoever is left, nothing for too few, and no single vector."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from hiflash.errors import ProtocolError
from hiflash.privacy.group_sums import GroupMember, _mask, group_histograms, masked_sums, open_sum
from hiflash.privacy.histograms import Histograms, Release
from hiflash.privacy.noise import SeededSource

KEYS = {(one, other): bytes([one, other]) * 16 for one, other in combinations(range(5), 2)}


def source(seed: int = 0) -> SeededSource:
    return SeededSource(np.random.default_rng(seed))


def members(count: int = 5, least: int = 3) -> dict[int, GroupMember]:
    return {
        one: GroupMember(
            one,
            {other: KEYS[min(one, other), max(one, other)] for other in range(count) if other != one},
            bytes([100 + one]) * 32,
            least,
        )
        for one in range(count)
    }


@pytest.mark.parametrize("least", [3, 4])
def test_the_sum_is_exact_for_every_set_of_dropouts_and_missing_below_the_least(least) -> None:
    vectors = {client: np.arange(4, dtype=np.uint64) * np.uint64(client + 1) for client in range(6)}
    sum_of = masked_sums(source(), least)
    for gone in (set(each) for size in range(7) for each in combinations(range(6), size)):
        left = set(vectors) - gone
        found = sum_of(vectors, gone)
        if len(left) < least:
            assert found is None
        else:
            factor = sum(client + 1 for client in left)
            assert found is not None
            assert found.tolist() == [0, factor, 2 * factor, 3 * factor]


def test_sums_wrap_around_like_the_numbers_they_are_made_of() -> None:
    vectors = {client: np.array([-5, 2**62], np.int64).view(np.uint64) for client in range(3)}
    found = masked_sums(source())(vectors, ())
    assert found is not None
    assert found.view(np.int64).tolist() == [-15, 3 * 2**62 - 2**64]


def test_a_masked_vector_looks_uniform_and_unlike_its_content() -> None:
    group = members()
    zeros = np.zeros(20_000, np.uint64)
    hidden = group[0].masked(zeros)
    octets = np.bincount(hidden.view(np.uint8), minlength=256)
    expected = 8 * 20_000 / 256
    chi_squared = ((octets - expected) ** 2 / expected).sum()
    assert 255 - 5 * np.sqrt(2 * 255) < chi_squared < 255 + 5 * np.sqrt(2 * 255)


def test_two_groups_with_the_same_sum_open_the_same_and_send_different_messages() -> None:
    base = {client: np.array([10 * client], np.uint64) for client in range(5)}
    moved = {**base, 0: np.array([7], np.uint64), 1: np.array([3], np.uint64)}  # 0 + 10 = 7 + 3
    opened, sent = [], []
    for vectors in (base, moved):
        group = members()
        hidden = {client: group[client].masked(vectors[client]) for client in range(5)}
        sent.append([hidden[client].tolist() for client in range(5)])
        opened.append(open_sum(hidden, {client: group[client].unmasked(range(5)) for client in range(5)}))
    assert opened[0].tolist() == opened[1].tolist() == [100]  # 0 + 10 + 20 + 30 + 40
    assert [one == other for one, other in zip(*sent, strict=True)] == [False, False, True, True, True]


def test_a_vector_that_arrives_after_its_member_was_given_up_stays_under_its_own_mask() -> None:
    group = members()
    vectors = {client: np.full(3, client + 1, np.uint64) for client in range(5)}
    hidden = {client: group[client].masked(vectors[client]) for client in range(5)}
    left = [0, 1, 2, 3]
    given = {client: group[client].unmasked(left) for client in left}
    assert open_sum(hidden, given).tolist() == [10, 10, 10]  # 1 + 2 + 3 + 4
    late = hidden[4]
    for client in left:
        late = late + _mask(given[client].shared[4], 3)  # member 4 has subtracted it
    assert not np.array_equal(late, vectors[4])
    assert np.array_equal(late - _mask(group[4].own, 3), vectors[4])  # the one key that nobody was given


def test_a_member_masks_once_opens_once_and_never_for_too_few() -> None:
    group = members()
    group[0].masked(np.zeros(2, np.uint64))
    with pytest.raises(ProtocolError, match="already"):
        group[0].masked(np.ones(2, np.uint64))
    with pytest.raises(ProtocolError, match="fewer than 3"):
        group[0].unmasked([0, 1])
    with pytest.raises(ProtocolError, match="with itself"):
        group[0].unmasked([1, 2, 3])
    with pytest.raises(ProtocolError, match="its own group"):
        group[0].unmasked([0, 1, 2, 77])
    group[0].unmasked([0, 1, 2, 3])
    with pytest.raises(ProtocolError, match="one sum"):
        group[0].unmasked([0, 1, 2, 4])  # with the sum before, the difference is member 3 or 4


def test_histograms_of_groups_are_exact_sums_without_noise() -> None:
    counts = np.arange(24, dtype=np.int64).reshape(8, 3)
    groups = [[0, 3, 6], [1, 2, 4, 5, 7]]
    found = group_histograms(counts, groups, Histograms(None), source(), 3)
    assert found.tolist() == [counts[group].sum(axis=0).tolist() for group in groups]
    with pytest.raises(ProtocolError, match="3 are the fewest"):
        group_histograms(counts, [[0, 1]], Histograms(None), source(), 3)


def test_the_noise_of_a_group_is_that_of_one_release_and_more_if_more_add_up() -> None:
    release = Release("laplace", 0.5, 0.0, "sample")
    counts = np.full((6000, 4), 500, np.int64)
    for size, variance in ((3, 8.0), (6, 16.0)):  # 2 b^2 with b = 2, sized for 3; twice the parts
        groups = [list(range(start, start + size)) for start in range(0, 6000, size)]
        found = group_histograms(counts, groups, Histograms(release), source(), 3)
        assert (found - 500 * size).var() == pytest.approx(variance, rel=0.1)


def test_under_the_unit_client_every_member_of_a_group_counts_alike() -> None:
    release = Release("laplace", 1000.0, 0.0, "client")
    counts = np.array([[5000, 0], [0, 1], [0, 1]], np.int64)
    found = group_histograms(counts, [[0, 1, 2]], Histograms(release), source(), 3)
    assert found.sum() == 3000
    assert found[0] == pytest.approx([1000, 2000], abs=30)
