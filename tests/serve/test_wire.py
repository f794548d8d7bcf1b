"""Calls survive the way through bytes, and hostile bytes only ever raise `Malformed`."""

import math
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hiflash.messages import (
    Abandon,
    Cancel,
    CheckIn,
    EdgeCosts,
    Grant,
    Proceed,
    Progress,
    Refuse,
    Upload,
    Verdict,
)
from hiflash.serve import wire_pb2 as pb
from hiflash.serve.models import EdgeModels, model_bytes, read_model
from hiflash.serve.wire import SLACK, Asking, Malformed, Measured, Wire, array_messages
from hiflash.weights import Spec

WIRE = Wire(3)
MODEL = np.array([1.5, -2.0, 0.25], np.float32)
ASK = CheckIn(2, 7, EdgeCosts(1.0, 2.0, 0.1, 0.5, 0.2), 4.0)
ROUNDS = [Measured(5, 4, 15, 1.25, 0.5, 0.75, 0.125, (3, 7))]
EXTRA = {"change": np.array([[1.0, 2.0]], np.float32)}
LAST = Upload(2, 3, MODEL, 40, ASK, 4.0, 6.5, EXTRA)
ASKING = Asking(2, 40, 1)


def upload_of(sent: pb.Upload, now: float) -> Upload:
    return WIRE.upload(sent, read_model(sent.model, 3), now)


def test_an_upload_comes_back_with_its_check_in_and_its_rounds():
    sent = pb.Upload.FromString(WIRE.work(LAST, model_bytes(MODEL), ROUNDS, ASKING, {"loss": 0.5}))
    got = upload_of(sent, 9.0)
    assert (got.edge, got.lease_id, got.examples, got.now) == (2, 3, 40, 9.0)
    assert got.weights.tobytes() == MODEL.tobytes()
    assert got.check_in == ASK.at(9.0)
    assert WIRE.measured(sent.rounds) == ROUNDS
    assert (sent.check_in.rounds, sent.check_in.examples, sent.check_in.holds) == (2, 40, 1)
    assert (got.steps, got.extra["change"].tolist()) == (6.5, [[1.0, 2.0]])
    assert WIRE.metrics(sent.metrics) == {"loss": 0.5}


def test_abandoned_leases_and_questions_come_back():
    abandoned = pb.Lease.FromString(WIRE.lease(Abandon(2, 3, ASK, 0.0), ROUNDS, ASKING))
    assert WIRE.abandon(abandoned, 9.0) == Abandon(2, 3, ASK.at(9.0), 9.0)
    assert WIRE.measured(abandoned.rounds) == ROUNDS
    asked = pb.Lease.FromString(WIRE.lease(Progress(2, 3, 0.0), [], ASKING))
    assert WIRE.progress(asked, 9.0) == Progress(2, 3, 9.0)


def test_answers_come_back_the_verdict_before_the_grant():
    told = [Grant(2, 7, 4, 11, math.inf, MODEL, 1.0), Verdict(2, 3, "applied", 1, 11, "", 1.0)]
    answer = pb.Answer.FromString(WIRE.answer(told, model=(0, model_bytes(MODEL))))
    model = EdgeModels(Spec((("w", (3,)),))).receive(answer.grant.form, answer.grant.model, 4)
    verdict, grant = WIRE.answers(2, 3, answer, model, 9.0)
    assert verdict == Verdict(2, 3, "applied", 1, 11, "", 9.0)
    assert (grant.lease_id, grant.base_version, grant.threshold) == (4, 11, math.inf)
    assert grant.weights.tobytes() == MODEL.tobytes()
    others = [Refuse(2, 7, "waited", 0.5, 1.0), Proceed(2, 3, 1.0), Cancel(2, 3, 1.0)]
    for one in others:
        (got,) = WIRE.answers(2, 3, pb.Answer.FromString(WIRE.answer([one])), None, 1.0)
        assert got == one


@pytest.mark.parametrize("size", [0, 8, 11, 13, 16])
def test_a_model_of_another_length_is_refused(size):
    with pytest.raises(Malformed, match="expected 12"):
        read_model(bytes(size), 3)


def test_a_call_over_the_cap_is_refused_before_it_is_parsed():
    assert WIRE.most_bytes == 15 + SLACK  # 1.25 * 12 bytes of a model
    with pytest.raises(Malformed, match="are allowed"):
        WIRE.read(pb.Upload, bytes(WIRE.most_bytes + 1))


def test_a_check_in_for_another_node_is_refused():
    sent = pb.Upload(node=1, model=MODEL.tobytes(), check_in=pb.CheckIn(node=2))
    with pytest.raises(Malformed, match="node 1 checks in for node 2"):
        upload_of(sent, 0.0)


def test_too_many_rounds_or_too_large_numbers_are_refused():
    with pytest.raises(Malformed, match="rounds"):
        WIRE.measured([pb.Measured()] * 1_001)
    with pytest.raises(Malformed, match="larger than"):
        WIRE.progress(pb.Lease(lease_id=2**60), 0.0)


@pytest.mark.parametrize(
    "sent",
    [
        [pb.Array(name="c", shape=[3], values=bytes(8))],
        [pb.Array(name="", shape=[2], values=bytes(8))],
        [pb.Array(name="x" * 81, shape=[2], values=bytes(8))],
        [pb.Array(name="c", shape=[2], values=bytes(8))] * 2,
        [pb.Array(name="c", shape=[1] * 9, values=bytes(4))],
        [pb.Array(name="c", shape=[2**31, 2**31, 0], values=b"")],
        [pb.Array(name=str(n)) for n in range(65)],
    ],
)
def test_arrays_that_do_not_fit_their_shape_or_name_are_refused(sent):
    with pytest.raises(Malformed):
        WIRE.arrays(sent)


def test_arrays_keep_their_shape_also_that_of_a_number():
    sent = array_messages({"a": np.zeros((2, 1), np.float32), "b": np.float32(7).reshape(())})
    got = WIRE.arrays(sent)
    assert got["a"].shape == (2, 1)
    assert (got["b"].shape, float(got["b"])) == ((), 7.0)


@pytest.mark.parametrize("kind", [pb.CheckIn, pb.Hello, pb.Fetch, pb.Beat, pb.Place, pb.Lease])
def test_calls_without_a_model_are_small(kind):
    with pytest.raises(Malformed, match="are allowed"):
        Wire(10**6).read(kind, bytes(SLACK + 1))


def test_impossible_seconds_count_as_none():
    (got,) = WIRE.measured([pb.Measured(asked=1, compute_s=math.nan, send_s=-1.0)])
    assert (got.compute_s, got.send_s) == (0.0, 0.0)


READERS = {
    pb.CheckIn: lambda sent: WIRE.check_in(sent, 0.0),
    pb.Upload: lambda sent: (
        upload_of(sent, 0.0),
        WIRE.measured(sent.rounds),
        WIRE.metrics(sent.metrics),
    ),
    pb.Lease: lambda sent: (WIRE.abandon(sent, 0.0), WIRE.progress(sent, 0.0)),
    pb.Deliver: lambda sent: WIRE.update(sent, read_model(sent.model, 3), 0.0),
    pb.Answer: lambda sent: WIRE.answers(0, 1, sent, MODEL, 0.0),
    pb.Hello: lambda sent: sent.node,
    pb.Fetch: lambda sent: sent.node,
    pb.Task: lambda sent: (read_model(sent.model, 3), WIRE.arrays(sent.extra)),
}


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(list(READERS)), st.binary(max_size=200))
def test_random_bytes_are_read_or_malformed(kind, body):
    with suppress(Malformed):
        READERS[kind](WIRE.read(kind, body))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_truncated_and_flipped_uploads_are_read_or_malformed(data):
    body = bytearray(WIRE.work(LAST, model_bytes(MODEL), ROUNDS, ASKING))
    place = data.draw(st.integers(0, len(body) - 1))
    body[place] ^= 1 << data.draw(st.integers(0, 7))
    cut = bytes(body[: data.draw(st.integers(0, len(body)))])
    with suppress(Malformed):
        READERS[pb.Upload](WIRE.read(pb.Upload, cut))
