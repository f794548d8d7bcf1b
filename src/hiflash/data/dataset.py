"""The common form of all datasets: checked arrays, train and test."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import DataError
from .arrays import as_answers, as_labels, as_samples, same_dtype, stack_samples
from .normalise import chunks, normalised, resolve
from .split import BINS, quantile_bins, strata, stratified_split

__all__ = ["Dataset"]

MOST_CLASSES = 100_000  # every client has a count of each: with more, those alone would fill the memory
TASKS = ("classification", "regression", "sequence")  # whose form is known; a task of one's own has any


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test samples with their answers, checked when built and not yet normalised.

    | `task` | `x`, `x_test` | `y`, `y_test` | `classes` |
    | --- | --- | --- | --- |
    | classification | `[n, ...]`, uint8 or float32 | int64 labels `[n]` | number of classes |
    | regression | the same | float32 numbers `[n]` or `[n, k]` | 0 |
    | sequence | int64 or int32 token ids `[n, length]` | int64 ids `[n]` or `[n, length]` | vocabulary |

    A task of one's own may have any of these forms. Images are `[n, channels, height, width]`. `groups` gives
    the natural client of every training sample (its writer, destination, role), if known.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: int
    groups: np.ndarray | None = None
    task: str = "classification"

    def __post_init__(self) -> None:
        self._check_kinds()
        for part, x, y in (("train", self.x, self.y), ("test", self.x_test, self.y_test)):
            where = f"dataset '{self.name}', {part} part"
            self._check_types(x, y, where)
            if len(x) == 0:
                raise DataError(f"{where}: it has no samples. Give at least one sample in each part.")
            if len(x) != len(y):
                raise DataError(f"{where}: {len(x)} samples but {len(y)} labels. Give one label per sample.")
            _check_finite(x, where)
            if self.numeric:
                _check_finite(y, where, "a target that is ")
            else:
                _check_labels(y, self.classes, where)
            if x.dtype.kind == "i" and x.min() < 0:
                raise DataError(f"{where}: token id {x.min()} is negative. Number the tokens from 0.")
        for field, train, test in (("samples", self.x, self.x_test), ("answers", self.y, self.y_test)):
            if train.shape[1:] != test.shape[1:]:
                raise DataError(
                    f"dataset '{self.name}': training {field} have shape {train.shape[1:]}, test {field} "
                    f"{test.shape[1:]}. Bring both to one shape."
                )
        if self.groups is not None and len(self.groups) != len(self.y):
            raise DataError(
                f"dataset '{self.name}': {len(self.groups)} groups for {len(self.y)} training samples. "
                "Give one group index per training sample, or none at all."
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
        groups: Any = None,
        test_fraction: float = 0.2,
        task: str = "classification",
    ) -> Dataset:
        """Return a dataset of your own lists, arrays or tensors; arrays of the right type are not copied.

        Without a test set, `test_fraction` of every class (of every tenth of a numeric target) is set aside,
        the same samples every time. `task` is `classification`, `regression` (numbers to predict), `sequence`
        (token ids) or the name of your own.

        >>> data = Dataset.from_arrays([[0.0, 1.0], [1.0, 0.0]] * 5, [0, 1] * 5)
        >>> data.x.shape, data.x_test.shape, data.classes
        ((8, 2), (2, 2), 2)
        >>> Dataset.from_arrays([[0.0], [1.0], [2.0], [3.0]], [0.5, 1.5, 2.5, 3.5], task="regression").outputs
        1
        """
        where = f"dataset '{name}'"
        if (x_test is None) != (y_test is None):
            raise DataError(f"{where}: give both x_test and y_test, or neither of them.")
        samples, answers = as_samples(x, task, f"{where}, x"), as_answers(y, task, f"{where}, y")
        owners = None if groups is None else as_labels(groups, f"{where}, groups")
        if x_test is None:
            if len(samples) != len(answers) or (owners is not None and len(owners) != len(answers)):
                owned = "" if owners is None else f" and {len(owners)} groups"
                raise DataError(
                    f"{where}: {len(samples)} samples, {len(answers)} labels{owned}. "
                    "Give one label (and one group, if any) per sample."
                )
            train, test = stratified_split(strata(answers), test_fraction, where)
            samples_test, answers_test = samples[test], answers[test]
            samples, answers = samples[train], answers[train]
            owners = None if owners is None else owners[train]
        else:
            samples_test = as_samples(x_test, task, f"{where}, x_test")
            answers_test = as_answers(y_test, task, f"{where}, y_test")
        samples, samples_test = same_dtype(samples, samples_test, task, where)
        if classes is None:
            classes = _classes(answers, answers_test)
        return cls(name, samples, answers, samples_test, answers_test, classes, owners, task)

    @classmethod
    def from_torch(
        cls,
        train: Any,
        test: Any = None,
        *,
        classes: int | None = None,
        name: str = "own",
        test_fraction: float = 0.2,
        task: str = "classification",
    ) -> Dataset:
        """Return a dataset of map-style torch datasets of `(x, answer)`; each sample is read once, here.

        A random transform therefore gives one fixed draw per sample.
        """
        x, y = stack_samples(train, task, f"dataset '{name}', train part")
        tested = (None, None) if test is None else stack_samples(test, task, f"dataset '{name}', test part")
        return cls.from_arrays(
            x, y, *tested, classes=classes, name=name, test_fraction=test_fraction, task=task
        )

    @property
    def numeric(self) -> bool:
        """Return whether the answers are numbers to predict rather than classes or tokens."""
        return self.y.dtype.kind == "f"

    @property
    def outputs(self) -> int:
        """Return how many numbers a model gives for each answer: one per class, or one per target."""
        return int(np.prod(self.y.shape[1:], dtype=np.int64)) if self.numeric else self.classes

    def categories(self) -> tuple[np.ndarray, int]:
        """Return the category of every training sample, and how many there are.

        Partitions and associations deal by category. It is the label if there is one label per sample, the
        tenth of its range that a numeric target lies in, otherwise the group or, without groups, the last
        token.
        """
        if self.numeric:
            return quantile_bins(self.y.reshape(len(self.y), -1)[:, 0]), BINS
        if self.y.ndim == 1:
            return self.y, self.classes
        if self.groups is None:
            return np.ascontiguousarray(self.y[:, -1]), self.classes
        present, owner = np.unique(self.groups, return_inverse=True)
        return owner, len(present)

    def digest(self) -> str:
        """Return a sha256 of all data that a run can see; equal digests mean equal data."""
        task = "" if self.task == "classification" else f"|task={self.task}"
        hasher = hashlib.sha256(f"classes={self.classes}{task}".encode())
        for field in ("x", "y", "x_test", "y_test", "groups"):
            array = getattr(self, field)
            if array is not None:
                hasher.update(f"|{field}:{array.dtype.str}:{array.shape}|".encode())
                hasher.update(np.ascontiguousarray(array).data)
        return hasher.hexdigest()

    def normalised(
        self, how: str = "auto", without: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return train and test as new float32 arrays, scaled by the training mean and deviation.

        Mean and deviation are those of the training samples `without` the ones at these indices.

        `how` is `feature`, `global` (one number for all), `channel` or `none`. `auto` takes `feature` for
        tables, `channel` for images of several channels, and `global` for others. Token ids stay as they are.
        """
        measured = self.x if without is None else np.delete(self.x, without, axis=0)
        return normalised(self.x, self.x_test, resolve(how, self.x, f"dataset '{self.name}'"), measured)

    def _check_kinds(self) -> None:
        """Raise unless every field is of the kind that all other checks rely on."""
        where = f"dataset {self.name!r}"
        for field in ("name", "task"):
            if not isinstance(getattr(self, field), str):
                got = type(getattr(self, field)).__name__
                raise DataError(f"{where}: the {field} must be a text, got {got}.")
        flat = 1 if self.task == "classification" else None
        for field, axes in (("x", None), ("y", flat), ("x_test", None), ("y_test", flat), ("groups", 1)):
            array = getattr(self, field)
            if array is None and field == "groups":
                continue
            if not isinstance(array, np.ndarray) or array.ndim < 1 or axes not in (None, array.ndim):
                got = f"shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
                wanted = "a flat array" if axes else "an array [n, ...]"
                raise DataError(f"{where}: {field} must be {wanted}, got {got}. Use Dataset.from_arrays.")
        if isinstance(self.classes, bool) or not isinstance(self.classes, int | np.integer):
            raise DataError(f"{where}: classes must be a whole number, got {self.classes!r}.")
        if self.numeric and self.classes != 0:
            raise DataError(f"{where}: numbers to predict have no classes, got {self.classes}. Leave it out.")
        if not self.numeric and not 1 <= self.classes <= MOST_CLASSES:
            raise DataError(
                f"{where}: {self.classes} classes (the highest label and one, if not given) are not in "
                f"1..{MOST_CLASSES}. Number the classes from 0: np.unique(y, return_inverse=True)[1]."
            )

    def _check_types(self, x: np.ndarray, y: np.ndarray, where: str) -> None:
        tokens, plain = ("int64", "int32"), ("uint8", "float32")
        samples = {"sequence": tokens, "classification": plain, "regression": plain}
        answers = {"sequence": ("int64",), "classification": ("int64",), "regression": ("float32",)}
        wanted_x = samples.get(self.task, (*plain, *tokens))
        wanted_y = answers.get(self.task, ("int64", "float32"))
        if str(x.dtype) not in wanted_x or str(y.dtype) not in wanted_y:
            raise DataError(
                f"{where}: {self.task} expects {' or '.join(wanted_x)} x and {' or '.join(wanted_y)} y, got "
                f"{x.dtype} and {y.dtype}. Dataset.from_arrays converts them."
            )


def _classes(*parts: np.ndarray) -> int:
    """Return the number of classes: the highest label and one, 0 for numbers to predict."""
    if parts[0].dtype.kind == "f":
        return 0
    return 1 + max((int(part.max()) for part in parts if part.size), default=0)


def _check_finite(x: np.ndarray, where: str, what: str = "") -> None:
    if x.dtype.kind != "f":
        return
    for rows in chunks(len(x)):
        good = np.isfinite(x[rows]).reshape(len(x[rows]), -1).all(axis=1)
        if not good.all():
            index = rows.start + int(np.flatnonzero(~good)[0])
            raise DataError(
                f"{where}: sample {index} holds {what}NaN, infinity or a number beyond float32. "
                "Remove or repair it."
            )


def _check_labels(y: np.ndarray, classes: int, where: str) -> None:
    outside = (y < 0) | (y >= classes)
    bad = np.flatnonzero(outside.reshape(len(y), -1).any(axis=1))
    if len(bad):
        label = y[bad[0]][outside[bad[0]]].ravel()[0]
        raise DataError(
            f"{where}: sample {bad[0]} has label {label}, outside 0..{classes - 1}. "
            "Number the classes from 0, or give the right `classes`."
        )
