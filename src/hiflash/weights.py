"""Models as flat vectors: means, norms, digests, and bytes that are checked against a specification."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from hiflash.errors import ProtocolError
from hiflash.messages import Weights

__all__ = [
    "Spans",
    "Spec",
    "cut",
    "digest",
    "finite",
    "from_bytes",
    "graft",
    "norm",
    "to_bytes",
    "weighted_mean",
]

Spans: TypeAlias = tuple[tuple[int, int], ...]
"""Parts of a flat vector as pairs of start and stop; stop is excluded."""

HEADER_LIMIT = 64 * 1024


@dataclass(frozen=True)
class Spec:
    """The names and shapes of a model's tensors, in the order in which they lie in its flat vector."""

    tensors: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def size(self) -> int:
        """Return the number of values."""
        return sum(math.prod(shape) for _, shape in self.tensors)

    def split(self, weights: Weights) -> dict[str, Weights]:
        """Return the tensors of a flat vector by name, as views."""
        parts, start = {}, 0
        for name, shape in self.tensors:
            stop = start + math.prod(shape)
            parts[name] = weights[start:stop].reshape(shape)
            start = stop
        return parts


def weighted_mean(models: Iterable[Weights], counts: Sequence[int]) -> Weights:
    """Return the mean of models weighted by sample counts, added in the order given.

    >>> weighted_mean([np.float32([0, 2]), np.float32([4, 2])], [3, 1]).tolist()
    [1.0, 2.0]
    """
    # The caller sorts by id: float addition is not associative, and arrival order is not repeatable.
    total = float(sum(counts))
    mean: np.ndarray | None = None
    for model, count in zip(models, counts, strict=True):
        if mean is None:
            mean, term = model.astype(np.float64), np.empty(model.shape)
            mean *= count / total
        else:  # in place: allocating new arrays would cost more than the sums
            term[...] = model
            term *= count / total
            mean += term
    if mean is None:
        raise ProtocolError("the mean of no models is undefined")
    return mean.astype(np.float32)


def cut(weights: Weights, spans: Spans) -> Weights:
    """Return some parts of a model, one after the other.

    >>> cut(np.float32([0, 1, 2, 3, 4]), ((1, 2), (3, 5))).tolist()
    [1.0, 3.0, 4.0]
    """
    return np.concatenate([weights[start:stop] for start, stop in spans])


def graft(weights: Weights, spans: Spans, values: Weights) -> Weights:
    """Return a copy of a model with `values` in the parts that `cut` would return."""
    grafted, taken = weights.copy(), 0
    for start, stop in spans:
        grafted[start:stop] = values[taken : taken + stop - start]
        taken += stop - start
    return grafted


def finite(weights: Weights) -> bool:
    """Return whether every value is a number and not infinite."""
    return int(np.count_nonzero(np.isfinite(weights))) == weights.size


def norm(weights: Weights) -> float:
    """Return the Euclidean norm, computed in double precision."""
    wide = weights.astype(np.float64)
    return math.sqrt(float(wide @ wide))


def digest(weights: Weights) -> str:
    """Return the SHA-256 of the values as little-endian float32."""
    return hashlib.sha256(np.ascontiguousarray(weights, dtype="<f4").tobytes()).hexdigest()


def to_bytes(weights: Weights, spec: Spec) -> bytes:
    """Return a safetensors file of the model."""
    from safetensors.numpy import save

    return save({name: np.require(part, requirements="C") for name, part in spec.split(weights).items()})


def from_bytes(data: bytes, spec: Spec) -> Weights:
    """Return the model in a safetensors file; its names, shapes and types must match the specification.

    The length of the header is checked before it is parsed, and only tensors of the specification are read,
    so hostile bytes cost no more than their length.
    """
    if len(data) < 8:
        raise ProtocolError(f"a model needs a header of 8 bytes, got {len(data)} bytes")
    header_bytes = int.from_bytes(data[:8], "little")
    if header_bytes > min(HEADER_LIMIT, len(data) - 8):
        raise ProtocolError(
            f"a model header must fit in the file and in {HEADER_LIMIT} bytes, this one claims {header_bytes}"
        )
    try:
        header = json.loads(data[8 : 8 + header_bytes])
    except (ValueError, RecursionError) as error:
        raise ProtocolError("a model header must be JSON") from error
    if not isinstance(header, dict):
        raise ProtocolError(f"a model header must be an object, got {type(header).__name__}")
    header.pop("__metadata__", None)
    if set(header) != {name for name, _ in spec.tensors}:
        raise ProtocolError("the tensor names differ from the model's")
    body = memoryview(data)[8 + header_bytes :]
    if len(body) != 4 * spec.size:
        raise ProtocolError(f"the model has {4 * spec.size} bytes of values, got {len(body)}")
    parts, spans = [], []
    for name, shape in spec.tensors:
        entry = header[name]
        span = entry.get("data_offsets") if isinstance(entry, dict) else None
        expected = 4 * math.prod(shape)
        if not (
            isinstance(span, list)
            and len(span) == 2
            and all(type(edge) is int for edge in span)
            and 0 <= span[0] <= span[1] <= len(body)
            and span[1] - span[0] == expected
            and entry.get("shape") == list(shape)
            and entry.get("dtype") == "F32"
        ):
            raise ProtocolError(f"tensor {name} must be F32 of shape {list(shape)}, got {str(entry)[:80]}")
        spans.append((span[0], span[1]))
        parts.append(np.frombuffer(body[span[0] : span[1]], dtype="<f4"))
    spans.sort()
    if any(stop != start for (_, stop), (start, _) in pairwise(spans)):
        raise ProtocolError("the tensors overlap or leave gaps")
    return np.concatenate(parts).astype(np.float32)
