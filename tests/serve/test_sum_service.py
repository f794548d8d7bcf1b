"""The service of an edge under secure sums: large sums in threads, long lists, clients that die, its log."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("grpc", reason='needs pip install "hiflash[serve]"')
pytest.importorskip("Crypto", reason='needs pip install "hiflash[serve]"')

from hiflash.messages import Abandon
from hiflash.privacy.sums.messages import PHASES, share_hash
from hiflash.serve import edge_sums
from hiflash.serve import wire_pb2 as pb
from hiflash.serve.calls import CallError, Peer, printable
from hiflash.serve.edge_sums import OpenSum
from hiflash.serve.fields import few_fields
from hiflash.serve.sum_wire import read_answer, read_request, read_sum
from hiflash.serve.wire import SLACK, Malformed, Wire
from serve.test_secure_sums import Table, expect_upload


def summing_of(table: Table) -> OpenSum:
    assert table.cluster._round is not None
    assert table.cluster._round.summing is not None
    return table.cluster._round.summing


# Sums that are opened in a thread.


@pytest.fixture
def threads(monkeypatch: Any) -> None:
    """Every sum is large enough for a thread."""
    monkeypatch.setattr(edge_sums, "AT_ONCE", 0)


def slow(table: Table, seconds: float = 0.05) -> None:
    machine = summing_of(table).machine
    true = machine.handle

    def handle(event: Any) -> Any:
        time.sleep(seconds)
        return true(event)

    machine.handle = handle  # type: ignore[method-assign]


@pytest.mark.usefixtures("threads")
def test_nobody_is_refused_who_reveals_while_a_large_sum_is_opened() -> None:
    """Four of five shares open it; the fifth comes while a thread is at work."""

    async def main() -> None:
        table = Table()
        holding, told = await table.until("unmask")
        slow(table)
        said = await asyncio.gather(
            *(table.say(client, table.answer(client, told[client], "unmask")) for client in told)
        )
        assert all(each.ended for each in said)
        expect_upload(await holding, range(5))
        assert not table.cluster.refused["invalid"]

    asyncio.run(main())


@pytest.mark.usefixtures("threads")
def test_a_repeated_vector_that_waits_for_its_turn_counts_once() -> None:
    async def main() -> None:
        table = Table()
        holding, told = await table.until("masked")
        sent = {client: table.answer(client, told[client], "masked") for client in range(5)}
        slow(table)
        said = await asyncio.gather(*(table.say(client, sent[client]) for client in (0, 0, 1, 2, 3, 4)))
        assert all(each.present for each in said)
        await table.phase(dict(zip((0, 1, 2, 3, 4), said[1:], strict=True)), "unmask")
        expect_upload(await holding, range(5))

    asyncio.run(main())


@pytest.mark.usefixtures("threads")
def test_a_late_vector_that_waits_for_its_turn_ends_nobody() -> None:
    async def main() -> None:
        table = Table()
        holding, told = await table.until("masked")
        sent = {client: table.answer(client, told[client], "masked") for client in range(5)}
        slow(table)
        first = [asyncio.create_task(table.say(client, sent[client])) for client in range(4)]
        await asyncio.sleep(0.3)
        up = asyncio.create_task(summing_of(table).time_up(table.cluster.now()))
        await asyncio.sleep(0)
        late = await table.say(4, sent[4])
        assert late.ended
        await up
        now = dict(enumerate(await asyncio.gather(*first)))
        for phase in ("agree", "unmask"):
            now = await table.phase(now, phase)  # type: ignore[arg-type,assignment]
        closed = await holding
        expect_upload(closed, range(4))
        assert closed.measured.delivered == 4  # the late one is not

    asyncio.run(main())


@pytest.mark.usefixtures("threads")
def test_a_call_that_breaks_off_does_not_stop_the_sum() -> None:
    """The client's connection is lost while its answer, the last one, is handled."""

    async def main() -> None:
        table = Table()
        holding, told = await table.until("masked")
        sent = {client: table.answer(client, told[client], "masked") for client in range(5)}
        slow(table)
        calls = [asyncio.create_task(table.say(client, sent[client])) for client in range(5)]
        await asyncio.sleep(0.22)  # the fifth is being handled
        calls[4].cancel()
        now = dict(enumerate(await asyncio.gather(*calls[:4])))
        assert PHASES[now[0].phase] == "unmask"
        await table.phase(now, "unmask")  # type: ignore[arg-type]
        expect_upload(await holding, range(5))

    asyncio.run(main())


# What one client cannot do to its edge.


def test_a_share_of_another_length_is_refused_although_its_hash_is_right() -> None:
    """A client deals itself a short share; put together with the others it was an error of the edge's."""

    async def main() -> None:
        table = Table()
        holding, told = await table.until("share")
        sent = {client: table.answer(client, told[client], "share") for client in range(5)}
        own = next(box for box in sent[0].boxes if box.client == 0)
        own.seed_hash = share_hash(table.machines[0].terms, "seed", 0, 0, b"short")
        said = await asyncio.gather(*(table.say(client, sent[client]) for client in range(5)))
        now = await table.phase(dict(enumerate(said)), "masked")
        lying = table.answer(0, now[0], "unmask")
        next(share for share in lying.seeds if share.client == 0).value = b"short"
        with pytest.raises(CallError, match="its share of client 0's seed has 5 bytes"):
            await table.say(0, lying)
        await table.phase({client: now[client] for client in range(1, 5)}, "unmask")
        expect_upload(await holding, range(5))

    asyncio.run(main())


def test_an_error_inside_a_sum_abandons_it_and_the_edge_goes_on(caplog: Any, monkeypatch: Any) -> None:
    async def main() -> None:
        table = Table()
        holding, told = await table.until("masked")
        machine = summing_of(table).machine
        monkeypatch.setattr(machine, "_check", lambda heard: 1 / 0)
        said = await table.phase(told, "masked")
        assert all(each is not None and each.ended for each in said.values())
        (abandon,) = (await holding).effects
        assert isinstance(abandon, Abandon)
        assert machine._total.size == 0

    asyncio.run(main())
    assert "edge 0 abandons a secure sum: it failed at the edge (ZeroDivisionError)" in caplog.text


def test_a_client_that_dies_after_its_answer_is_not_waited_for() -> None:
    """It is silent while a slow client is still to answer; the next phases must not wait for it."""

    async def main() -> None:
        table = Table(deadline_s=30.0)
        holding, told = await table.until("share")
        sent = {client: table.answer(client, told[client], "share") for client in range(5)}
        first = [asyncio.create_task(table.say(client, sent[client])) for client in range(4)]
        await asyncio.sleep(0.01)
        table.cluster.members[0].seen -= 1e6
        table.cluster.drop_silent()
        await asyncio.sleep(0.6)  # the edge has looked: client 0 has answered, so nothing is lost yet
        said = [await table.say(4, sent[4]), *(await asyncio.gather(*first[1:]))]
        begun = time.monotonic()
        now = await table.phase(dict(zip((4, 1, 2, 3), said, strict=True)), "masked")  # type: ignore[arg-type]
        for phase in ("agree", "unmask"):
            now = await table.phase(now, phase)
        closed = await holding
        assert time.monotonic() - begun < 5
        expect_upload(closed, (1, 2, 3, 4))
        assert closed.measured.lost == (0, 0, 1, 0, 0)
        with pytest.raises(CallError, match="stranger"):
            await first[0]

    asyncio.run(main())


# Lists and bodies have limits.


def test_a_body_of_empty_fields_is_refused_before_it_is_read() -> None:
    """A call as long as a model of 3.5 million values, of nothing but empty boxes."""
    wire = Wire(3_504_554, 0, 100)
    head = pb.Sum(node=1, lease_id=7, phase=1).SerializeToString()
    body = head + b"\x42\x00" * ((wire.most_bytes - len(head)) // 2)
    begun = time.monotonic()
    for kind in (pb.Sum, pb.Deliver, pb.Upload, pb.Task):
        with pytest.raises(Malformed, match="too many fields"):
            wire.read(kind, body)
    assert time.monotonic() - begun < 0.5
    with pytest.raises(Malformed, match="bytes, at most"):
        wire.read(pb.SumTold, body)


def test_only_a_masked_vector_makes_a_call_long() -> None:
    wire = Wire(100_000, 0, 5)
    masked = pb.Sum(phase=PHASES.index("masked"), masked=bytes(400_008))
    assert read_sum(wire, masked.SerializeToString()) == masked
    for sent in (
        pb.Sum(phase=0, masked=bytes(400_008)),
        pb.Sum(phase=1, boxes=[pb.SealedBox(sealed=bytes(400_000))]),
        pb.Sum(phase=PHASES.index("masked"), masked=b"12", refused="x" * 400_000),
    ):
        with pytest.raises(Malformed, match=r"\d+ bytes at \w+ of a secure sum"):
            read_sum(wire, sent.SerializeToString())


def test_a_sum_of_a_thousand_clients_fits() -> None:
    """The longest lists: a roster with certificates, boxes, and shares of both kinds."""
    wire = Wire(1000, 0, 1000)
    advert = pb.Advert(
        client=9, mask_key=bytes(32), box_key=bytes(32), commitment=bytes(32), signature=bytes(72)
    )
    advert.credential = bytes(600)
    box = pb.SealedBox(client=9, sealed=bytes(80), seed_hash=bytes(32), key_hash=bytes(32))
    share = pb.Share(client=9, value=bytes(32))
    roster = pb.SumTold(roster=[advert] * 1000, survivors=range(1000))
    assert wire.read(pb.SumTold, roster.SerializeToString()) == roster
    sent = pb.Sum(phase=1, boxes=[box] * 1000, tags=[share] * 1000, seeds=[share] * 1000)
    assert len(sent.SerializeToString()) > SLACK
    assert read_sum(wire, sent.SerializeToString()) == sent


@pytest.mark.parametrize("name", ["boxes", "tags", "seeds", "keys"])
def test_no_list_is_longer_than_the_sum_has_clients(name: str) -> None:
    kind = pb.SealedBox if name == "boxes" else pb.Share
    phase = {"boxes": 1, "tags": 3}.get(name, 4)
    sent = pb.Sum(phase=phase, **{name: [kind(client=client) for client in range(6)]})
    assert read_answer(sent, 5, 6)
    with pytest.raises(Malformed, match="a list of 6, and the sum has 5 clients"):
        read_answer(sent, 5, 5)


@pytest.mark.parametrize(("name", "phase"), [("roster", 1), ("boxes", 2), ("survivors", 3), ("tags", 4)])
def test_no_list_of_an_edge_is_longer_than_the_sum_has_clients(name: str, phase: int) -> None:
    kinds: dict[str, Any] = {"roster": pb.Advert, "boxes": pb.SealedBox, "tags": pb.Share}
    items = [kinds[name](client=n) for n in range(6)] if name in kinds else range(6)
    told = pb.SumTold(present=True, phase=phase, **{name: items})
    assert read_request(told, 6)
    with pytest.raises(Malformed, match="a list of 6, and the sum has 5 clients"):
        read_request(told, 5)


@pytest.mark.parametrize("seed", range(20))
def test_fields_are_counted_as_protobuf_writes_them(seed: int) -> None:
    stream = np.random.default_rng(seed)
    message = pb.Task(
        present=True,
        lease_id=int(stream.integers(1, 2**62)),
        lr=float(stream.normal()),
        model=stream.bytes(300),
    )
    message.extra.extend(pb.Array(name="a", values=stream.bytes(3)) for _ in range(int(stream.integers(5))))
    fields, body = 4 + len(message.extra), message.SerializeToString()
    assert few_fields(body, fields)
    assert not few_fields(body, fields - 1)


@pytest.mark.parametrize("body", [b"\x08", b"\x0b\x0c", b"\xff" * 12, b"\x08" + b"\x80" * 11, b"\x42\xff"])
def test_what_is_no_message_has_no_few_fields(body: bytes) -> None:
    assert not few_fields(body, 9)


# Logs.


def test_a_client_writes_no_lines_into_the_log_of_its_edge(caplog: Any) -> None:
    async def main() -> None:
        table = Table()
        holding, _ = await table.until("share")
        for client in (0, 1):
            words = "x\n2026-01-01 ERROR client 3 was caught lying\x1b[2J\u202e" + 300 * "y"
            await table.say(client, pb.Sum(node=client, lease_id=7, refused=words))
        await holding

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    (line,) = [record.getMessage() for record in caplog.records if "abandons" in record.getMessage()]
    assert line.isprintable()
    assert (
        r'client 1 left at share: it says: "x\n2026-01-01 ERROR client 3 was caught lying\x1b[2J\u202e'
        in line
    )
    assert 'yyy"' in line
    assert len(line) < 700  # two texts of 200 characters, a few of them escaped


def test_printable_text_stays_as_it_is() -> None:
    assert printable("Größe 3, \"quoted\" 'too'") == "Größe 3, \"quoted\" 'too'"
    assert printable("a\tb\rc\0", 4) == r"a\tb\r"


def test_calls_of_strangers_to_a_sum_change_nothing() -> None:
    async def main() -> None:
        table = Table()
        holding, told = await table.until("masked")
        table.cluster.members[9] = replace(table.cluster.members[0])
        outside = pb.Sum(node=9, lease_id=7, phase=2, masked=bytes(20))
        said = await table.cluster.serve("Sum", Peer("client", 9), outside.SerializeToString())
        assert pb.SumTold.FromString(said).ended
        now = await table.phase(told, "masked")
        await table.phase(now, "unmask")
        expect_upload(await holding, range(5))

    asyncio.run(main())
