"""Secure sums are exact whoever drops out when, and reveal nothing below the threshold."""

import itertools
from dataclasses import fields, replace

import numpy as np
import pytest

pytest.importorskip("Crypto", reason='needs pip install "hiflash[serve]"')
pytest.importorskip("cryptography", reason='needs pip install "hiflash[serve]"')

from hiflash.privacy.sums.edge import Abandoned, Opened, TimeUp
from hiflash.privacy.sums.in_memory import make_client, sum_in_memory
from hiflash.privacy.sums.masks import add_mask, load_key, pair_key, public_key, self_key
from hiflash.privacy.sums.messages import PHASES, Refused, Terms, model_digest, threshold
from privacy.sums.parties import SEED, Party, terms_of


@pytest.mark.parametrize(
    ("phase", "loss"),
    [*((phase, False) for phase in PHASES if phase != "agree"), ("agree", True), ("unmask", True)],
)
def test_every_subset_of_dropouts_gives_the_exact_sum_or_an_abandoned_round(phase, loss):
    """All 2^10 subsets of ten clients drop out of one phase, and seven must stay.

    With a loss before, there are nine clients left and 2^9 subsets.
    """
    before = Party().until(phase, loss=loss)
    there, opened = sorted(before.ask.requests), 0
    assert len(there) == (9 if loss else 10)
    for dropped in itertools.chain.from_iterable(
        itertools.combinations(there, count) for count in range(len(there) + 1)
    ):
        party = before.copy()
        last = party.finish(without=dropped)
        if len(there) - len(dropped) < 7:
            assert isinstance(last, Abandoned)
            assert last.phase == phase
            assert "7 are needed" in last.reason
            assert party.edge._total.size == 0  # nothing is left to look at
            continue
        opened += 1
        stayed = [client for client in there if client not in dropped]
        counted = stayed if phase in ("advertise", "share", "masked") else there
        assert isinstance(last, Opened)
        assert list(last.clients) == counted
        assert party.edge._total.tolist() == party.expected(counted)
        assert last.summed.examples == sum(party.examples[client] for client in counted)
    assert opened == (1 + 9 + 36 if loss else 1 + 10 + 45 + 120)


def test_without_a_loss_there_is_nothing_to_agree_on_and_no_key_is_revealed():
    party = Party()
    phases = [party.ask.phase]
    while party.phase() and party.edge.phase is not None:
        phases.append(party.ask.phase)
    assert phases == ["advertise", "share", "masked", "unmask"]
    party = Party().until("unmask")
    assert party.answer(10).keys == {}
    assert sorted(party.answer(11).seeds) == list(party.terms.clients)


def test_dropouts_of_several_phases_add_up():
    party = Party()
    for lost in ((10,), (11,), (12,)):
        party.phase(without=lost)
    last = party.finish()
    assert last.clients == tuple(range(13, 20))
    assert party.edge._total.tolist() == party.expected(range(13, 20))
    assert party.edge.lost == {"advertise": (10,), "share": (11,), "masked": (12,), "agree": ()}


def test_a_deadline_closes_a_phase_with_those_that_have_answered():
    party = Party()
    assert party.ask.deadline == 10.0
    for client in range(10, 17):
        assert party.hear(client, party.answer(client)) == []
    assert party.edge.handle(TimeUp("share", 10.0)) == []  # of another phase
    (ask,) = party.edge.handle(TimeUp("advertise", 10.0))
    assert ask.phase == "share"
    assert ask.deadline == 20.0
    assert sorted(ask.requests) == list(range(10, 17))
    party.ask = ask
    assert party.finish().clients == tuple(range(10, 17))


@pytest.mark.parametrize("phase", PHASES)
def test_a_deadline_below_the_threshold_abandons_the_sum_and_says_why(phase):
    party = Party().until(phase)
    left = "; client 19 left at masked: test" if phase == "agree" else ""
    for client in range(10, 16):
        party.hear(client, party.answer(client))
    (last,) = party.edge.handle(TimeUp(phase, 10.0))
    assert last == Abandoned(phase, f"6 of 10 clients have answered at {phase}, and 7 are needed{left}")
    assert party.edge.handle(TimeUp(phase, 11.0)) == []


def test_the_sum_is_abandoned_as_soon_as_too_many_have_left():
    party = Party()
    assert [party.lose(client) for client in (10, 11, 12)] == [[], [], []]
    (last,) = party.lose(13)
    assert last.reason.startswith("6 of 10 clients are left at advertise, and 7 are needed; client 11 left")


def test_the_unmask_phase_ends_with_the_threshold():
    party = Party().until("unmask")
    for client in range(10, 16):
        assert party.hear(client, party.answer(client)) == []
    (last,) = party.hear(16, party.answer(16))
    assert isinstance(last, Opened)


@pytest.mark.parametrize("clients", [0, 1, 2, 1001])
def test_a_sum_of_too_few_or_too_many_clients_is_refused(clients):
    with pytest.raises(Refused, match=f"3 to 1000 clients, this one {clients}"):
        Party(terms_of(clients, most_examples=10_000))


def test_a_thousand_clients_may_be_in_a_sum():
    terms = terms_of(1000)
    terms.check()
    assert (terms.threshold, terms.index(1009)) == (667, 1000)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"clients": (1, 3, 2)}, "not sorted"),
        ({"clients": (1, 2, 2)}, "there twice"),
        ({"clients": (-1, 2, 3)}, "at least 0"),
        ({"size": 0}, "1 to"),
        ({"bound": float("inf")}, "number > 0"),
        ({"bound": float("nan")}, "number > 0"),
        ({"most_examples": 2}, "3 to 2\\^31"),
        ({"most_examples": 2**31}, "3 to 2\\^31"),
    ],
)
def test_terms_that_make_no_sense_are_refused(changes, words):
    with pytest.raises(Refused, match=words):
        replace(terms_of(3), **changes).check()


def test_a_client_refuses_a_sum_without_it():
    with pytest.raises(Refused, match="client 5 is not one of this sum"):
        make_client(terms_of(), 5, SEED, None)


def test_three_clients_are_enough_and_must_all_stay():
    assert threshold(3) == 3
    party = Party(terms_of(3))
    assert isinstance(party.copy().finish(), Opened)
    assert isinstance(party.finish(without=(11,)), Abandoned)


def looks_uniform(vector):
    """Return whether bytes, bits and neighbours of a vector are those of a uniform one, by five deviations.

    Chi-square of 256 bytes: 255 expected, with a standard deviation of sqrt(2 * 255) = 22.6.
    """
    counts = np.bincount(vector.view(np.uint8), minlength=256)
    expected = counts.sum() / 256
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    bits = np.unpackbits(vector.view(np.uint8)).reshape(-1, 32).mean(axis=0)
    neighbours = np.corrcoef(vector[:-1].astype(float), vector[1:].astype(float))[0, 1]
    return bool(
        abs(chi_square - 255) < 5 * 22.6
        and np.abs(bits - 0.5).max() < 5 * 0.5 / np.sqrt(vector.size)
        and abs(neighbours) < 5 / np.sqrt(vector.size)
    )


def test_masked_vectors_look_uniform():
    party = Party(terms_of(4, size=100_000)).until("masked")
    party.changes = dict.fromkeys(party.changes, np.zeros(100_000))
    for client in party.terms.clients:
        assert looks_uniform(party.answer(client).vector)


def test_the_check_of_uniformity_holds_for_uniform_vectors_and_sees_others():
    """Six bounds of five deviations: a uniform vector fails with a probability of 4e-5 or less."""
    stream = np.random.default_rng(0)
    uniform = [stream.integers(0, 2**32, 100_002, dtype=np.uint32) for _ in range(20)]
    assert all(map(looks_uniform, uniform))
    assert not looks_uniform(Party(terms_of(4, size=100_000)).vector(10))  # without masks
    one_bit = uniform[0] | (stream.random(100_002) < 0.02).astype(np.uint32)
    assert not looks_uniform(one_bit)
    neighbours = uniform[1].copy()
    neighbours[1::50] = neighbours[::50][: neighbours[1::50].size]
    assert not looks_uniform(neighbours)


def test_every_sum_has_fresh_keys():
    first, second = Party(terms_of(lease_id=3)), Party(terms_of(lease_id=4))
    one, other = first.answer(10), second.answer(10)
    assert len({one.mask_key, one.box_key, other.mask_key, other.box_key}) == 4
    assert one.commitment != other.commitment


def test_reused_keys_would_open_an_old_vector_once_a_client_drops():
    """Client 10 takes part in one sum and drops out of the next. The keys of the second open the first."""
    first = Party(terms_of(4)).until("masked")
    masked = first.answer(10).vector.copy()
    mask_secret, seed = first.clients[10]._keys.mask_secret, first.clients[10]._keys.seed
    # The edge opened client 10's seed in the first sum, as it was a survivor. If client 10 used the same mask
    # key in the second sum and dropped, the edge would get this key, too. Together they open the old vector:
    peers = {advert.client: advert.mask_key for advert in first.edge.roster.adverts}
    opened = masked.copy()
    add_mask(opened, self_key(seed, first.terms, 10), minus=True)
    for other in (11, 12, 13):
        add_mask(opened, pair_key(load_key(mask_secret), peers[other], first.terms, 10, other), minus=True)
    assert opened.tolist() == first.vector(10).tolist()
    # Keys are fresh, so the second sum's key is another one, and opens nothing.
    second = Party(terms_of(4, lease_id=4))
    other_secret = second.clients[10]._keys.mask_secret
    assert public_key(load_key(other_secret)) != public_key(load_key(mask_secret))
    opened = masked.copy()
    add_mask(opened, self_key(seed, first.terms, 10), minus=True)
    for other in (11, 12, 13):
        add_mask(opened, pair_key(load_key(other_secret), peers[other], first.terms, 10, other), minus=True)
    assert opened.tolist() != first.vector(10).tolist()


def test_the_same_pair_has_other_masks_in_another_sum_even_with_the_same_keys():
    secret, peer = load_key(bytes(range(32))), public_key(load_key(bytes(range(1, 33))))
    keys = {
        pair_key(secret, peer, terms_of(**changes), 10, 11)
        for changes in ({}, {"lease_id": 4}, {"round": 1}, {"edge": 2}, {"federation": "other"})
    }
    assert len(keys) == 5


def test_both_sides_of_a_pair_have_the_same_mask():
    one, other = load_key(bytes(range(32))), load_key(bytes(range(1, 33)))
    terms = terms_of()
    assert pair_key(one, public_key(other), terms, 10, 11) == pair_key(other, public_key(one), terms, 11, 10)


def test_a_whole_sum_in_memory():
    party = Party(terms_of(5))
    opened = sum_in_memory(party.terms, SEED, lambda c: None if c == 12 else party.vector(c))
    assert opened.clients == (10, 11, 13, 14)
    lost = {"share": (10,), "masked": (11,)}
    abandoned = sum_in_memory(party.terms, SEED, party.vector, lost)
    assert abandoned.phase == "masked"
    assert abandoned.reason.startswith("3 of 5 clients are left at masked, and 4 are needed")


def test_a_quorum_above_the_threshold_holds_for_the_vectors_in_the_sum():
    """Five of five vectors, though four would open the sum; losing a client afterwards does no harm."""
    party = Party(terms_of(5))
    abandoned = sum_in_memory(party.terms, SEED, lambda c: None if c == 12 else party.vector(c), quorum=5)
    assert abandoned == Abandoned(
        "masked", "4 of 5 clients are left at masked, and 5 are needed; client 12 left at masked: no answer"
    )
    opened = sum_in_memory(party.terms, SEED, party.vector, {"unmask": (12,)}, quorum=5)
    assert opened.clients == (10, 11, 12, 13, 14)


def test_secrets_do_not_show_in_what_is_printed():
    party = Party().until("unmask")
    client = party.clients[10]
    secrets = [client._keys.mask_secret, client._keys.box_secret, client._keys.seed]
    shares = [share for pair in client._held.values() for share in pair]
    reveal = party.answer(10)
    shown = repr([party.ask, party.edge.shares, reveal, party.edge.roster, client, client._keys, party.edge])
    for secret in (*secrets, *shares):
        assert repr(secret)[2:-1] not in shown
        assert secret.hex() not in shown


def test_every_term_is_part_of_every_signature():
    """Whoever adds a term must say here how it may differ."""
    changed = {
        "federation": "other",
        "edge": 2,
        "lease_id": 4,
        "round": 1,
        "clients": tuple(range(10, 19)),
        "size": 6,
        "bound": 2.0,
        "most_examples": 641,
        "noise": 1.0,
        "model": bytes(32),
    }
    assert set(changed) == {each.name for each in fields(Terms)}
    terms = terms_of()
    others = [replace(terms, **{name: value}) for name, value in changed.items()]
    assert len({each.context() for each in (terms, *others)}) == 1 + len(changed)


def test_the_digest_of_a_model_tells_it_from_the_arrays_beside_it():
    arrays = [("a", (1,), b"wxyz")]
    digests = {
        model_digest(b"abcd"),
        model_digest(b"abce"),
        model_digest(b"abcd", arrays),
        model_digest(b"abcd", [("b", (1,), b"wxyz")]),
        model_digest(b"abcd", [("a", (1, 1), b"wxyz")]),
        model_digest(b"abcd", arrays * 2),
        model_digest(b"abcdwxyz"),
    }
    assert len(digests) == 7
    assert {len(each) for each in digests} == {32}
    with pytest.raises(Refused, match="the digest of a model has 32 bytes, this one 31"):
        terms_of(model=bytes(31)).check()
