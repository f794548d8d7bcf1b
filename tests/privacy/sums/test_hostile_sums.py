"""Lying clients and lying edges: what breaks the protocol is refused and named, and never a wrong sum."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("Crypto", reason='needs pip install "hiflash[serve]"')
pytest.importorskip("cryptography", reason='needs pip install "hiflash[serve]"')

from hiflash.privacy.sums.edge import Abandoned, Ask, Opened, Rejected
from hiflash.privacy.sums.masks import load_key, pair_key, seal
from hiflash.privacy.sums.messages import (
    PHASES,
    Advertise,
    Agreed,
    Box,
    Boxes,
    Masked,
    Refused,
    Reveal,
    Roster,
    Shares,
    Survivors,
    Unmask,
    model_digest,
    share_hash,
)
from hiflash.privacy.sums.shares import deal
from privacy.sums.parties import Party, terms_of

LIAR = 12


def refused(party, said, words, client=LIAR, sender=None):
    """Hand the edge a bad answer of the liar, and check that it is named, harmless and can be put right."""
    honest = party.copy()
    (effect,) = party.hear(client, said, sender)
    assert isinstance(effect, Rejected)
    assert effect.client == (client if sender is None else sender)
    assert words in effect.reason
    assert any(words in line for line in party.edge.refusals)
    last = party.finish()
    assert isinstance(last, Opened)
    assert party.edge._total.tolist() == party.expected(last.clients)
    assert honest.finish().clients == last.clients  # the liar was heard when it answered properly


def cut(data):
    return data[:-1]


def flip(data):
    return bytes([data[0] ^ 1]) + data[1:]


def honest_at(phase):
    party = Party().until(phase)
    return party, party.copy().answer(LIAR)


@pytest.mark.parametrize("phase", PHASES)
def test_an_answer_in_the_name_of_another_is_refused(phase):
    party, said = honest_at(phase)
    refused(party, said, "in the name of client 12", sender=13, client=13)


@pytest.mark.parametrize("phase", PHASES)
def test_a_second_answer_is_refused(phase):
    party, said = honest_at(phase)
    again = party.copy()
    assert party.hear(LIAR, party.answer(LIAR)) == []
    (effect,) = party.hear(LIAR, said)
    assert effect == Rejected(LIAR, phase, "it has answered already")
    effects = []
    for client in list(party.ask.requests):
        if client != LIAR and not effects:
            effects = party.hear(client, party.answer(client))
    while isinstance(effects[0], Ask):
        effects = party.phase()
    there = again.terms.clients[:9] if phase == "agree" else again.terms.clients
    assert party.edge._total.tolist() == party.expected(there)


@pytest.mark.parametrize("phase", PHASES)
def test_an_answer_of_another_phase_is_refused(phase):
    for other in PHASES:
        if other != phase:
            party, said = Party().until(phase), honest_at(other)[1]
            refused(party, said, f"it sends {type(said).__name__} at {phase}")


@pytest.mark.parametrize("phase", PHASES)
def test_a_client_that_is_not_asked_is_refused(phase):
    party, said = honest_at(phase)
    refused(party, replace(said, client=99), f"it is not asked at {phase}", client=99)


P = 2**255 - 19
SMALL = [
    0,
    1,
    P - 1,
    P,  # 0 and 1 again, written otherwise
    P + 1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,  # of order 8
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
]


def signed(advert, party):
    """Return an advert with the liar's own signature: it is a client like the others."""
    return replace(advert, signature=party.clients[LIAR].signer.sign(advert.content(party.terms)))


@pytest.mark.parametrize("which", ["mask_key", "box_key"])
@pytest.mark.parametrize("point", SMALL)
@pytest.mark.parametrize("top", [0, 1 << 255])
def test_a_key_of_small_order_is_refused_by_the_edge_and_named(which, point, top):
    """Passed on, it would make every other client leave the sum and blame its edge."""
    party, said = honest_at("advertise")
    bad = signed(replace(said, **{which: (point + top).to_bytes(32, "little")}), party)
    refused(party, bad, "one of its keys is a point of small order, which gives no secret")


@pytest.mark.parametrize("which", ["mask_key", "box_key"])
def test_an_edge_that_passes_on_a_key_of_small_order_is_told_whose_it_is(which):
    party = Party().until("share")
    roster = next(iter(party.ask.requests.values()))
    adverts = [
        signed(replace(advert, **{which: bytes(32)}), party) if advert.client == LIAR else advert
        for advert in roster.adverts
    ]
    with pytest.raises(Refused, match="client 12: one of its keys is a point of small order"):
        party.clients[10].share(Roster(tuple(adverts)))


@pytest.mark.parametrize("which", ["mask_key", "box_key"])
def test_a_key_that_another_client_has_advertised_is_refused_and_named(which):
    """Two clients with one key would make all others leave."""
    party, said = honest_at("advertise")
    theirs = party.answer(10)
    party.hear(10, theirs)
    honest = party.copy()
    (effect,) = party.hear(LIAR, signed(replace(said, **{which: theirs.box_key}), party))
    assert effect == Rejected(LIAR, "advertise", "one of its keys is also one of client 10")
    assert honest.hear(LIAR, said) == []
    assert party.hear(LIAR, said) == []  # properly this time


@pytest.mark.parametrize("phase", ["advertise", "unmask"])
def test_an_answer_of_an_older_sum_is_refused(phase):
    """Boxes, masked vectors and tags carry no proof that the edge can check: see the next tests."""
    old = Party(terms_of(lease_id=2)).until(phase)
    words = {"advertise": "signature is wrong", "unmask": "is wrong"}
    refused(Party().until(phase), old.answer(LIAR), words[phase])


def with_tags_of_an_older_sum(liars):
    """Nine clients survive, of which some hand in tags of an older sum."""
    old, party = Party(terms_of(lease_id=2)).until("agree"), Party().until("agree")
    for client in list(party.ask.requests):
        party.hear(client, (old if client in liars else party).answer(client))
        if client in liars:
            party.clients[client].agree(Survivors(party.terms.clients[:9]))
    return party


def test_tags_of_an_older_sum_count_for_nobody_but_do_no_harm_while_enough_others_agree():
    party = with_tags_of_an_older_sum((LIAR, 13))
    assert isinstance(party.finish(), Opened)
    assert party.edge._total.tolist() == party.expected(party.terms.clients[:9])


def test_with_too_few_true_tags_nobody_reveals_anything_and_the_liar_is_named():
    party = with_tags_of_an_older_sum((LIAR, 13, 14))
    for client in (10, 11, 16):
        with pytest.raises(
            Refused, match="6 clients have seen the same, and 7 are needed; the tag of client 12"
        ):
            party.answer(client)


def test_boxes_of_an_older_sum_cannot_be_opened_and_their_sender_is_named():
    old, party = Party(terms_of(lease_id=2)).until("share"), Party().until("share")
    for client in party.terms.clients:
        effects = party.hear(client, old.answer(LIAR) if client == LIAR else party.answer(client))
    (ask,) = effects
    for client in party.terms.clients:
        if client != LIAR:
            with pytest.raises(Refused, match=f"client 12: its box for client {client} cannot be opened"):
                party.clients[client].receive(ask.requests[client])


def test_a_masked_vector_of_an_older_sum_fails_the_check_of_the_sum():
    old, party = (
        Party(terms_of(lease_id=2, size=50)).until("masked"),
        Party(terms_of(size=50)).until("masked"),
    )
    effects = []
    for client in party.terms.clients:
        effects = party.hear(client, old.answer(LIAR) if client == LIAR else party.answer(client))
    assert isinstance(effects[0], Ask)
    party.clients[LIAR].receive(party.edge._boxes(LIAR))
    party.clients[LIAR].mask(party.vector(LIAR))
    last = party.finish()
    assert isinstance(last, Abandoned)
    assert "one of them lies" in last.reason


@pytest.mark.parametrize("name", ["mask_key", "box_key", "commitment", "signature"])
@pytest.mark.parametrize("change", [cut, flip, lambda data: b"", lambda data: data + b"x"])
def test_a_changed_advert_is_refused(name, change):
    party, said = honest_at("advertise")
    words = "signature is wrong" if name == "signature" or change is flip else "32 bytes"
    refused(party, replace(said, **{name: change(getattr(said, name))}), words)


def test_one_key_for_both_uses_is_refused():
    party, said = honest_at("advertise")
    refused(party, replace(said, box_key=said.mask_key), "two different ones")


@pytest.mark.parametrize("change", [cut, lambda data: b"", lambda data: data + b"x"])
@pytest.mark.parametrize("name", ["sealed", "seed_hash", "key_hash"])
def test_a_box_of_another_length_is_refused(name, change):
    party, said = honest_at("share")
    box = said.boxes[15]
    boxes = dict(said.boxes) | {15: replace(box, **{name: change(getattr(box, name))})}
    refused(party, Shares(LIAR, boxes), "box for client 15 has the wrong length")


def test_boxes_for_others_than_the_roster_are_refused():
    party, said = honest_at("share")
    some = {receiver: box for receiver, box in said.boxes.items() if receiver != 15}
    refused(party, Shares(LIAR, some), "boxes for others")
    party, said = honest_at("share")
    refused(party, Shares(LIAR, dict(said.boxes) | {99: said.boxes[15]}), "boxes for others")


@pytest.mark.parametrize(
    "vector",
    [np.zeros(6, np.uint32), np.zeros(8, np.uint32), np.zeros(7, np.float32), np.zeros((7, 1), np.uint32)],
    ids=["short", "long", "floats", "matrix"],
)
def test_a_masked_vector_of_another_form_is_refused(vector):
    refused(Party().until("masked"), Masked(LIAR, vector), "a masked vector has 7 words")


@pytest.mark.parametrize("change", [cut, lambda data: b"", lambda data: data + b"x"])
def test_a_tag_of_another_length_is_refused(change):
    party, said = honest_at("agree")
    refused(party, Agreed(LIAR, dict(said.tags) | {15: change(said.tags[15])}), "of another length")


def test_tags_for_others_than_the_survivors_are_refused():
    for tags in ({}, {LIAR: bytes(32)}, {99: bytes(32)}):
        party, said = honest_at("agree")
        refused(party, Agreed(LIAR, dict(said.tags) | tags if tags else tags), "tags for others")


@pytest.mark.parametrize("change", [cut, flip, lambda data: b"", lambda data: bytes(32)])
def test_a_wrong_share_is_refused_and_its_holder_named(change):
    party, said = honest_at("unmask")
    refused(
        party, Reveal(LIAR, dict(said.seeds) | {15: change(said.seeds[15])}, said.keys), "client 15's seed"
    )
    party = Party().until("masked")
    party.phase(without=(15,))
    party.until("unmask")
    said = party.copy().answer(LIAR)
    wrong = Reveal(LIAR, said.seeds, {15: change(said.keys[15])})
    refused(party, wrong, "its share of client 15's key is wrong")


@pytest.mark.parametrize("length", [0, 5, 31, 33, 64])
def test_a_share_of_another_length_is_refused_although_its_hash_is_right(length):
    """A client may say any hash for the share that it deals itself: nobody else opens that box."""
    party = Party().until("share")
    for client in party.terms.clients:
        said = party.answer(client)
        if client == LIAR:
            seed_hash = share_hash(party.terms, "seed", LIAR, LIAR, bytes(length))
            said = Shares(LIAR, {**said.boxes, LIAR: replace(said.boxes[LIAR], seed_hash=seed_hash)})
        party.hear(client, said)
    party.until("unmask")
    said = party.answer(LIAR)
    (effect,) = party.hear(LIAR, Reveal(LIAR, {**said.seeds, LIAR: bytes(length)}, said.keys))
    assert effect == Rejected(LIAR, "unmask", f"its share of client 12's seed has {length} bytes")
    for client in (10, 11, *range(13, 18)):
        effects = party.hear(client, party.answer(client))
    (last,) = effects
    assert isinstance(last, Opened)
    assert party.edge._total.tolist() == party.expected(party.terms.clients)


def test_clients_that_begin_with_other_models_take_no_keys_of_each_other():
    """An edge may give one client another model than all others, or the arrays beside it."""
    one, other = (Party(terms_of(model=model_digest(model))).until("share") for model in (b"1234", b"5678"))
    adverts = [*one.ask.requests[10].adverts[:9], other.ask.requests[10].adverts[9]]
    for client in (10, 18):
        with pytest.raises(Refused, match="client 19: its signature is wrong"):
            one.clients[client].share(Roster(tuple(adverts)))
    adverts = [*one.ask.requests[10].adverts[:9], *other.ask.requests[10].adverts[9:]]
    with pytest.raises(Refused, match="client 10: its signature is wrong"):
        other.clients[19].share(Roster(tuple(adverts)))


def test_shares_of_others_than_asked_for_are_refused():
    party, said = honest_at("unmask")
    some = {client: share for client, share in said.seeds.items() if client != 15}
    refused(party, Reveal(LIAR, some, {}), "shares of others")
    party, said = honest_at("unmask")
    refused(party, Reveal(LIAR, said.seeds, {15: bytes(32)}), "shares of others")


def test_a_liar_among_more_than_enough_does_not_stop_the_sum():
    party = Party().until("unmask")
    said = party.answer(LIAR)
    wrong = Reveal(LIAR, {client: flip(share) for client, share in said.seeds.items()}, said.keys)
    assert isinstance(party.hear(LIAR, wrong)[0], Rejected)
    others = [client for client in party.terms.clients if client != LIAR]
    effects = [party.hear(client, party.answer(client)) for client in others[:7]]
    assert isinstance(effects[-1][0], Opened)
    assert party.edge._total.tolist() == party.expected(party.terms.clients)


def bad_dealer(party, kind, replaced):
    """Let the liar deal other shares than those of its secret, under hashes that fit them."""
    terms, liar = party.terms, party.clients[LIAR]
    roster, said, boxes = party.ask.requests[LIAR], party.answer(LIAR), {}
    dealt = dict(zip(("seed", "key"), liar._keys.shares(7, 10), strict=True))
    dealt[kind] = deal(bytes(32), 7, 10)
    for receiver in said.boxes:
        seed, key = (dealt[name][terms.index(receiver) - 1] for name in ("seed", "key"))
        about, sealed = roster.digest(terms), b""
        if receiver != LIAR:
            sealed = seal(liar._common[receiver], terms, LIAR, receiver, about, seed + key)
        else:
            liar._own = (seed, key)
        hashes = [share_hash(terms, name, LIAR, receiver, s) for name, s in (("seed", seed), ("key", key))]
        boxes[receiver] = Box(sealed, *hashes)
    return Shares(LIAR, boxes if replaced is None else boxes | replaced)


@pytest.mark.parametrize("kind", ["seed", "key"])
def test_shares_that_do_not_give_the_secret_abandon_the_sum_and_name_their_dealer(kind):
    party = Party().until("share")
    effects = []
    for client in party.terms.clients:
        said = bad_dealer(party, kind, None) if client == LIAR else party.answer(client)
        effects = party.hear(client, said)
    assert isinstance(effects[0], Ask)
    last = party.finish(without=() if kind == "seed" else (LIAR,))
    assert isinstance(last, Abandoned)
    assert last.phase == "unmask"
    assert last.reason.startswith("client 12: the shares that it dealt do not give the")


def test_shares_other_than_their_hashes_are_refused_by_their_holder():
    party = Party().until("masked")
    boxes = dict(party.ask.requests[10].boxes)
    boxes[LIAR] = replace(boxes[LIAR], key_hash=flip(boxes[LIAR].key_hash))
    with pytest.raises(Refused, match="client 12: the shares for client 10 are others than it said"):
        party.clients[10].receive(Boxes(boxes))


# The edge lies.


def lied_to(party, method, request, words):
    """Let client 10 get a request of a lying edge; it refuses, and goes on when it gets the true one."""
    client = party.clients[10]
    before = (client.phase, dict(client._held))
    with pytest.raises(Refused, match=words):
        getattr(client, method)(request)
    assert before == (client.phase, dict(client._held))
    last = party.finish()
    assert isinstance(last, Opened)
    assert party.edge._total.tolist() == party.expected(last.clients)


def changed_rosters():
    party = Party().until("share")
    adverts = party.ask.requests[10].adverts
    other = Party(terms_of(lease_id=2)).until("share").ask.requests[10].adverts
    swapped = replace(adverts[5], mask_key=adverts[6].mask_key)
    mine = replace(adverts[0], mask_key=adverts[6].mask_key)
    return [
        (adverts[1:], "the roster are without client 10"),
        (adverts[:6], "the roster are 6, and 7 are needed"),
        (adverts[::-1], "not sorted"),
        ((*adverts, adverts[-1]), "there twice"),
        ((*adverts, replace(adverts[-1], client=99)), "client 99, which was not there before"),
        ((*adverts[:5], swapped, *adverts[6:]), "client 15: its signature is wrong"),
        ((mine, *adverts[1:]), "other keys of client 10 than its own"),
        ((*adverts[:5], other[5], *adverts[6:]), "client 15: its signature is wrong"),
        (
            (*adverts[:5], Advertise(15, adverts[6].mask_key, adverts[6].box_key, bytes(32)), *adverts[6:]),
            "client 15: its signature is wrong",
        ),
    ]


@pytest.mark.parametrize("case", range(9))
def test_a_client_refuses_a_roster_that_lies_about_its_peers(case):
    adverts, words = changed_rosters()[case]
    lied_to(Party().until("share"), "share", Roster(tuple(adverts)), words)


def test_a_client_that_claims_the_key_of_another_is_noticed():
    """Its signature is right, so only the doubled key tells."""
    party = Party().until("share")
    adverts = list(party.ask.requests[10].adverts)
    thief = replace(adverts[5], mask_key=adverts[6].mask_key)
    thief = replace(thief, signature=party.clients[15].signer.sign(thief.content(party.terms)))
    lied_to(party, "share", Roster((*adverts[:5], thief, *adverts[6:])), "the same key twice")


def test_a_client_refuses_boxes_that_are_not_for_it():
    party = Party().until("masked")
    mine, others = party.ask.requests[10].boxes, party.ask.requests[11].boxes
    for boxes, words in [
        ({**mine, 15: others[15]}, "client 15: its box for client 10 cannot be opened"),
        ({**mine, 15: mine[16]}, "client 15: its box for client 10 cannot be opened"),
        ({**mine, 15: replace(mine[15], sealed=flip(mine[15].sealed))}, "cannot be opened"),
        ({**mine, 15: replace(mine[15], sealed=b"")}, "cannot be opened"),
        (dict(list(mine.items())[:5]), "the senders are 6, and 7 are needed"),
        ({**mine, 99: mine[15]}, "client 99, which was not there before"),
    ]:
        lied_to(party.copy(), "receive", Boxes(boxes), words)


def test_a_client_refuses_survivors_that_cannot_be():
    party = Party().until("agree")
    everyone = party.terms.clients[:9]
    for survivors, words in [
        (everyone[1:], "without client 10"),
        (everyone[:6], "are 6, and 7 are needed"),
        ((*everyone, 99), "client 99"),
        (everyone[::-1], "not sorted"),
    ]:
        lied_to(party.copy(), "agree", Survivors(survivors), words)


def test_a_client_signs_one_list_of_survivors_only():
    party = Party().until("agree")
    client = party.clients[10]
    client.agree(Survivors(party.terms.clients))
    with pytest.raises(Refused, match="client 10 is at unmask, and was asked to agree"):
        client.agree(Survivors(party.terms.clients[:9]))
    with pytest.raises(Refused, match="1 clients have seen the same, and 7 are needed"):
        client.reveal(Unmask({}))  # nor does it reveal the seeds of all instead


def test_a_client_that_has_revealed_the_seeds_of_all_agrees_on_nothing_else():
    party = Party().until("unmask")
    client = party.clients[10]
    client.reveal(Unmask({}))
    with pytest.raises(Refused, match="client 10 is at done, and was asked to agree"):
        client.agree(Survivors(party.terms.clients[:9]))


@pytest.mark.parametrize("loss", [False, True])
def test_a_client_reveals_once_and_never_both_kinds_of_one_client(loss):
    party = Party().until("unmask", loss=loss)
    client, asked = party.clients[10], party.ask.requests[10]
    said = client.reveal(asked)
    assert not set(said.seeds) & set(said.keys)
    assert set(said.seeds) | set(said.keys) == set(party.terms.clients)
    for again in (asked, Unmask({})):
        with pytest.raises(Refused, match="client 10 is at done, and was asked to unmask"):
            client.reveal(again)
    assert client._held == {}


def test_a_client_reveals_nothing_without_enough_true_tags():
    party = Party().until("unmask", loss=True)
    tags = dict(party.ask.requests[10].tags)
    few = dict(list(tags.items())[:5])
    old = Party(terms_of(lease_id=2)).until("unmask", loss=True).ask.requests[10].tags
    others = party.ask.requests[11].tags
    for shown, words in [
        (few, "6 clients have seen the same, and 7 are needed$"),
        (few | {16: tags[17]}, "6 clients .*; the tag of client 16 is wrong"),
        (few | {16: old[16]}, "the tag of client 16 is wrong"),
        (few | {16: others[16]}, "the tag of client 16 is wrong"),
        (few | {16: b""}, "the tag of client 16 is wrong"),
        (tags | {99: tags[15]}, "tags of others than the survivors"),
        (tags | {10: tags[15]}, "tags of others than the survivors"),
    ]:
        lied_to(party.copy(), "reveal", Unmask(shown), words)


def test_an_edge_that_tells_two_stories_gets_no_shares():
    """It names other survivors to some clients than to others. Neither list gets seven tags."""
    party = Party().until("agree")
    everyone = party.terms.clients[:9]
    stories = (everyone, everyone[:8])
    said = {
        client: party.clients[client].agree(Survivors(stories[client % 2])).tags for client in everyone[:8]
    }
    for client in everyone[:8]:
        tags = {other: shown[client] for other, shown in said.items() if other != client}
        with pytest.raises(Refused, match="4 clients have seen the same, and 7 are needed"):
            party.clients[client].reveal(Unmask(tags))


def test_an_edge_that_shows_two_rosters_gets_no_shares():
    """Client 10 sees client 19 in its roster, the others do not: boxes for and of client 10 stay closed."""
    party = Party().until("share")
    adverts = party.ask.requests[10].adverts
    boxes = {10: party.clients[10].share(Roster(adverts))}
    boxes |= {client: party.clients[client].share(Roster(adverts[:9])) for client in range(11, 19)}
    for client in range(10, 19):
        given = Boxes({sender: sent.boxes[client] for sender, sent in boxes.items() if sender != client})
        with pytest.raises(Refused, match="cannot be opened"):
            party.clients[client].receive(given)


def test_a_client_does_not_mask_before_its_boxes_have_come():
    party = Party().until("masked")
    with pytest.raises(Refused, match="client 10 has no boxes yet"):
        party.clients[10].mask(party.vector(10))
    party.clients[10].receive(party.ask.requests[10])
    with pytest.raises(ValueError, match="7 words"):
        party.clients[10].mask(np.zeros(3, np.uint32))
    with pytest.raises(Refused, match="has its boxes already"):
        party.clients[10].receive(party.ask.requests[10])


def test_a_key_of_small_order_is_refused():
    with pytest.raises(Refused, match="cannot be used"):
        pair_key(load_key(bytes(range(32))), bytes(32), terms_of(), 10, 11)
