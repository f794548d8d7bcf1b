"""Histograms leave a client with noise: how much, what is made of them, and that nobody takes it off."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hiflash.config import Config
from hiflash.core.association.greedy import Problem, associate_reference
from hiflash.privacy.histograms import Histograms, Release, histogram_charge, release_of, whole_counts
from hiflash.privacy.randomness import SeededRandomness, Stream

LAPLACE = Release("laplace", 1.0, 0.0, "sample")


def source(seed: int = 0) -> Stream:
    return SeededRandomness(seed).stream("histograms")


def noised(counts: np.ndarray, release: Release | None, seed: int = 0) -> np.ndarray:
    histograms = Histograms(release)
    return histograms.read(histograms.sent(counts, source(seed)))


@pytest.mark.parametrize(
    ("release", "scale"),
    [
        (Release("laplace", 0.5, 0.0, "sample"), 2.0),  # 1 / 0.5
        (Release("laplace", 0.5, 0.0, "client"), 4.0),  # 2 / 0.5
    ],
)
def test_the_scale_follows_from_what_is_protected(release, scale) -> None:
    assert release.scale == scale


def test_gaussian_noise_hides_a_client_with_sqrt_2_times_the_noise_of_a_sample() -> None:
    pytest.importorskip("dp_accounting", reason='needs pip install "hiflash[dp]"')
    one, all_of_it = (Release("gaussian", 1.0, 1e-5, unit).scale for unit in ("sample", "client"))
    assert all_of_it / one == pytest.approx(math.sqrt(2), rel=1e-6)
    assert one == pytest.approx(3.7306, abs=1e-3)  # Balle and Wang 2018 at (1, 1e-5)


def test_auto_is_exact_in_a_simulation_and_noised_when_deployed() -> None:
    by_labels = {"federation.association": "heterogeneity"}
    auto = Config(**by_labels).privacy
    assert histogram_charge(auto, deployed=False) is None
    assert histogram_charge(auto, deployed=True) == ("laplace", 1.0, 0.0)
    off = Config(**by_labels, **{"privacy.epsilon": "off"}).privacy
    assert release_of(off, deployed=True) is None
    given_ = Config(**by_labels, **{"privacy.epsilon": 0.3, "privacy.noise": "gaussian"}).privacy
    assert histogram_charge(given_, deployed=False) == ("gaussian", 0.3, 1e-5)


def test_without_a_release_counts_stay_as_they_are() -> None:
    counts = np.array([[5, 0, 7], [0, 0, 1]])
    assert np.array_equal(noised(counts, None), counts)


def test_negative_counts_are_spread_over_the_others_and_the_total_stays() -> None:
    # The sum is 50. The negative one becomes 0 and the others fall by 1 each: 25 + 24 + 1 = 50.
    assert whole_counts(np.array([[26.0, 25.0, -3.0, 2.0]]), np.array([50.0])).tolist() == [[25, 24, 0, 1]]
    # Rounded down, one sample of 3 is missing: the first of the largest remainders gets it.
    assert whole_counts(np.array([[1.5, 0.5, 1.0]]), np.array([3.0])).tolist() == [[2, 0, 1]]
    assert whole_counts(np.array([[-5.0, -1.0]]), np.array([0.0])).tolist() == [[0, 0]]


@given(
    arrays(np.float64, (4, 6), elements=st.floats(-1e6, 1e6)),
    arrays(np.float64, 4, elements=st.integers(0, 10**6).map(float)),
)
def test_whole_counts_are_not_negative_and_have_the_total(rows, totals) -> None:
    counts = whole_counts(rows, totals)
    assert (counts >= 0).all()
    assert np.array_equal(counts.sum(axis=1), totals)


def test_absent_classes_get_less_than_by_cutting_off() -> None:
    counts = np.tile([50, 50, 0, 0, 0, 0, 0, 0, 0, 0], (2000, 1))
    release = Release("laplace", 0.1, 0.0, "sample")
    cut = np.maximum(Histograms(release).sent(counts, source()), 0.0)
    # Cutting off leaves an absent class b / 2 = 5 samples on average.
    assert cut[:, 2:].mean() == pytest.approx(5.0, rel=0.03)
    assert noised(counts, release)[:, 2:].mean() < 3.0
    assert noised(counts, release).sum(axis=1).mean() == pytest.approx(100, abs=3)  # the total is not biased


def test_the_unit_client_hides_how_many_samples_there_are() -> None:
    release = Release("laplace", 5.0, 0.0, "client")
    small, large = np.array([[1, 1, 0]]), np.array([[5000, 5000, 0]])
    assert np.array_equal(noised(small, release), noised(large, release))
    assert noised(small, release).sum() == 1000


def test_an_output_is_at_most_e_to_the_epsilon_more_likely_with_one_sample_more() -> None:
    """The promise itself, counted: for every output of a class, with and without one sample."""
    draws, epsilon = 400_000, 1.0
    release = Release("laplace", epsilon, 0.0, "sample")
    tables = []
    for seed, count in ((1, 20), (2, 21)):
        sent = Histograms(release).sent(np.full((draws, 1), count), source(seed))
        tables.append(np.bincount(np.clip(np.rint(sent[:, 0]), 15, 26).astype(int), minlength=27)[15:])
    one, other = (table / draws for table in tables)
    slack = 1 + 5 / np.sqrt(np.minimum(*tables))  # five standard errors
    assert (one <= math.exp(epsilon) * other * slack).all()
    assert (other <= math.exp(epsilon) * one * slack).all()
    assert max((one / other).max(), (other / one).max()) > math.exp(0.9 * epsilon)  # and no more than needed


def watched_totals(counts: np.ndarray) -> list[np.ndarray]:
    """Return the totals that edges compare while they choose clients, for whoever watches one."""
    latency_ms = np.random.default_rng(3).uniform(20, 80, (3, len(counts)))
    seen: dict[tuple[int, ...], np.ndarray] = {}

    class Watched(Problem):
        def costs(self, latency_ms, held, clients):
            seen[tuple(held.tolist())] = held.copy()  # the total of the edge that chooses
            return super().costs(latency_ms, held, clients)

    total = counts.sum(axis=0)
    problem = Watched(latency_ms, counts, 300.0, total / total.sum())
    clusters = associate_reference(problem, np.random.default_rng(0))
    assert sorted(client for cluster in clusters for client in cluster) == list(range(len(counts)))
    return list(seen.values())


def recovered(true: np.ndarray, totals: list[np.ndarray]) -> set[int]:
    """Return the clients whose true histogram is the difference of two totals."""
    differences = {tuple((after - before).tolist()) for before, after in product(totals, totals)}
    return {client for client, own in enumerate(true.tolist()) if tuple(own) in differences}


def test_a_difference_of_totals_is_a_client_without_noise_and_not_with_it() -> None:
    """Greedy selection compares totals with and without a candidate: their difference is its histogram."""
    true = np.random.default_rng(5).multinomial(60, [0.5, 0.3, 0.1, 0.1], 12).astype(np.int64)
    assert len(recovered(true, watched_totals(true))) >= 6
    # Four counts are all right with probability (1 - e^-0.5)^4 = 0.02 each.
    assert len(recovered(true, watched_totals(noised(true, LAPLACE)))) <= 1


def guessed(release: Release | None, draws: int) -> float:
    """Return how often a newcomer's only label is the largest difference of two totals.

    Others have sent theirs before, so their noise is the same in both totals and cancels.
    """
    others = np.random.default_rng(1).multinomial(40, [0.25] * 4, 8).astype(np.int64)
    right = 0
    for draw in range(draws):
        newcomer = np.eye(4, dtype=np.int64)[[draw % 4]]  # one sample: what epsilon protects
        before = noised(others, release, 10_000 + draw).sum(axis=0)
        after = before + noised(newcomer, release, draw).sum(axis=0)
        right += int((after - before).argmax()) == draw % 4
    return right / draws


def test_a_client_that_joins_shows_in_the_total_without_noise_and_is_lost_in_it_with_noise() -> None:
    assert guessed(None, 40) == 1.0
    # A guess is 1 in 4. Another label is two changes of a sample: e^(2 0.5) / (e^(2 0.5) + 3) = 0.48 at most,
    # plus four standard errors.
    draws = 300
    assert guessed(Release("laplace", 0.5, 0.0, "sample"), draws) < 0.48 + 4 * math.sqrt(0.25 / draws)
    assert guessed(Release("laplace", 20.0, 0.0, "sample"), draws) > 0.9  # hardly any noise: it shows
