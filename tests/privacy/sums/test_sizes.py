"""The bytes that the books count are those of the messages."""

import dataclasses

import pytest

pytest.importorskip("Crypto", reason='needs pip install "hiflash[serve]"')

from hiflash.privacy.sums.messages import PHASES, Terms
from hiflash.privacy.sums.sizes import CREDENTIAL_BYTES, SIGNATURE_BYTES, PhaseBytes, ended_at, round_bytes
from privacy.sums.parties import Party, terms_of


def content_bytes(value, name=""):
    """Return the bytes of a message: 4 for a number of a client, and what signatures have when deployed."""
    if name == "signature":
        return SIGNATURE_BYTES
    if name == "credential":
        return CREDENTIAL_BYTES
    if isinstance(value, Terms):
        return 4 * len(value.clients)
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, int):
        return 4
    if hasattr(value, "nbytes"):
        return value.nbytes
    if isinstance(value, dict):
        return sum(4 + content_bytes(item, name) for item in value.values())
    if isinstance(value, tuple):
        return sum(content_bytes(item) for item in value)
    fields = [field.name for field in dataclasses.fields(value)]
    return sum(content_bytes(getattr(value, field), field) for field in fields)


@pytest.mark.parametrize(
    "lost", [(0, 0, 0, 0, 0), (1, 1, 1, 0, 0), (0, 0, 3, 0, 0), (0, 1, 1, 1, 0), (0, 0, 4, 0, 0)]
)
def test_counted_bytes_are_those_of_the_messages(lost):
    party, first, counted = Party(terms_of(size=20)), 10, {}
    for phase, count in zip(PHASES, lost, strict=True):
        if phase == "agree" and not lost[2]:
            counted[phase] = PhaseBytes(0, 0)  # nobody was lost, so there is nothing to agree on
            continue
        assert party.ask.phase == phase
        gone = range(first, first + count)
        first += count
        down = sum(content_bytes(request) for request in party.ask.requests.values())
        answers = {client: party.answer(client) for client in party.ask.requests if client not in gone}
        # The number of the sender is known from the connection, and values of models are counted elsewhere.
        up = sum(content_bytes(answer) - 4 - (80 if phase == "masked" else 0) for answer in answers.values())
        if phase == "advertise":
            up += 4 * len(answers)  # it is part of the advert
        if phase == "share":
            up += 80 * len(answers)  # a client seals no box for itself; the books count one
        counted[phase] = PhaseBytes(down, up)
        effects = []
        for client in party.ask.requests.copy():
            if not effects:
                effects = party.lose(client) if client in gone else party.hear(client, answers[client])
        if phase == ended_at(10, lost):
            break
    assert counted == round_bytes(10, lost)


def test_ten_clients_by_hand():
    assert round_bytes(10, (0,) * 5) == {
        # 10 numbers down; a number, two keys, a commitment, a signature and a certificate up.
        "advertise": PhaseBytes(10 * 40, 10 * (4 + 96 + 72 + 512)),
        # ten adverts down; ten numbers and boxes of 64 + 16 bytes with two hashes up.
        "share": PhaseBytes(10 * 6840, 10 * 10 * (4 + 80 + 64)),
        # nine boxes down; two words more than the model has up.
        "masked": PhaseBytes(10 * 9 * 148, 10 * 8),
        "agree": PhaseBytes(0, 0),
        "unmask": PhaseBytes(0, 10 * 10 * 36),  # ten shares of 32 bytes up
    }
    # With one lost: who survived down, a tag of 32 bytes for each other client up, and down to the others.
    lost = round_bytes(10, (0, 0, 1, 0, 0))
    assert lost["agree"] == PhaseBytes(9 * 36, 9 * 8 * 36)
    assert lost["unmask"] == PhaseBytes(9 * 8 * 36, 9 * 10 * 36)
    assert list(round_bytes(2, (0,) * 5)) == ["advertise"]  # an edge with two clients does not go on
