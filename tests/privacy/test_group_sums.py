"""Sums of a group: exact for whoever is left, nothing for too few, and no single vector."""

from __future__ import annotations

import sys
from itertools import combinations

import numpy as np
import pytest

pytest.importorskip("Crypto", reason='needs pip install "hiflash[serve]"')
pytest.importorskip("cryptography", reason='needs pip install "hiflash[serve]"')

import hiflash
from hiflash.errors import ConfigError, ProtocolError
from hiflash.privacy.group_sums import group_histograms, sum_of_group
from hiflash.privacy.histograms import Histograms, Release
from hiflash.privacy.randomness import SeededRandomness, Stream
from hiflash.privacy.sums import in_memory
from hiflash.privacy.sums.messages import Masked


def stream(seed: int = 0) -> Stream:
    return SeededRandomness(seed).stream("test")


@pytest.mark.parametrize("least", [3, 5, 6])
def test_the_sum_is_exact_for_every_set_of_dropouts_and_missing_below_the_least(least) -> None:
    """Five of six must be left in any case: two thirds and one more."""
    vectors = {client: np.arange(4) * (client + 1.25) for client in range(6)}
    for gone in (set(each) for size in range(4) for each in combinations(range(6), size)):
        left = set(vectors) - gone
        found = sum_of_group(vectors, least, 64.0, dropped=gone)
        if len(left) < max(least, 5):
            assert found is None
        else:
            factor = sum(client + 1.25 for client in left)
            assert found is not None
            assert found.tolist() == [0, factor, 2 * factor, 3 * factor]


def test_two_are_no_group() -> None:
    assert sum_of_group({0: np.zeros(2), 1: np.zeros(2)}, 2, 8.0) is None


def test_a_group_beyond_a_secure_sum_says_the_way_out() -> None:
    with pytest.raises(ConfigError, match="1001 clients, and a secure sum at most 1000; use a smaller"):
        sum_of_group(dict.fromkeys(range(1001), np.zeros(2)), 3, 8.0)


def test_counts_that_would_be_clipped_are_an_error_not_a_wrong_sum() -> None:
    """2^20 samples of a class are the most; noise has a tail, and may be clipped."""
    counts = np.array([[2**20, 5], [10, 5], [10, 5]])
    exact = group_histograms(counts, [[0, 1, 2]], Histograms(None), stream(), 3)
    assert exact.tolist() == [[2**20 + 20, 15]]
    counts[0, 0] += 1
    with pytest.raises(ConfigError, match=r"at most 1,048,576 samples of one class.*histograms = \"single\""):
        group_histograms(counts, [[0, 1, 2]], Histograms(None), stream(), 3)


def test_nobody_sees_a_members_own_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    """What members send is masked: two groups with the same sum send unrelated words."""
    sent: list[np.ndarray] = []
    true = in_memory.answer

    def watched(client, request, vector_of):
        said = true(client, request, vector_of)
        if isinstance(said, Masked):
            sent.append(said.vector.copy())
        return said

    monkeypatch.setattr(in_memory, "answer", watched)
    zeros = {client: np.zeros(2_000) for client in range(3)}
    assert sum_of_group(zeros, 3, 8.0).tolist() == [0.0] * 2_000
    octets = np.bincount(np.concatenate(sent).view(np.uint8), minlength=256)
    expected = octets.sum() / 256
    chi_squared = ((octets - expected) ** 2 / expected).sum()
    assert len(sent) == 3
    assert 255 - 5 * np.sqrt(2 * 255) < chi_squared < 255 + 5 * np.sqrt(2 * 255)
    moved = {**zeros, 0: zeros[0] + 5, 1: zeros[1] - 5}
    first, sent[:] = list(sent), []
    assert sum_of_group(moved, 3, 8.0, index=1).tolist() == [0.0] * 2_000
    assert all((one != other).mean() > 0.99 for one, other in zip(first, sent, strict=True))


def test_histograms_of_groups_are_exact_sums_without_noise() -> None:
    counts = np.arange(24, dtype=np.int64).reshape(8, 3) * 40_000
    groups = [[0, 3, 6], [1, 2, 4, 5, 7]]
    found = group_histograms(counts, groups, Histograms(None), stream(), 3)
    assert found.tolist() == [counts[group].sum(axis=0).tolist() for group in groups]
    with pytest.raises(ProtocolError, match="3 are the fewest"):
        group_histograms(counts, [[0, 1]], Histograms(None), stream(), 3)


def test_the_noise_of_a_group_is_that_of_one_release_and_more_if_more_add_up() -> None:
    release = Release("laplace", 0.5, 0.0, "sample")
    counts = np.full((360, 60), 500, np.int64)
    for size, variance in ((3, 8.0), (6, 16.0)):  # 2 b^2 with b = 2, sized for 3; twice the parts
        groups = [list(range(start, start + size)) for start in range(0, 360, size)]
        found = group_histograms(counts, groups, Histograms(release), stream(), 3)
        assert (found - 500 * size).var() == pytest.approx(variance, rel=0.1)


def test_under_the_unit_client_every_member_of_a_group_counts_alike() -> None:
    release = Release("laplace", 1000.0, 0.0, "client")
    counts = np.array([[5000, 0], [0, 1], [0, 1]], np.int64)
    found = group_histograms(counts, [[0, 1, 2]], Histograms(release), stream(), 3)
    assert found.sum() == 3000
    assert found[0] == pytest.approx([1000, 2000], abs=30)


@pytest.mark.parametrize("missing", ["Crypto.Protocol.SecretSharing", "cryptography.exceptions"])
def test_without_a_package_the_way_out_is_told(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("hiflash.privacy.sums.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    settings = {"federation.association": "heterogeneity", "privacy.histograms": "group"}
    few = {"federation.clients": 12, "federation.edges": 2, "stop.communications": 2}
    with pytest.raises(ConfigError, match=r'privacy.histograms = "group" needs a package.*hiflash\[serve\]'):
        hiflash.run(**settings, **few)
