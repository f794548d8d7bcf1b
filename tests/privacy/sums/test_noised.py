"""Private secure sums: noise that no client can subtract, sums that do not wrap, charges and refusals."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiflash.privacy.discrete import discrete_gaussian, sum_divergence
from hiflash.privacy.mechanism import encode, grid_of
from hiflash.privacy.randomness import SeededRandomness
from hiflash.privacy.sums.messages import MOST_CLIENTS, Refused, threshold
from hiflash.privacy.sums.noised import Noised, NoisedSum, _charged, decode, spread_noise

pytest.importorskip("Crypto", reason='needs pip install "hiflash[serve]"')
pytest.importorskip("cryptography", reason='needs pip install "hiflash[serve]"')

from hiflash.privacy.sums.edge import Abandoned, Opened
from hiflash.privacy.sums.in_memory import sum_in_memory
from privacy.sums.parties import terms_of

SEEDED = SeededRandomness(3)
BASE = np.float32([1, -2, 0.5, 3])


def private_terms(clients=5, size=4, noise=1.0, clip=2.0):
    return terms_of(clients, size, bound=clip, most_examples=clients, noise=noise)


def model_of(client, size=4):
    return (np.resize(BASE, size) + np.random.default_rng(client).normal(size=size)).astype(np.float32)


def vectors(terms):
    form, base = Noised.of(terms), np.resize(BASE, terms.size).astype(np.float32)

    def vector_of(client):
        return form.encode(model_of(client, terms.size), base, SEEDED.stream("noise", client))

    return vector_of


def whole(terms, clients):
    """Return the sum that clients should give, in Python's integers."""
    form, base = Noised.of(terms), np.resize(BASE, terms.size).astype(np.float32)
    total = [0] * terms.size
    for client in clients:
        change = encode(model_of(client, terms.size), base, form.grid)
        noise = discrete_gaussian(form.share, terms.size, SEEDED.stream("noise", client))
        total = [a + int(b) + int(c) for a, b, c in zip(total, change, noise, strict=True)]
    return total


@pytest.mark.parametrize("lost", [(), *combinations(range(10, 17), 1), (10, 16), (11, 12)])
def test_an_opened_sum_is_that_of_the_whole_numbers_with_their_noise(lost):
    terms = private_terms(clients=7)  # five of seven must stay
    opened = sum_in_memory(terms, 0, vectors(terms), {"masked": lost})
    assert isinstance(opened, Opened)
    assert isinstance(opened.summed, NoisedSum)
    left = [client for client in terms.clients if client not in lost]
    assert opened.clients == tuple(left)
    assert opened.summed.total.tolist() == whole(terms, left)


def test_below_the_threshold_nothing_is_opened():
    terms = private_terms(clients=7)
    ended = sum_in_memory(terms, 0, vectors(terms), {"masked": (10, 11, 12)})
    assert isinstance(ended, Abandoned)


def test_a_model_by_hand():
    """Steps of 0.5: a sum of (3, -1) over a divisor of 4 moves a model by (0.375, -0.125)."""
    summed = NoisedSum(np.int32([3, -1]), 0.5)
    assert summed.applied(np.float32([1, 1]), 4.0).tolist() == [1.375, 0.875]


def test_a_client_that_subtracts_its_own_noise_is_left_with_the_promised_one():
    form, size = Noised(10, 1.0, 1.0), 4_000
    few = threshold(10) - 1  # 7 of 10 are in a sum, and one of them reads it
    shares = [discrete_gaussian(form.share, size, SEEDED.stream("share", client)) for client in range(10)]
    rough = 5 / math.sqrt(2 * size)
    assert sum(shares[:few]).std() / form.grid.most == pytest.approx(1.0, rel=rough)
    assert sum(shares).std() / form.grid.most == pytest.approx(math.sqrt(10 / 6), rel=rough)


@given(st.integers(3, MOST_CLIENTS), st.floats(1e-3, 1000))
def test_noise_is_never_smaller_than_promised_and_sums_have_room(clients, noise):
    form = Noised(clients, 1.0, noise)
    fewest = (threshold(clients) - 1) * form.share
    assert fewest >= (noise * form.grid.most) ** 2
    assert fewest < (noise * form.grid.most) ** 2 + threshold(clients)  # rounded up, no more
    assert clients * form.grid.most + 12 * math.sqrt(clients * form.share) < 2**31
    assert form.grid.bits >= 16  # rounding moves a change by at most sqrt(d) 2^-16 clips


@given(st.integers(3, MOST_CLIENTS), st.floats(1e-3, 1000))
def test_a_finer_grid_would_have_no_room_or_is_not_wanted(clients, noise):
    bits = Noised(clients, 1.0, noise).grid.bits
    share = -(-math.ceil((noise * 2 ** (bits + 1)) ** 2) // (threshold(clients) - 1))
    full = clients * 2 ** (bits + 1) + 12 * math.sqrt(clients * share) >= 2**31
    assert full or bits == grid_of(1.0, noise).bits


def test_the_range_of_negative_sums_is_read_as_signed():
    terms = private_terms(clients=3, size=2, noise=1.0)
    total = np.array([2**32 - 5, 7, 3, 0], np.uint32)
    assert decode(terms, total, 3).total.tolist() == [-5, 7]


def test_every_client_counts_as_one_and_tells_nothing_else():
    terms = private_terms(clients=3)
    vector = vectors(terms)(terms.clients[0])
    assert vector[-2:].tolist() == [1, 0]
    assert terms.words == len(vector)


def test_a_model_that_is_not_finite_is_noise_alone():
    form = Noised(3, 1.0, 1.0)
    for bad in (np.nan, np.inf):
        sent = form.encode(np.float32([bad, 1]), np.float32([0, 0]), SEEDED.stream("bad"))
        noise = discrete_gaussian(form.share, 2, SEEDED.stream("bad"))
        assert sent[:2].view(np.int32).tolist() == noise.tolist()


def test_a_sum_that_no_honest_clients_can_have_made_is_refused():
    terms = private_terms(clients=3, size=1000)
    form = Noised.of(terms)
    honest = sum(vectors(terms)(client).astype(np.int64) for client in terms.clients).astype(np.uint32)
    assert len(decode(terms, honest, 3).total) == 1000
    with pytest.raises(Refused, match="the sum counts 3 clients, and 4 are in it; one of them lies"):
        decode(terms, honest, 4)
    lie = np.zeros(1002, np.uint32)
    lie[-2] = 3
    # By hand: 3 clips, and noise of deviation 1 in 1000 values: 1000 + 2 sqrt(72000) + 144 = 1680.66 squared
    # clips, and half of that more: three shares of a half each.
    most = 3 + math.sqrt(1.5 * 1680.66)
    for clips, good in ((most - 0.01, True), (most + 0.01, False)):
        lie[0] = int(clips * form.grid.most)
        if good:
            decode(terms, lie, 3)
        else:
            with pytest.raises(
                Refused, match=r"the sum is 53\.22 clips long.* at most 53\.21; one of them lies"
            ):
                decode(terms, lie, 3)


def test_noise_of_another_kind_is_refused_by_name():
    """A client that sends random words spoils the sum, and the sum is refused."""
    terms = private_terms(clients=4, size=50)
    good = vectors(terms)

    def vector_of(client):
        words = good(client)
        if client == 12:
            words[:] = np.random.default_rng(0).integers(0, 2**32, words.size, np.uint32)
        return words

    ended = sum_in_memory(terms, 0, vector_of)
    assert isinstance(ended, Abandoned)
    assert "one of them lies" in ended.reason


@pytest.mark.parametrize("noise", [-1.0, math.nan, math.inf, 1001.0])
def test_terms_with_impossible_noise_are_refused(noise):
    with pytest.raises(Refused, match="the noise of a sum is 0 to 1000 clips"):
        private_terms(noise=noise).check()


def test_the_noise_is_part_of_what_clients_sign():
    one, other = private_terms(noise=1.0), private_terms(noise=0.5)
    assert one.context() != other.context()


def multiplier(variance, terms, size, sensitivity):
    """Return the noise multiplier that a sum of discrete Gaussians amounts to."""
    return _charged(sensitivity / math.sqrt(terms * variance), sum_divergence(variance, terms), size)


def test_spread_noise_is_charged_with_its_approximation_term():
    assert spread_noise(2.0, 10, 21_840) == 2.0  # on the grid the term vanishes
    # Coarse noise by hand: 2 clients of variance 1, sensitivity 1, 1 value: tau = 10 exp(-pi^2) = 5.17e-4;
    # sqrt(1 / 2 + tau / 2) = 0.70729 and sqrt(1 / 2) + tau = 0.70762: the first is smaller
    tau = 10 * math.exp(-(math.pi**2))
    assert multiplier(1, 2, 1, 1.0) == pytest.approx(1 / math.sqrt(0.5 + tau / 2))
    # With 10,000 values the second one is: 0.7071 + 0.0517 < sqrt(0.5 + 2.59)
    assert multiplier(1, 2, 10_000, 1.0) == pytest.approx(1 / (math.sqrt(0.5) + 100 * tau))


def test_hardly_any_noise_is_charged_more_than_a_gaussian_of_its_size():
    """1e-6 clips are a variance of 2 (1.1 rounded up) over 6 shares, 1 for each client: tau by hand."""
    form = Noised(10, 1.0, 1e-6)
    assert (form.grid.bits, form.share) == (20, 1)
    tau = 10 * math.fsum(math.exp(-2 * math.pi**2 * k / (k + 1)) for k in range(1, 6))
    assert spread_noise(1e-6, 10, 100) == pytest.approx(1 / math.sqrt(1e12 + 50 * tau), rel=1e-12)


@given(st.floats(1e-6, 1000), st.integers(3, 300), st.integers(1, 10**6))
def test_no_smaller_round_is_cheaper_than_what_is_charged(noise, clients, size):
    charged = spread_noise(noise, 300, size)
    form = Noised(clients, 1.0, noise)
    real = multiplier(form.share, threshold(clients) - 1, size, form.grid.most)
    assert charged <= real * (1 + 1e-12)
    assert charged <= noise * (1 + 1e-12)
