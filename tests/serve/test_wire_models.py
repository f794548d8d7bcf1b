"""Both ends of the WAN have the same model, bit for bit, under every codec and after every loss."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hiflash.core.cloud import Lease
from hiflash.core.compression import Downlink, Half, Int8, TopK, Uplink
from hiflash.messages import Grant
from hiflash.serve.models import CHANGED, CODED, RAW, CloudModels, EdgeModels
from hiflash.serve.wire import Malformed
from hiflash.weights import Spec

SIZE = 6
SPEC = Spec((("a", (4,)), ("b.running_var", (2,))))
CODECS = {"none": None, "fp16": Half(SIZE), "int8": Int8([4, 2]), "topk": TopK(SIZE, 0.34)}


def lease_of(number: int, base: np.ndarray, downlink: Downlink) -> Lease:
    return Lease(3, number, number, 0, base, downlink.send(3, base), 1.0, 0.0, 1.0)


def grant_of(lease: Lease) -> Grant:
    return Grant(3, lease.request_id, lease.lease_id, 0, 1.0, lease.received, 0.0)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(CODECS)), st.sampled_from(sorted(CODECS)), st.integers(0, 2**32 - 1))
def test_the_wire_gives_what_the_core_computes(down, up, seed):
    """The simulator's `Downlink` and `Uplink` are the reference; grants get lost and verdicts differ."""
    stream = np.random.default_rng(seed)
    downlink, uplink = Downlink(CODECS[down]), Uplink(CODECS[up], SPEC)
    cloud, edge = CloudModels(SPEC, CODECS[down], CODECS[up]), EdgeModels(SPEC, CODECS[down], CODECS[up])
    for number in range(1, 6):
        base = stream.normal(size=SIZE).astype(np.float32)
        lease = lease_of(number, base, downlink)
        sent = cloud.send(grant_of(lease), lease, edge.holds)
        if stream.random() < 0.4:  # it got lost: the cloud repeats it
            sent = cloud.send(grant_of(lease), lease, edge.holds)
        received = edge.receive(*sent, number)
        assert received.tobytes() == lease.received.tobytes()
        model = received + stream.normal(size=SIZE).astype(np.float32)
        expected, left = uplink.send(3, model, lease.received, lease.base)
        assert cloud.receive(edge.send(model), lease).tobytes() == expected.tobytes()
        accepted = bool(stream.random() < 0.6)
        edge.settle(accepted=accepted)
        if accepted and left is not None:
            uplink.keep(3, left)


def test_top_k_sends_changes_to_an_edge_that_holds_the_last_copy_and_whole_models_otherwise():
    downlink, cloud = Downlink(CODECS["topk"]), CloudModels(SPEC, CODECS["topk"], None)
    first = lease_of(1, np.arange(SIZE, dtype=np.float32), downlink)
    second = lease_of(2, np.arange(SIZE, dtype=np.float32) * 2, downlink)
    third = lease_of(3, np.arange(SIZE, dtype=np.float32) * 3, downlink)
    assert cloud.send(grant_of(first), first, 0)[0] == RAW
    form, body = cloud.send(grant_of(second), second, 1)
    assert (form, len(body)) == (CHANGED, 8 * 3)  # 3 of 6 values: 34 %, rounded up
    assert cloud.send(grant_of(third), third, 1)[0] == RAW  # the edge still has the copy of lease 1


def test_a_whole_codec_needs_no_copy():
    downlink, cloud = Downlink(CODECS["fp16"]), CloudModels(SPEC, CODECS["fp16"], None)
    lease = lease_of(1, np.arange(SIZE, dtype=np.float32), downlink)
    form, body = cloud.send(grant_of(lease), lease, 0)
    assert (form, len(body)) == (CODED, 2 * SIZE)


@pytest.mark.parametrize("form", [CODED, CHANGED, 3, 2**31])
def test_a_form_that_an_edge_cannot_read_is_malformed(form):
    with pytest.raises(Malformed):
        EdgeModels(SPEC).receive(form, bytes(8), 1)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(CODECS)), st.binary(max_size=60))
def test_random_bytes_are_a_model_or_malformed(codec, body):
    cloud = CloudModels(SPEC, None, CODECS[codec])
    edge = EdgeModels(SPEC, CODECS[codec], None)
    edge.receive(RAW, bytes(4 * SIZE), 1)
    for read in (
        lambda: cloud.receive(body, None),
        lambda: edge.receive(CODED, body, 2),
        lambda: edge.receive(CHANGED, body, 2),
    ):
        try:
            assert read().shape == (SIZE,)
        except Malformed:
            continue
