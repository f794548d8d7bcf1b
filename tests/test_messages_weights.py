"""Messages are frozen data; models are flat vectors and bytes that are checked against a specification."""

import json
import math
import struct
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hiflash import messages
from hiflash.errors import ProtocolError
from hiflash.messages import EdgeCosts
from hiflash.weights import Spec, digest, finite, from_bytes, norm, to_bytes, weighted_mean

SPEC = Spec((("b", (2,)), ("a", (2, 1)), ("c", (1,))))
GOOD_HEADER = {
    "a": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]},
    "b": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]},
    "c": {"dtype": "F32", "shape": [1], "data_offsets": [16, 20]},
}


def f32(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def pack(header, body: bytes = b"\0" * 20) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def changed(name: str, **fields) -> dict:
    header = {key: dict(entry) for key, entry in GOOD_HEADER.items()}
    header[name] |= fields
    return header


# Messages.


def test_every_message_is_frozen_and_listed():
    named = [getattr(messages, name) for name in messages.__all__]
    kinds = [kind for kind in named if isinstance(kind, type) and kind is not messages.Promise]
    assert len(kinds) > 10
    for kind in kinds:
        assert hasattr(kind, "__slots__")
        assert issubclass(kind, tuple) or kind.__dataclass_params__.frozen


def test_a_lease_takes_down_train_and_up():
    assert EdgeCosts(compute_s=100.0, send_s=50.0, down_s=1.0, train_s=2.0, up_s=4.0).duration_s == 7.0


# Arithmetic.


def test_spec_splits_a_vector_into_views_in_order():
    spec = Spec((("w", (2, 3)), ("b", (3,)), ("s", ())))
    assert spec.size == 10  # 6 + 3 + 1
    flat = np.arange(10, dtype=np.float32)
    parts = spec.split(flat)
    assert list(parts) == ["w", "b", "s"]
    assert parts["w"].tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert parts["b"].tolist() == [6.0, 7.0, 8.0]
    assert parts["s"].tolist() == 9.0
    parts["b"][0] = 99
    assert flat[6] == 99


def test_weighted_mean_by_hand():
    # (1 * [4, 0] + 3 * [0, 8]) / 4
    assert weighted_mean([f32(4, 0), f32(0, 8)], [1, 3]).tolist() == [1.0, 6.0]


def test_weighted_mean_adds_in_double_precision():
    # In float32 1 + 2^-24 is 1, so adding one by one would lose all the small ones.
    models = [f32(1.0)] + [f32(2.0**-24)] * 1023
    expected = (1 + 1023 * 2.0**-24) / 1024
    assert weighted_mean(models, [1] * 1024)[0] == np.float32(expected)


def test_weighted_mean_takes_any_iterable_and_leaves_models_alone():
    models = [f32(2, 4), f32(4, 8)]
    assert weighted_mean(iter(models), [5, 5]).tolist() == [3.0, 6.0]
    assert models[0].tolist() == [2.0, 4.0]


def test_the_mean_of_nothing_and_unequal_lengths_are_errors():
    with pytest.raises(ProtocolError):
        weighted_mean([], [])
    with pytest.raises(ValueError, match="zip"):
        weighted_mean([f32(1)], [1, 2])


def test_norm_is_euclidean_and_does_not_overflow():
    assert norm(f32(3, -4)) == 5.0
    assert norm(f32(3e38, 3e38)) == pytest.approx(3e38 * math.sqrt(2), rel=1e-6)  # overflows in float32
    assert norm(f32()) == 0.0


@pytest.mark.parametrize(
    ("value", "expected"), [(1.0, True), (np.nan, False), (np.inf, False), (-np.inf, False)]
)
def test_finite(value, expected):
    assert finite(f32(0, value, 0)) is expected


def test_digest_is_that_of_little_endian_float32():
    # sha256 of 00 00 80 3f 00 00 00 c0, which are 1.0 and -2.0
    assert digest(f32(1, -2)) == "ee4ac73c2bd27756ab82780f27c73a7bc4d3f0bb6acb37e008bc27eccd7e588b"
    assert digest(np.array([1, -2], dtype=">f4")) == digest(f32(1, -2))
    assert digest(f32(9, 1, 9, -2)[1::2]) == digest(f32(1, -2))
    assert digest(f32(0.0)) != digest(f32(-0.0))


# Bytes.


def test_a_model_survives_the_round_trip_bit_for_bit():
    flat = f32(1.5, -0.0, 1e-45, 3.4e38, -7)
    data = to_bytes(flat, SPEC)
    assert from_bytes(data, SPEC).tobytes() == flat.tobytes()
    assert from_bytes(data, SPEC).dtype == np.float32


def test_a_scalar_parameter_survives_the_round_trip():
    spec = Spec((("scale", ()), ("bias", (2,))))  # such as a learned temperature in a user's own model
    flat = f32(3, 1, 2)
    assert from_bytes(to_bytes(flat, spec), spec).tolist() == [3.0, 1.0, 2.0]


def test_what_is_read_is_a_copy_that_can_be_written():
    out = from_bytes(to_bytes(f32(1, 2, 3, 4, 5), SPEC), SPEC)
    out[0] = 9
    assert out[0] == 9


def test_bytes_are_a_safetensors_file_that_others_can_read():
    from safetensors.numpy import load

    parts = load(to_bytes(f32(1, 2, 3, 4, 5), SPEC))
    assert {name: part.tolist() for name, part in parts.items()} == {
        "b": [1.0, 2.0],
        "a": [[3.0], [4.0]],
        "c": [5.0],
    }


@given(values=st.lists(st.floats(width=32), min_size=5, max_size=5))
@settings(max_examples=60, deadline=None)
def test_any_values_survive_the_round_trip(values):
    flat = f32(*values)
    assert from_bytes(to_bytes(flat, SPEC), SPEC).tobytes() == flat.tobytes()


def test_order_in_the_file_does_not_matter_and_metadata_is_ignored():
    body = f32(3, 4, 1, 2, 5).tobytes()
    header = {"__metadata__": {"x": "y"}, **GOOD_HEADER}
    assert from_bytes(pack(header, body), SPEC).tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]


# hostile bytes.


@given(st.binary(max_size=400))
@settings(max_examples=200, deadline=None)
def test_random_bytes_are_refused(data):
    with pytest.raises(ProtocolError):
        from_bytes(data, SPEC)


@given(text=st.binary(max_size=120), body=st.binary(max_size=24))
@settings(max_examples=200, deadline=None)
def test_random_headers_are_refused(text, body):
    with pytest.raises(ProtocolError):
        from_bytes(pack(text, body), SPEC)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    entry=JSON | st.fixed_dictionaries({}, optional={"dtype": JSON, "shape": JSON, "data_offsets": JSON}),
    name=st.sampled_from(["a", "b", "c"]),
)
@settings(max_examples=200, deadline=None)
def test_any_other_json_for_a_tensor_is_refused(entry, name):
    with pytest.raises(ProtocolError):
        from_bytes(pack({**GOOD_HEADER, name: entry}), SPEC)


@given(header=JSON)
@settings(max_examples=100, deadline=None)
def test_any_other_json_for_a_header_is_refused(header):
    with pytest.raises(ProtocolError):
        from_bytes(pack(header), SPEC)


def test_a_file_cut_anywhere_or_with_bytes_behind_it_is_refused():
    data = to_bytes(f32(1, 2, 3, 4, 5), SPEC)
    for length in range(len(data)):
        with pytest.raises(ProtocolError):
            from_bytes(data[:length], SPEC)
    for extra in (b"\0", b"\0" * 4, b"\0" * 1000):
        with pytest.raises(ProtocolError):
            from_bytes(data + extra, SPEC)


@given(position=st.integers(0, 10**6), byte=st.integers(0, 255))
@settings(max_examples=200, deadline=None)
def test_a_flipped_byte_gives_an_error_or_other_values_and_nothing_else(position, byte):
    data = bytearray(to_bytes(f32(1, 2, 3, 4, 5), SPEC))
    data[position % len(data)] = byte
    try:
        result = from_bytes(bytes(data), SPEC)
    except ProtocolError:
        return
    assert result.shape == (5,)
    assert result.dtype == np.float32


def test_a_header_of_a_hundred_thousand_tensors_is_refused_unread(monkeypatch):
    header = {f"t{k}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for k in range(100_000)}
    data = pack(header)
    monkeypatch.setattr("hiflash.weights.json.loads", lambda text: pytest.fail("the header was parsed"))
    with pytest.raises(ProtocolError, match="a model header must fit in the file and in 65536 bytes"):
        from_bytes(data, SPEC)


@pytest.mark.parametrize("claimed", [2**63, 2**64 - 1, 64 * 1024 + 1, 10_000])
def test_a_header_longer_than_allowed_or_than_the_file_is_refused(claimed):
    with pytest.raises(ProtocolError, match="header"):
        from_bytes(struct.pack("<Q", claimed) + b"{}", SPEC)


@pytest.mark.parametrize(
    "header",
    [
        {},
        {name: entry for name, entry in GOOD_HEADER.items() if name != "a"},
        GOOD_HEADER | {"extra": {"dtype": "F32", "shape": [0], "data_offsets": [20, 20]}},
        {name.upper(): entry for name, entry in GOOD_HEADER.items()},
        changed("a", dtype="F16"),
        changed("a", dtype="F64"),
        changed("a", dtype="I32"),
        changed("a", dtype=["F32"]),
        changed("a", shape=[1, 2]),
        changed("a", shape=[2]),
        changed("a", shape=[-2, -1]),
        changed("a", shape="21"),
        changed("a", shape=[2, 1, 1]),
        changed("a", data_offsets=[0, 4]),
        changed("a", data_offsets=[8, 0]),
        changed("a", data_offsets=[-8, 0]),
        changed("a", data_offsets=[16, 24]),
        changed("a", data_offsets=[0]),
        changed("a", data_offsets=[0, 8, 16]),
        changed("a", data_offsets=[0.0, 8.0]),
        changed("a", data_offsets=[False, 8]),
        changed("a", data_offsets=["0", "8"]),
        changed("a", data_offsets=[0, 10**30]),
        changed("a", data_offsets={"0": 0, "1": 8}),
        changed("a", data_offsets=None),
        changed("a", data_offsets=[math.nan, 8]),
        changed("a", data_offsets=[0, math.inf]),
        changed("a", shape=[math.nan, 1]),
    ],
    ids=lambda header: str(header.get("a", header))[:70],
)
def test_a_header_that_differs_from_the_specification_is_refused(header):
    with pytest.raises(ProtocolError):
        from_bytes(pack(header), SPEC)


@pytest.mark.parametrize(
    "header",
    [
        changed("b", data_offsets=[0, 8]),  # both tensors are the same bytes, and bytes 8 to 16 are nobody's
        changed("b", data_offsets=[4, 12]),
        changed("c", data_offsets=[0, 4]),
    ],
    ids=["same", "shifted", "inside"],
)
def test_tensors_that_overlap_are_refused(header):
    with pytest.raises(ProtocolError):
        from_bytes(pack(header), SPEC)


@pytest.mark.parametrize(
    "text", [b"NaN", b"[NaN]", b'{"a": NaN}', b"Infinity", b"null", b"[]", b'"x"', b"1e999", b"", b"{"]
)
def test_json_that_is_no_header_is_refused(text):
    with pytest.raises(ProtocolError):
        from_bytes(pack(text), SPEC)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("place", ["whole", "a", "shape", "__metadata__"])
def test_json_nested_to_any_depth_is_refused(opening, place):
    limit = sys.getrecursionlimit()
    closing = "]" if opening == "[" else "}"
    for depth in (10, 100, limit // 2, *range(limit - 120, limit + 10, 3), 8_000):
        nest = opening * depth + "0" + closing * depth
        if len(nest) > 60_000:
            continue
        if place == "whole":
            text = nest
        elif place == "shape":
            text = json.dumps(changed("a", shape="NEST")).replace('"NEST"', nest)
        else:
            text = json.dumps({**GOOD_HEADER, place: "NEST"}).replace('"NEST"', nest)
        data = pack(text.encode())
        if place == "__metadata__":
            try:
                from_bytes(data, SPEC)
            except ProtocolError:
                continue
        else:
            with pytest.raises(ProtocolError):
                from_bytes(data, SPEC)


def test_an_absurd_number_in_the_header_is_refused():
    text = json.dumps(changed("a", data_offsets="BIG")).replace('"BIG"', "[0," + "9" * 50_000 + "]")
    with pytest.raises(ProtocolError):
        from_bytes(pack(text.encode()), SPEC)


def test_nothing_in_a_refusal_is_longer_than_a_line():
    with pytest.raises(ProtocolError) as caught:
        from_bytes(pack(changed("a", dtype="x" * 60_000)), SPEC)
    assert len(str(caught.value)) < 300
