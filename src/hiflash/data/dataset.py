"""The common form of all datasets: checked arrays, train and test."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import DataError
from ..seeding import rng
from .arrays import as_features, as_labels, same_dtype, stack_samples

__all__ = ["Dataset", "stratified_split"]

MOST_CLASSES = 100_000  # every client has a count of each: with more, those alone would fill the memory
_CHUNK = 128  # samples held in float64 at a time: no copy of a whole dataset, and in cache it is faster


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test samples with integer labels, checked when built and not yet normalised.

    `x` and `x_test` are `[n, channels, height, width]` (or any `[n, ...]`), uint8 or float32;
    `y` and `y_test` are int64 labels `0..classes-1`; `writers` gives the writer of every training
    sample, if known.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: int
    writers: np.ndarray | None = None

    def __post_init__(self) -> None:
        self._check_kinds()
        for part, x, y in (("train", self.x, self.y), ("test", self.x_test, self.y_test)):
            where = f"dataset '{self.name}', {part} part"
            if x.dtype not in (np.uint8, np.float32) or y.dtype != np.int64:
                raise DataError(
                    f"{where}: expected uint8 or float32 x and int64 y, got {x.dtype} and {y.dtype}. "
                    "Dataset.from_arrays converts them."
                )
            if len(x) == 0:
                raise DataError(f"{where}: it has no samples. Give at least one sample in each part.")
            if len(x) != len(y):
                raise DataError(f"{where}: {len(x)} samples but {len(y)} labels. Give one label per sample.")
            _check_finite(x, where)
            _check_labels(y, self.classes, where)
        if self.x.shape[1:] != self.x_test.shape[1:]:
            raise DataError(
                f"dataset '{self.name}': training samples have shape {self.x.shape[1:]}, test samples "
                f"{self.x_test.shape[1:]}. Bring both to one shape."
            )
        if self.writers is not None and len(self.writers) != len(self.y):
            raise DataError(
                f"dataset '{self.name}': {len(self.writers)} writers for {len(self.y)} training samples. "
                "Give one writer index per training sample, or none at all."
            )

    @classmethod
    def from_arrays(
        cls,
        x: Any,
        y: Any,
        x_test: Any = None,
        y_test: Any = None,
        *,
        classes: int | None = None,
        name: str = "own",
        writers: Any = None,
        test_fraction: float = 0.2,
    ) -> Dataset:
        """Return a dataset of your own lists, arrays or tensors; arrays of the right type are not copied.

        Without a test set, `test_fraction` of every class is set aside, the same samples every time.

        >>> data = Dataset.from_arrays([[0.0, 1.0], [1.0, 0.0]] * 5, [0, 1] * 5)
        >>> data.x.shape, data.x_test.shape, data.classes
        ((8, 2), (2, 2), 2)
        """
        if (x_test is None) != (y_test is None):
            raise DataError(f"dataset '{name}': give both x_test and y_test, or neither of them.")
        features, labels = as_features(x, f"dataset '{name}', x"), as_labels(y, f"dataset '{name}', y")
        owners = None if writers is None else as_labels(writers, f"dataset '{name}', writers")
        if x_test is None:
            if len(features) != len(labels) or (owners is not None and len(owners) != len(labels)):
                owned = "" if owners is None else f" and {len(owners)} writers"
                raise DataError(
                    f"dataset '{name}': {len(features)} samples, {len(labels)} labels{owned}. "
                    "Give one label (and one writer, if any) per sample."
                )
            train, test = stratified_split(labels, test_fraction, f"dataset '{name}'")
            features_test, labels_test = features[test], labels[test]
            features, labels = features[train], labels[train]
            owners = None if owners is None else owners[train]
        else:
            features_test = as_features(x_test, f"dataset '{name}', x_test")
            labels_test = as_labels(y_test, f"dataset '{name}', y_test")
        features, features_test = same_dtype(features, features_test, f"dataset '{name}'")
        if classes is None:
            classes = 1 + max((int(part.max()) for part in (labels, labels_test) if len(part)), default=0)
        return cls(name, features, labels, features_test, labels_test, classes, owners)

    @classmethod
    def from_torch(
        cls,
        train: Any,
        test: Any = None,
        *,
        classes: int | None = None,
        name: str = "own",
        test_fraction: float = 0.2,
    ) -> Dataset:
        """Return a dataset of map-style torch datasets of `(x, label)`; each sample is read once, here.

        A random transform therefore gives one fixed draw per sample.
        """
        x, y = stack_samples(train, f"dataset '{name}', train part")
        x_test, y_test = (None, None) if test is None else stack_samples(test, f"dataset '{name}', test part")
        return cls.from_arrays(x, y, x_test, y_test, classes=classes, name=name, test_fraction=test_fraction)

    def _check_kinds(self) -> None:
        """Raise unless every field is of the kind that all other checks rely on."""
        where = f"dataset {self.name!r}"
        if not isinstance(self.name, str):
            raise DataError(f"{where}: the name must be a text, got {type(self.name).__name__}.")
        for field, axes in (("x", None), ("y", 1), ("x_test", None), ("y_test", 1), ("writers", 1)):
            array = getattr(self, field)
            if array is None and field == "writers":
                continue
            if not isinstance(array, np.ndarray) or array.ndim < 1 or axes not in (None, array.ndim):
                got = f"shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
                wanted = "a flat array" if axes else "an array [n, ...]"
                raise DataError(f"{where}: {field} must be {wanted}, got {got}. Use Dataset.from_arrays.")
        if isinstance(self.classes, bool) or not isinstance(self.classes, int | np.integer):
            raise DataError(f"{where}: classes must be a whole number, got {self.classes!r}.")
        if not 1 <= self.classes <= MOST_CLASSES:
            raise DataError(
                f"{where}: {self.classes} classes (the highest label and one, if not given) are not in "
                f"1..{MOST_CLASSES}. Number the classes from 0: np.unique(y, return_inverse=True)[1]."
            )

    def digest(self) -> str:
        """Return a sha256 of all data that a run can see; equal digests mean equal data."""
        hasher = hashlib.sha256(f"classes={self.classes}".encode())
        for field in ("x", "y", "x_test", "y_test", "writers"):
            array = getattr(self, field)
            if array is not None:
                hasher.update(f"|{field}:{array.dtype.str}:{array.shape}|".encode())
                hasher.update(np.ascontiguousarray(array).data)
        return hasher.hexdigest()

    def normalised(self) -> tuple[np.ndarray, np.ndarray]:
        """Return train and test as new float32 arrays, scaled by the training mean and deviation.

        Images of several channels are scaled per channel, everything else by one number.
        """
        mean, deviation = self._statistics()
        scaled = []
        for x in (self.x, self.x_test):
            out = np.empty(x.shape, np.float32)
            for rows in _chunks(len(x)):
                out[rows] = (_unit(x[rows]) - mean) / deviation
            scaled.append(out)
        return scaled[0], scaled[1]

    def _statistics(self) -> tuple[np.ndarray, np.ndarray]:
        per_channel = self.x.ndim >= 3 and self.x.shape[1] > 1
        axes = tuple(axis for axis in range(self.x.ndim) if not (per_channel and axis == 1))
        count = self.x.size // (self.x.shape[1] if per_channel else 1)
        total = sum(_unit(self.x[rows]).sum(axes, keepdims=True) for rows in _chunks(len(self.x)))
        mean = np.asarray(total / count)
        # A second pass around the mean: the one-pass formula loses everything when the mean is large.
        squares = sum(
            np.square(_unit(self.x[rows]) - mean).sum(axes, keepdims=True) for rows in _chunks(len(self.x))
        )
        deviation = np.sqrt(np.asarray(squares / count))
        constant = deviation <= 1e-12 * np.maximum(1.0, np.abs(mean))
        return mean, np.where(constant, 1.0, deviation)


def stratified_split(y: np.ndarray, test_fraction: float, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Return sorted train and test indices with `test_fraction` of every class in test, always the same."""
    if not isinstance(test_fraction, int | float) or not 0 < test_fraction < 1:
        raise DataError(f"{where}: test_fraction must lie between 0 and 1, got {test_fraction!r}.")
    stream = rng(0, "split")
    test: list[np.ndarray] = []
    for label in np.unique(y):
        members = np.flatnonzero(y == label)
        # A class of one sample stays in training; larger classes are in both parts.
        wanted = min(max(1, round(test_fraction * len(members))), len(members) - 1)
        test.append(stream.permutation(members)[:wanted])
    chosen = np.sort(np.concatenate(test)) if test else np.empty(0, np.int64)
    if len(chosen) == 0:
        raise DataError(
            f"{where}: no class has two samples, so no test part can be set aside from {len(y)} samples. "
            "Give x_test and y_test."
        )
    return np.setdiff1d(np.arange(len(y)), chosen), chosen


def _chunks(n: int) -> Iterator[slice]:
    return (slice(start, start + _CHUNK) for start in range(0, n, _CHUNK))


def _unit(x: np.ndarray) -> np.ndarray:
    return x / 255.0 if x.dtype == np.uint8 else x.astype(np.float64)


def _check_finite(x: np.ndarray, where: str) -> None:
    if x.dtype == np.uint8:
        return
    for rows in _chunks(len(x)):
        good = np.isfinite(x[rows]).reshape(len(x[rows]), -1).all(axis=1)
        if not good.all():
            index = rows.start + int(np.flatnonzero(~good)[0])
            raise DataError(
                f"{where}: sample {index} holds NaN, infinity or a number beyond float32. "
                "Remove or repair it."
            )


def _check_labels(y: np.ndarray, classes: int, where: str) -> None:
    bad = np.flatnonzero((y < 0) | (y >= classes))
    if len(bad):
        raise DataError(
            f"{where}: sample {bad[0]} has label {y[bad[0]]}, outside 0..{classes - 1}. "
            "Number the classes from 0, or give the right `classes`."
        )
