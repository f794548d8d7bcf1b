"""Shares of 32-byte secrets: any `needed` of them give the secret, as pycryptodome says."""

import itertools
import os

import pytest

pytest.importorskip("Crypto", reason='needs pip install "hiflash[serve]"')

from Crypto.Protocol.SecretSharing import Shamir
from hypothesis import given, settings
from hypothesis import strategies as st

from hiflash.privacy.sums.shares import _inverse, _multiply, combine, deal


def test_any_three_of_five_give_the_secret():
    secret = os.urandom(32)
    shares = deal(secret, 3, 5)
    for indices in itertools.permutations(range(1, 6), 3):
        assert combine(indices, [[shares[i - 1] for i in indices]]) == [secret]
    assert combine((1, 2), [[shares[0], shares[1]]]) != [secret]


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 12), st.data())
def test_putting_together_agrees_with_pycryptodome(needed, data):
    count = data.draw(st.integers(needed, 20))
    secrets = [os.urandom(32) for _ in range(3)]
    dealt = [deal(secret, needed, count) for secret in secrets]
    indices = tuple(data.draw(st.permutations(range(1, count + 1)))[:needed])
    held = [[shares[i - 1] for i in indices] for shares in dealt]
    assert combine(indices, held) == secrets
    for shares, secret in zip(held, secrets, strict=True):
        blocks = [
            Shamir.combine([(i, share[half]) for i, share in zip(indices, shares, strict=True)])
            for half in (slice(16), slice(16, 32))
        ]
        assert b"".join(blocks) == secret


@given(st.integers(1, 2**128 - 1))
def test_an_inverse_is_one(a):
    assert _multiply(a, _inverse(a)) == 1


def test_a_wrong_share_gives_another_secret():
    secret = os.urandom(32)
    shares = deal(secret, 3, 3)
    wrong = bytes([shares[0][0] ^ 1]) + shares[0][1:]
    assert combine((1, 2, 3), [[wrong, shares[1], shares[2]]]) != [secret]


@pytest.mark.parametrize("indices", [(1, 1, 2), (0, 1, 2)])
def test_indices_must_differ(indices):
    with pytest.raises(ValueError, match="different indices"):
        combine(indices, [[bytes(32)] * 3])


def test_no_secrets():
    assert combine((1, 2, 3), []) == []
