from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hiflash.core.async_cloud import AsyncCloud
from hiflash.core.compression import COMPRESSIONS, Codec, Downlink, Half, Int8, Payloads, TopK, Uplink
from hiflash.core.mixing import Delta
from hiflash.core.thresholds.fixed import FixedThreshold
from hiflash.core.weighting import Exponential
from hiflash.errors import ProtocolError
from hiflash.messages import CheckIn, EdgeCosts, Grant, Upload, Weights
from hiflash.weights import Spec

SPEC = Spec((("a", (2, 3)), ("b", ()), ("c", (3,))))  # 10 values in 3 tensors
NAMES = ("fp16", "int8", "topk")
SOME = settings(max_examples=40, deadline=None)


def f32(*values: float) -> Weights:
    return np.array(values, np.float32)


def carry(codec: Codec, vector: Weights) -> Weights:
    return codec.decode(codec.encode(vector))


def codec_of(name: str, share: float = 0.3) -> Codec:
    config = SimpleNamespace(wan=SimpleNamespace(topk=share))
    made: Codec = COMPRESSIONS[name].build(config, SPEC)
    return made


def models(limit: float = 1e4) -> st.SearchStrategy[Weights]:
    return arrays(np.float32, SPEC.size, elements=st.floats(-limit, limit, width=32))


# Each codec by hand.


def test_half_precision_keeps_eleven_bits() -> None:
    # 1 + 2^-10 is the next after 1; 1 + 2^-11 lies in the middle and goes to the even one, 1.
    sent = carry(Half(4), f32(1 + 2**-10, 1 + 2**-11, 0.1, -3))
    assert sent.tolist() == [1 + 2**-10, 1.0, 0.0999755859375, -3.0]  # 0.1 is 1638 * 2^-14 in half precision
    assert Half(4).encode(f32(1, 0, -2, 0.5)).hex() == "003c" + "0000" + "00c0" + "0038"


def test_half_precision_ends_at_65504_and_does_not_overflow() -> None:
    assert carry(Half(3), f32(1e30, -70_000, 65_504)).tolist() == [65_504, -65_504, 65_504]


def test_int8_has_a_scale_per_tensor() -> None:
    # Scales 254/127 = 2 and 1.27/127 = 0.01: -3/2 = -1.5 goes to the even level -2, 0.126/0.01 to 13.
    codec = Int8([3, 2])
    sent = carry(codec, f32(254, -3, 0.9, -1.27, 0.126))
    np.testing.assert_allclose(sent, [254, -4, 0, -1.27, 0.13], rtol=1e-6)
    payload = codec.encode(f32(254, -3, 0.9, -1.27, 0.126))
    assert np.frombuffer(payload[8:], np.int8).tolist() == [127, -2, 0, -127, 13]


def test_int8_of_a_tensor_of_zeros_is_zero() -> None:
    assert carry(Int8([2, 1]), f32(0, 0, 5)).tolist() == [0, 0, 5]
    assert carry(Int8([2]), f32(1e-45, 0)).tolist() == [0, 0]  # its scale is too small for a float


def test_topk_sends_the_largest_over_the_whole_vector() -> None:
    codec = TopK(5, 0.4)  # 2 of 5
    assert carry(codec, f32(1, -7, 3, 0, -2)).tolist() == [0, -7, 3, 0, 0]
    assert np.frombuffer(codec.encode(f32(1, -7, 3, 0, -2))[:8], "<u4").tolist() == [1, 2]


def test_topk_takes_the_first_of_equal_magnitudes() -> None:
    assert carry(TopK(5, 0.6), f32(2, -1, 1, -1, 1)).tolist() == [2, -1, 1, 0, 0]


def test_topk_rounds_the_share_up_and_sends_at_least_one() -> None:
    assert [TopK(size, share).kept for size, share in ((100, 0.07), (100, 0.071), (3, 0.01))] == [7, 8, 1]


def test_payloads_have_the_promised_length() -> None:
    vector = np.linspace(-1, 1, 10).astype(np.float32)
    # 10 values: 2 bytes each; 1 byte each and 4 for each of 3 tensors; 3 entries of 4 + 4 bytes.
    for name, expected in (("fp16", 20), ("int8", 22), ("topk", 24)):
        codec = codec_of(name)
        assert codec.payload_bytes == len(codec.encode(vector)) == expected


def test_payloads_of_both_ways_are_told_apart() -> None:
    assert Payloads.of(40) == Payloads(40, 40, 40, 40)
    assert Payloads.of(40, codec_of("int8"), codec_of("fp16")) == Payloads(40, 22, 22, 20)
    assert Payloads.of(40, codec_of("topk"), None) == Payloads(40, 40, 24, 40)  # at first the whole model


@pytest.mark.parametrize("name", NAMES)
def test_bytes_of_another_length_are_refused(name: str) -> None:
    with pytest.raises(ProtocolError, match="bytes, got"):
        codec_of(name).decode(b"\0" * 23)


def test_an_entry_outside_of_the_model_is_refused() -> None:
    payload = np.array([10, 0, 1], "<u4").tobytes() + f32(1, 1, 1).tobytes()
    with pytest.raises(ProtocolError, match="entry 10 is outside a model of 10 values"):
        codec_of("topk").decode(payload)


# What holds for all vectors.


@SOME
@given(models(limit=65_504))
def test_half_precision_is_within_its_rounding(vector: Weights) -> None:
    error = np.abs(carry(codec_of("fp16"), vector).astype(float) - vector)
    assert (error <= np.maximum(2**-11 * np.abs(vector.astype(float)), 2**-25)).all()


@SOME
@given(models())
def test_int8_is_within_half_a_scale(vector: Weights) -> None:
    sent = SPEC.split(carry(codec_of("int8"), vector))
    for name, part in SPEC.split(vector).items():
        wide = part.astype(float)
        scale = np.abs(wide).max() / 127
        # The scale and the product are rounded to 24 bits; the smallest floats have fewer.
        assert (np.abs(sent[name] - wide) <= scale / 2 + 2**-22 * np.abs(wide).max() + 1e-43).all()


@SOME
@given(models())
def test_topk_loses_no_more_than_any_other_choice(vector: Weights) -> None:
    sent = carry(codec_of("topk"), vector)
    kept = sent != 0
    assert (sent[kept] == vector[kept]).all()
    assert kept.sum() == min(3, np.count_nonzero(vector))
    if kept.sum() == 3:
        assert np.abs(vector[kept]).min() >= np.abs(vector[~kept]).max()


@pytest.mark.parametrize("name", NAMES)
@SOME
@given(
    vector=models(limit=2.0**126),
    places=st.sets(st.integers(0, SPEC.size - 1), min_size=1),
    bad=st.sampled_from([math.nan, math.inf, -math.inf]),
)
def test_finite_stays_finite_and_anything_else_is_seen(
    name: str, vector: Weights, places: set[int], bad: float
) -> None:
    codec = codec_of(name)
    assert np.isfinite(carry(codec, vector)).all()
    vector[sorted(places)] = bad
    assert not np.isfinite(carry(codec, vector)).all()


# Uploads.


def test_an_upload_that_is_not_compressed_is_not_touched() -> None:
    model, base = f32(1, 2), f32(0, 0)
    rebuilt, left = Uplink().send(0, model, base, base)
    assert rebuilt is model
    assert left is None


def test_an_upload_is_the_change_and_what_was_left_out_before() -> None:
    uplink, base = Uplink(TopK(4, 0.25)), f32(10, 10, 10, 10)
    rebuilt, left = uplink.send(7, f32(13, 12, 10, 9), base, base)  # changes 3, 2, 0, -1
    assert rebuilt.tolist() == [13, 10, 10, 10]
    assert left is not None
    assert left.tolist() == [0, 2, 0, -1]
    uplink.keep(7, left)
    rebuilt, left = uplink.send(7, f32(11, 11, 10, 8), base, base)  # 1, 1, 0, -2 and 0, 2, 0, -1
    assert rebuilt.tolist() == [10, 13, 10, 10]
    assert left is not None
    assert left.tolist() == [1, 0, 0, -3]
    other, _ = uplink.send(8, f32(11, 11, 10, 8), base, base)  # another edge has nothing left over
    assert other.tolist() == [10, 10, 10, 8]


def test_what_a_refused_upload_left_out_is_not_kept() -> None:
    uplink, base = Uplink(TopK(2, 0.5)), f32(0, 0)
    uplink.send(0, f32(math.nan, 1), base, base)  # nobody calls `keep`
    rebuilt, _ = uplink.send(0, f32(2, 1), base, base)
    assert rebuilt.tolist() == [2, 0]


def test_the_change_is_against_what_the_edge_received_and_goes_onto_what_was_meant() -> None:
    meant, received = f32(1.0, 1.0), f32(0.75, 1.0)
    rebuilt, left = Uplink().send(0, f32(1.75, 0.5), received, meant)  # changes 1, -0.5
    assert rebuilt.tolist() == [2.0, 0.5]
    assert left is None
    rebuilt, _ = Uplink(TopK(2, 0.5)).send(0, f32(1.75, 0.5), received, meant)
    assert rebuilt.tolist() == [2.0, 1.0]


def test_a_running_variance_does_not_become_negative() -> None:
    spec = Spec((("weight", (1,)), ("running_var", (2,))))
    base, model = f32(0, 0.06, 10), f32(-1, 0, 0)
    # The scale is 10/127 = 0.0787: the change of -0.06 goes to the level -1, and 0.06 - 0.0787 < 0.
    rebuilt, _ = Uplink(Int8([1, 2])).send(0, model, base, base)
    assert rebuilt[1] < -0.018
    rebuilt, _ = Uplink(Int8([1, 2]), spec).send(0, model, base, base)
    assert rebuilt.tolist() == [-1, 0, 0]
    rebuilt, _ = Uplink(Int8([1, 2]), spec).send(0, f32(-1, math.nan, 0), base, base)
    assert np.isnan(rebuilt[1:]).all()


@pytest.mark.parametrize("name", ["fp16", "int8"])
def test_nothing_is_kept_where_every_value_is_sent(name: str) -> None:
    base = np.zeros(10, np.float32)
    _, left = Uplink(codec_of(name)).send(0, np.linspace(0, 1, 10).astype(np.float32), base, base)
    assert left is None


@SOME
@given(st.lists(models(limit=100), min_size=1, max_size=12))
def test_error_feedback_sends_everything_in_the_end(changes: list[Weights]) -> None:
    uplink, base = Uplink(codec_of("topk")), np.zeros(SPEC.size, np.float32)
    total = np.zeros(SPEC.size)
    for change in changes:
        rebuilt, left = uplink.send(3, change, base, base)
        assert left is not None
        uplink.keep(3, left)
        total += rebuilt
    np.testing.assert_allclose(total + uplink.residuals[3], np.sum(changes, axis=0, dtype=float), atol=1e-3)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bad", [math.nan, math.inf, 3e38])
def test_an_upload_that_is_not_finite_arrives_as_such(name: str, bad: float) -> None:
    base = np.full(10, -3e38, np.float32)  # 3e38 + 3e38 is more than a float can hold
    model = base.copy()
    model[4] = bad
    rebuilt, _ = Uplink(codec_of(name)).send(0, model, base, base)
    assert not np.isfinite(rebuilt).all()


# Downloads.


def test_a_download_that_is_not_compressed_is_the_model_itself() -> None:
    weights = f32(1, 2)
    downlink = Downlink()
    assert downlink.send(0, weights) is weights
    assert downlink.held == {}


def test_all_edges_share_one_copy_of_a_version() -> None:
    downlink, weights = Downlink(Half(2)), f32(0.1, 1)
    first = downlink.send(0, weights)
    assert first.tolist() == [0.0999755859375, 1]
    assert downlink.send(1, weights) is first
    assert downlink.send(1, f32(2, 2)).tolist() == [2, 2]
    assert downlink.held == {}


def test_topk_sends_an_edge_the_whole_model_first_and_then_what_changed_most() -> None:
    downlink = Downlink(TopK(3, 0.3))
    assert downlink.send(0, f32(1, 1, 1)).tolist() == [1, 1, 1]
    assert downlink.send(0, f32(2, 4, 1)).tolist() == [1, 4, 1]
    assert downlink.send(0, f32(2, 4.5, 1)).tolist() == [2, 4, 1]  # the 1 left out weighs more than the 0.5
    assert downlink.send(1, f32(2, 4.5, 1)).tolist() == [2, 4.5, 1]
    downlink.forget(0)
    assert downlink.send(0, f32(5, 5, 5)).tolist() == [5, 5, 5]


@SOME
@given(models(limit=100), models(limit=100))
def test_an_edge_catches_up_with_a_model_that_rests(first: Weights, then: Weights) -> None:
    downlink = Downlink(codec_of("topk"))  # 3 of 10 entries at a time: 4 downloads
    downlink.send(0, first)
    for _ in range(4):
        got = downlink.send(0, then)
    np.testing.assert_allclose(got, then, atol=1e-4)


def test_both_sides_go_on_from_a_snapshot() -> None:
    stream = np.random.default_rng(0)
    vectors = stream.normal(size=(6, SPEC.size)).astype(np.float32)
    base = np.zeros(SPEC.size, np.float32)
    downlink, uplink = Downlink(codec_of("topk")), Uplink(codec_of("topk"))

    def step(down: Downlink, up: Uplink, vector: Weights) -> tuple[list[float], list[float]]:
        rebuilt, left = up.send(0, vector, base, base)
        assert left is not None
        up.keep(0, left)
        return down.send(0, vector).tolist(), rebuilt.tolist()

    for vector in vectors[:3]:
        step(downlink, uplink, vector)
    others = Downlink(codec_of("topk")), Uplink(codec_of("topk"))
    others[0].restore(downlink.snapshot())
    others[1].restore(uplink.snapshot())
    expected = [step(downlink, uplink, vector) for vector in vectors[3:]]
    assert [step(*others, vector) for vector in vectors[3:]] == expected


# At the cloud.


def make_cloud(codec: Codec, **limits: float) -> AsyncCloud:
    return AsyncCloud(
        f32(0.1, 1),
        {0: 100},
        mixing=Delta(1.0, Exponential(1.0)),
        policy=FixedThreshold(math.inf),
        seed=0,
        enforce="discard",
        slot_s=0.05,
        slotted=False,
        download=Downlink(codec),
        **limits,
    )


def ask(cloud: AsyncCloud, request: int) -> Grant:
    *_, grant = cloud.handle(CheckIn(0, request, EdgeCosts(1, 1, 1, 1, 1), 0.0))
    assert isinstance(grant, Grant)
    return grant


def test_a_grant_carries_what_the_edge_receives_also_when_it_is_repeated() -> None:
    cloud = make_cloud(Half(2))
    grant = ask(cloud, 1)
    assert grant.weights.tolist() == [0.0999755859375, 1]
    assert ask(cloud, 1).weights is grant.weights
    assert cloud.leases[grant.lease_id].base is cloud.weights


def test_an_edge_that_lost_its_lease_is_sent_the_whole_model_again() -> None:
    cloud = make_cloud(TopK(2, 0.5))
    for request in (1, 2):  # it has (0.1, 1) whole, then the 2 of the change (2, 1.5)
        grant = ask(cloud, request)
        cloud.handle(Upload(0, grant.lease_id, cloud.weights + f32(2, 1.5), 10, None, 1.0))
    assert cloud.weights.tolist() == f32(4.1, 4).tolist()
    assert ask(cloud, 3).weights.tolist() == f32(2.1, 4).tolist()  # it had (2.1, 1): the 3 of (2, 3)
    assert ask(cloud, 4).weights.tolist() == f32(4.1, 4).tolist()


@pytest.mark.parametrize(("bound", "status"), [(1.9, "rejected"), (2.1, "applied")])
def test_the_bound_on_updates_measures_what_arrived(bound: float, status: str) -> None:
    cloud, uplink = make_cloud(Half(2), norm_bound=bound), Uplink(TopK(2, 0.5))
    lease = cloud.leases[ask(cloud, 1).lease_id]
    # The edge moved by (1.5, 2), a distance of 2.5; the 2 alone is sent.
    model, _ = uplink.send(0, lease.received + f32(1.5, 2), lease.received, lease.base)
    (verdict,) = cloud.handle(Upload(0, lease.lease_id, model, 10, None, 1.0))
    assert verdict.status == status
