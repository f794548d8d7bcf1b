"""Models on the way between cloud and edge as bytes: raw, under a codec, or as changes to a copy.

Both ends rebuild a model bit for bit as the core has it. The bytes of a lost grant can be made again: which
form they have depends on the copy that the edge says it holds.
"""

from __future__ import annotations

import numpy as np

from hiflash.core.cloud import Lease
from hiflash.core.compression import Codec, Uplink
from hiflash.errors import ProtocolError
from hiflash.messages import Grant, Weights
from hiflash.serve.wire import Malformed
from hiflash.weights import Spec

__all__ = ["CHANGED", "CODED", "RAW", "CloudModels", "EdgeModels", "model_bytes", "read_model"]

RAW, CODED, CHANGED = 0, 1, 2


def model_bytes(weights: Weights) -> bytes:
    """Return the bytes of a model: little-endian float32."""
    return np.ascontiguousarray(weights, "<f4").tobytes()


def read_model(body: bytes, size: int) -> Weights:
    """Return the model in these bytes."""
    if len(body) != 4 * size:
        raise Malformed(f"a model of {len(body)} bytes, expected {4 * size}")
    return np.frombuffer(body, "<f4").astype(np.float32)  # a copy: torch wants arrays that it may write to


class CloudModels:
    """The cloud's end. `copies` are the models that the edges got last, each with its lease."""

    def __init__(self, spec: Spec, download: Codec | None = None, upload: Codec | None = None) -> None:
        self.size = spec.size
        self.download, self.upload = download, upload
        self._uplink = Uplink(upload, spec)
        self._copies: dict[int, tuple[int, Weights]] = {}

    def send(self, grant: Grant, lease: Lease | None, holds: int) -> tuple[int, bytes]:
        """Return the form and the bytes of a granted model; `holds` is the lease of the edge's copy."""
        if self.download is None or lease is None:
            return RAW, model_bytes(grant.weights)
        if not self.download.partial:
            return CODED, self.download.encode(lease.base)
        lease_id, copy = self._copies.get(grant.edge, (0, None))
        if lease_id != grant.lease_id:  # else the grant is repeated: the copy before it is gone
            self._copies[grant.edge] = (grant.lease_id, grant.weights)
            if copy is not None and holds == lease_id:
                return CHANGED, _changes(copy, grant.weights)
        return RAW, model_bytes(grant.weights)

    def receive(self, body: bytes, lease: Lease | None) -> Weights:
        """Return an upload's model; without a lease nobody will look at it."""
        if self.upload is not None:
            sent = _decoded(self.upload, body)
            return sent if lease is None else self._uplink.rebuild(sent, lease.base)
        model = read_model(body, self.size)
        if lease is None or lease.received is lease.base:
            return model
        with np.errstate(over="ignore", invalid="ignore"):  # the cloud checks the result
            return self._uplink.rebuild(model - lease.received, lease.base)


class EdgeModels:
    """An edge's end. It keeps its copy of the model, and the values that compression left out."""

    def __init__(self, spec: Spec, download: Codec | None = None, upload: Codec | None = None) -> None:
        self.size = spec.size
        self.download, self.upload = download, upload
        self._uplink = Uplink(upload, spec)
        self._copy: Weights | None = None
        self._left: Weights | None = None
        self.holds = 0  # the lease of the copy

    def receive(self, form: int, body: bytes, lease_id: int) -> Weights:
        """Return a granted model."""
        if form == RAW:
            model = read_model(body, self.size)
        elif form == CODED and self.download is not None:
            model = _decoded(self.download, body)
        elif form == CHANGED and self._copy is not None:
            model = _changed(self._copy, body)
        else:
            raise Malformed(f"a model of form {form}, which this edge cannot read")
        self._copy, self.holds = model, lease_id
        return model

    def send(self, model: Weights) -> bytes:
        """Return the bytes of an edge model that was trained from the last granted one."""
        if self.upload is None or self._copy is None:
            return model_bytes(model)
        change = self._uplink.change(0, model, self._copy)
        body = self.upload.encode(change)
        if self.upload.partial:
            with np.errstate(over="ignore", invalid="ignore"):
                self._left = change - self.upload.decode(body)
        return body

    def settle(self, *, accepted: bool) -> None:
        """Take note of the verdict: what an accepted upload left out goes with the next one."""
        if accepted and self._left is not None:
            self._uplink.keep(0, self._left)
        self._left = None


def _decoded(codec: Codec, body: bytes) -> Weights:
    try:
        return codec.decode(body)
    except ProtocolError as error:
        raise Malformed(str(error)) from None


def _changes(copy: Weights, model: Weights) -> bytes:
    """Return the places and values at which a model differs from a copy, bit for bit."""
    places = np.flatnonzero(copy.view(np.uint32) != model.view(np.uint32))
    return b"".join((places.astype("<u4").tobytes(), model[places].astype("<f4").tobytes()))


def _changed(copy: Weights, body: bytes) -> Weights:
    count, rest = divmod(len(body), 8)
    if rest or count > len(copy):
        raise Malformed(f"changes of {len(body)} bytes to a model of {len(copy)} values")
    places = np.frombuffer(body, "<u4", count=count)
    if count and int(places.max()) >= len(copy):
        raise Malformed(f"a change of value {int(places.max())} in a model of {len(copy)}")
    model = copy.copy()
    model[places] = np.frombuffer(body, "<f4", offset=4 * count)
    return model
