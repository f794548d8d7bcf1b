"""Smaller models on the way between edge and cloud: half precision, 8-bit integers, the largest entries.

A codec turns a vector into a payload of bytes and back. Nothing else in compression loses precision.
`Downlink` and `Uplink` choose the vector to send. docs/compression.md has the protocol and the reasons.

Top-k with error feedback: Stich et al. 2018; feedback in both directions: Tang et al. 2019 (DoubleSqueeze).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from hiflash.core.registry import Key, Part, by_name
from hiflash.core.state import Stateful
from hiflash.errors import ProtocolError
from hiflash.messages import Weights
from hiflash.weights import Spec

__all__ = ["COMPRESSIONS", "Codec", "Downlink", "Half", "Int8", "Payloads", "TopK", "Traffic", "Uplink"]

HALF_MAX = np.float32(np.finfo(np.float16).max)  # 65,504
LEVELS = np.float32(127)


class Codec(Protocol):
    """Turns a vector into bytes and back. NaN or infinity must remain visible: the cloud rejects them."""

    partial: bool
    """Whether the codec leaves entries out, which must then be sent later."""
    payload_bytes: int

    def encode(self, vector: Weights) -> bytes:
        """Return the payload, `payload_bytes` long."""
        ...

    def decode(self, payload: bytes) -> Weights:
        """Return the vector that the receiver gets."""
        ...


class Half:
    """Two bytes per value: relative errors up to 2**-11, absolute errors up to 2**-25 below 2**-14."""

    partial = False

    def __init__(self, size: int) -> None:
        self.payload_bytes = 2 * size

    def encode(self, vector: Weights) -> bytes:
        """Return half-precision values, clipped to their range; infinity stays infinite."""
        limited = np.clip(vector, -HALF_MAX, HALF_MAX)
        np.copyto(limited, vector, where=np.isinf(vector))
        return limited.astype("<f2").tobytes()

    def decode(self, payload: bytes) -> Weights:
        """Return the values."""
        _check_length(payload, self.payload_bytes)
        return np.frombuffer(payload, "<f2").astype(np.float32)


class Int8:
    """One byte per value and one scale per tensor (largest magnitude / 127): errors up to half a scale."""

    partial = False

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = np.array([size for size in sizes if size])
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.payload_bytes = int(self.sizes.sum()) + 4 * len(self.sizes)

    def encode(self, vector: Weights) -> bytes:
        """Return scales and levels; a tensor with NaN or infinity gets a scale that is not finite."""
        scales = np.maximum.reduceat(np.abs(vector), self.starts) / LEVELS
        with np.errstate(divide="ignore", invalid="ignore"):  # 0 / 0 in a tensor of zeros, x / inf, inf / inf
            levels = np.rint(vector / np.repeat(scales, self.sizes))
        levels = np.clip(np.nan_to_num(levels, nan=0.0), -LEVELS, LEVELS)
        return b"".join((scales.astype("<f4").tobytes(), levels.astype(np.int8).tobytes()))

    def decode(self, payload: bytes) -> Weights:
        """Return levels times scales; a scale that is not finite makes its whole tensor NaN."""
        _check_length(payload, self.payload_bytes)
        scales = np.frombuffer(payload, "<f4", count=len(self.sizes))
        levels = np.frombuffer(payload, np.int8, offset=scales.nbytes).astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):  # 0 * inf
            levels *= np.repeat(scales, self.sizes)
        return levels


class TopK:
    """The entries of largest magnitude over the whole vector, each as index and value; the others are 0."""

    partial = True

    def __init__(self, size: int, share: float) -> None:
        self.size = size
        self.kept = max(1, math.ceil(share * size - 1e-9))  # 0.07 * 100 is a bit over 7
        self.payload_bytes = 8 * self.kept

    def encode(self, vector: Weights) -> bytes:
        """Return indices and values; NaN and infinity count as largest, and ties go to the lowest index."""
        magnitudes = np.where(np.isfinite(vector), np.abs(vector), np.float32(np.inf))
        last = np.partition(magnitudes, self.size - self.kept)[self.size - self.kept]
        larger, equal = np.flatnonzero(magnitudes > last), np.flatnonzero(magnitudes == last)
        chosen = np.sort(np.concatenate([larger, equal[: self.kept - len(larger)]]))
        return b"".join((chosen.astype("<u4").tobytes(), vector[chosen].astype("<f4").tobytes()))

    def decode(self, payload: bytes) -> Weights:
        """Return a vector with these entries."""
        _check_length(payload, self.payload_bytes)
        indices = np.frombuffer(payload, "<u4", count=self.kept)
        if indices.max() >= self.size:
            raise ProtocolError(f"entry {indices.max()} is outside a model of {self.size} values")
        vector = np.zeros(self.size, np.float32)
        vector[indices] = np.frombuffer(payload, "<f4", offset=indices.nbytes)
        return vector


class Traffic(NamedTuple):
    """Values that travel beside a model: edge to client and back, and cloud to edge and back."""

    lan_down: int = 0
    lan_up: int = 0
    wan_down: int = 0
    wan_up: int = 0


NOTHING = Traffic()


@dataclass(frozen=True, slots=True)
class Payloads:
    """Bytes of a model: uncompressed, in an edge's first download, in later downloads, and in an upload.

    What an algorithm sends beside the model counts in all but the first. `lan_down` and `lan_up` are its
    share between edge and client.
    """

    model: int
    first_down: int
    down: int
    up: int
    lan_down: int = 0
    lan_up: int = 0

    @classmethod
    def of(
        cls,
        model_bytes: int,
        download: Codec | None = None,
        upload: Codec | None = None,
        beside: Traffic = NOTHING,
    ) -> Payloads:
        """Return the sizes of a model under these codecs; the values `beside` it are not compressed."""
        down = model_bytes if download is None else download.payload_bytes
        up = model_bytes if upload is None else upload.payload_bytes
        # A partial codec sends changes, and an edge without a model has nothing to add them to.
        first = model_bytes if download is not None and download.partial else down
        lan_down, lan_up, wan_down, wan_up = (4 * values for values in beside)
        return cls(model_bytes, first + wan_down, down + wan_down, up + wan_up, lan_down, lan_up)


class Downlink(Stateful):
    """The cloud's side of downloads. With top-k, `held` is each edge's copy of the global model.

    Top-k sends the change since the edge's last download. Left-out entries are part of the next change.
    """

    STATE = ("held",)

    def __init__(self, codec: Codec | None = None) -> None:
        self.codec = codec
        self.held: dict[int, Weights] = {}
        self._latest: tuple[Weights, Weights] | None = None

    def send(self, edge: int, weights: Weights) -> Weights:
        """Return the model as it reaches an edge."""
        if self.codec is None:
            return weights
        if not self.codec.partial:
            return self._whole(self.codec, weights)
        held = self.held.get(edge)
        self.held[edge] = weights if held is None else held + _carry(self.codec, weights - held)
        return self.held[edge]

    def forget(self, edge: int) -> None:
        """Send an edge the whole model next time: it may have lost its copy."""
        self.held.pop(edge, None)

    def _whole(self, codec: Codec, weights: Weights) -> Weights:
        """Return a model after the codec; edges with the same version share one array."""
        if self._latest is None or self._latest[0] is not weights:
            self._latest = weights, _carry(codec, weights)
        return self._latest[1]


class Uplink(Stateful):
    """The edges' side of uploads: a change, with top-k plus the entries left out before (error feedback)."""

    STATE = ("residuals",)

    def __init__(self, codec: Codec | None = None, spec: Spec | None = None) -> None:
        self.codec = codec
        self.variances = _variances(spec) if spec else None
        self.residuals: dict[int, Weights] = {}

    def send(
        self, edge: int, model: Weights, received: Weights, base: Weights
    ) -> tuple[Weights, Weights | None]:
        """Return an edge's model as the cloud rebuilds it, and the residual to send later.

        The edge sends its change from `received`, its copy after compression. The cloud adds the change to
        `base`, the exact model.
        """
        if self.codec is None and received is base:
            return model, None
        change = self.change(edge, model, received)
        with np.errstate(over="ignore", invalid="ignore"):  # the cloud checks the result
            sent = change if self.codec is None else _carry(self.codec, change)
            left = change - sent if self.codec is not None and self.codec.partial else None
        return self.rebuild(sent, base), left

    def change(self, edge: int, model: Weights, received: Weights) -> Weights:
        """Return the edge's half: the change to send, before the codec."""
        with np.errstate(over="ignore", invalid="ignore"):
            change: Weights = model - received
            if edge in self.residuals:
                change += self.residuals[edge]
        return change

    def rebuild(self, sent: Weights, base: Weights) -> Weights:
        """Return the cloud's half: the exact model plus a change after the codec."""
        with np.errstate(over="ignore", invalid="ignore"):
            rebuilt: Weights = base + sent
        if self.variances is not None:  # a rounded change must not make a variance negative
            np.maximum(rebuilt, 0, out=rebuilt, where=self.variances)
        return rebuilt

    def keep(self, edge: int, left: Weights) -> None:
        """Remember the residual of an upload that the cloud has accepted."""
        self.residuals[edge] = left


def _variances(spec: Spec) -> np.ndarray | None:
    """Return a mask of BatchNorm's running variances, None if the model has none."""
    parts = [np.full(math.prod(shape), name.endswith("running_var")) for name, shape in spec.tensors]
    return np.concatenate(parts) if any(part.any() for part in parts) else None


def _carry(codec: Codec, vector: Weights) -> Weights:
    return codec.decode(codec.encode(vector))


def _check_length(payload: bytes, expected: int) -> None:
    if len(payload) != expected:
        raise ProtocolError(f"a compressed model must have {expected} bytes, got {len(payload)}")


def _int8(config: Any, spec: Spec) -> Int8:
    return Int8([math.prod(shape) for _, shape in spec.tensors])


TOPK = Key(
    "topk",
    float,
    default=0.01,
    above=0,
    high=0.5,
    about="topk: share of the values that are sent, each with its index",
)

COMPRESSIONS = by_name(
    Part("none", "whole models in single precision", lambda config, spec: None),
    Part("fp16", "half precision: 2 bytes per value", lambda config, spec: Half(spec.size)),
    Part("int8", "1 byte per value and a scale per tensor", _int8),
    Part(
        "topk",
        "the `topk` largest changes, the others later",
        lambda config, spec: TopK(spec.size, config.wan.topk),
        keys=(TOPK,),
    ),
)
