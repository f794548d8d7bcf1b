"""Turns a user's lists, arrays, tensors and torch datasets into plain numpy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import DataError

__all__ = ["as_answers", "as_features", "as_labels", "as_samples", "same_dtype", "stack_samples"]


def as_samples(values: Any, task: str, where: str) -> np.ndarray:
    """Return the samples of a task: token ids `[n, length]` for sequences, otherwise features."""
    return _as_tokens(values, where) if task == "sequence" else as_features(values, where)


def as_answers(values: Any, task: str, where: str) -> np.ndarray:
    """Return the answers of a task: labels, numbers or tokens; floats of a task of one's own are numbers."""
    if task == "classification":
        return as_labels(values, where)
    y = _as_array(values, where)
    if task == "sequence" or (task != "regression" and y.dtype.kind != "f"):
        return as_labels(y, where) if y.ndim == 1 else _as_tokens(y, where).astype(np.int64, copy=False)
    if y.dtype.kind not in "buif":
        raise DataError(f"{where}: targets must be numbers, got {y.dtype}. Convert them to float32.")
    if y.ndim not in (1, 2) or 0 in y.shape[1:]:
        raise DataError(f"{where}: expected targets [n] or [n, k], got shape {y.shape}.")
    with np.errstate(over="ignore"):  # an overflow becomes inf, and the dataset reports that
        return y.astype(np.float32, copy=False)


def as_features(values: Any, where: str) -> np.ndarray:
    """Return samples as `[n, ...]` numbers (bool, integer or float32); 2-d images get a channel axis."""
    x = _as_array(values, where)
    if x.dtype.kind not in "buif":
        raise DataError(f"{where}: samples must be numbers, got {x.dtype}. Convert them to uint8 or float32.")
    if x.ndim < 2:
        raise DataError(
            f"{where}: expected [n, ...] with at least two axes, got shape {x.shape}. "
            "Reshape single numbers to [n, 1]."
        )
    if x.ndim == 3:
        x = x[:, None]
    if x.ndim == 4 and x.shape[3] in (1, 3) and x.shape[1] == x.shape[2] > 3:
        raise DataError(
            f"{where}: shape {x.shape} has the channels last, images are [n, channels, height, width]. "
            "Use x.transpose(0, 3, 1, 2), or ToTensor() in a torchvision dataset."
        )
    if x.size == 0 and len(x) > 0:
        raise DataError(f"{where}: samples of shape {x.shape[1:]} hold no values.")
    if x.dtype.kind == "f" and x.dtype != np.float32:
        with np.errstate(over="ignore"):  # an overflow becomes inf, and the dataset reports that
            x = x.astype(np.float32)
    return x


def same_dtype(x: np.ndarray, x_test: np.ndarray, task: str, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Return both parts as uint8 if both are integers of 0..255, otherwise both as float32; tokens stay."""
    parts = (x, x_test)
    if task == "sequence":
        kind = np.result_type(*parts)
        return x.astype(kind, copy=False), x_test.astype(kind, copy=False)
    if len({part.dtype.kind == "f" for part in parts if part.size}) > 1:
        # Bytes of 0..255 beside floats of 0..1 would train well and test as noise.
        raise DataError(
            f"{where}: training samples are {x.dtype}, test samples {x_test.dtype}, so scales may differ. "
            "Bring both to the same type."
        )
    if all(part.dtype.kind in "bui" and (not part.size or _is_byte(part)) for part in parts):
        return x.astype(np.uint8, copy=False), x_test.astype(np.uint8, copy=False)
    return x.astype(np.float32, copy=False), x_test.astype(np.float32, copy=False)


def as_labels(values: Any, where: str) -> np.ndarray:
    """Return whole numbers `[n]` as int64; whole floats are accepted, anything else is an error."""
    y = _as_array(values, where)
    if y.ndim != 1:
        raise DataError(
            f"{where}: expected one whole number per sample, got shape {y.shape}. "
            "Use y.argmax(1) for one-hot labels, y.ravel() for a column."
        )
    if y.size == 0:
        return y.astype(np.int64) if y.dtype.kind in "buif" else np.empty(0, np.int64)
    if y.dtype.kind not in "buif":
        raise DataError(
            f"{where}: expected whole numbers, got {y.dtype} ({y[0]!r}). Number the names from 0."
        )
    if y.dtype.kind == "f":
        bad = np.flatnonzero(~np.isfinite(y) | (y != np.round(y)) | (np.abs(y) > 2**53))
        if len(bad):
            raise DataError(
                f"{where}: sample {bad[0]} has {y[bad[0]]}, expected a whole number. "
                'For numbers to predict, give task="regression".'
            )
    if y.dtype.kind == "u" and y.max() > np.iinfo(np.int64).max:
        raise DataError(f"{where}: {y.max()} is too large. Number the classes from 0.")
    return y.astype(np.int64, copy=False)


def stack_samples(samples: Any, task: str, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Return `x, y` of a map-style torch dataset of `(x, label)`; only a class is always one number."""
    indexed = hasattr(samples, "__getitem__") and hasattr(samples, "__len__")
    if not indexed or isinstance(samples, type | Mapping):
        kind = f"the class {samples.__name__}" if isinstance(samples, type) else type(samples).__name__
        raise DataError(
            f"{where}: expected a map-style dataset (with len and indexing by number), got {kind}. "
            "Collect an iterable one into arrays and use Dataset.from_arrays."
        )
    features: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    for index in range(len(samples)):
        sample = samples[index]
        if not (isinstance(sample, (tuple, list)) and len(sample) == 2):
            raise DataError(
                f"{where}: sample {index} is {type(sample).__name__}, expected a pair (x, label)."
            )
        x, label = _as_array(sample[0], f"{where}, sample {index}"), _as_array(sample[1], where)
        if features and x.shape != features[0].shape:
            raise DataError(
                f"{where}: sample {index} has shape {x.shape}, the first one {features[0].shape}. "
                "Bring all samples to one shape (resize or crop)."
            )
        label = label.reshape(()) if label.size == 1 else label
        wanted = () if task == "classification" else labels[0].shape if labels else label.shape
        if label.shape != wanted:
            expected = f"shape {wanted} as before" if wanted else "one number"
            raise DataError(
                f"{where}: sample {index} has a label of shape {label.shape}, expected {expected}."
            )
        features.append(x)
        labels.append(label)
    if not features:
        raise DataError(f"{where}: it has no samples. Give at least one sample in each part.")
    return np.stack(features), np.stack(labels)


def _as_array(values: Any, where: str) -> np.ndarray:
    try:
        # Tensors are recognised by what they can do, so that torch is not imported for numpy users.
        return values.detach().cpu().numpy() if hasattr(values, "detach") else np.asarray(values)
    except ValueError as error:
        raise DataError(
            f"{where}: the samples differ in shape ({error}). Bring all samples to one shape."
        ) from error
    except TypeError as error:
        raise DataError(
            f"{where}: cannot be read as an array ({error}). Convert to float32 first."
        ) from error


def _as_tokens(values: Any, where: str) -> np.ndarray:
    ids = _as_array(values, where)
    if ids.dtype.kind not in "ui" or ids.ndim < 2 or 0 in ids.shape[1:]:
        raise DataError(
            f"{where}: expected token ids, whole numbers [n, length], got {ids.dtype} of shape {ids.shape}. "
            "Number the tokens from 0, and cut or pad all samples to one length."
        )
    return ids if ids.dtype in (np.int64, np.int32) else ids.astype(np.int64)


def _is_byte(x: np.ndarray) -> bool:
    return x.dtype == np.uint8 or (int(x.min()) >= 0 and int(x.max()) <= 255)
