"""CIFAR-10 from the binary version or from npz batches; every batch must have its published md5."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from .dataset import Dataset
from .files import Arrays, Found, Source, damaged, read_bytes, read_npz

__all__ = ["BATCH_MD5", "BINARY_FOLDER", "CIFAR10"]

BINARY_FOLDER = "cifar-10-batches-bin"
BATCH_MD5 = {
    "data_batch_1": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
_RECORD = 1 + 3 * 32 * 32  # a label byte, then the red, green and blue planes
_BATCH = 10_000


def _find(folder: Path) -> Found:
    files, missing = {}, []
    for batch in BATCH_MD5:
        candidates = (f"{batch}.bin", f"{BINARY_FOLDER}/{batch}.bin", f"{batch}.npz")
        path = next((folder / file for file in candidates if (folder / file).is_file()), None)
        if path is None:
            missing.append(f"{batch}.bin")
        else:
            files[batch] = path
    return Found(files, missing)


def _read(path: Path) -> Arrays:
    records = _records_of_npz(path) if path.suffix == ".npz" else _records_of_bin(path)
    got = hashlib.md5(records.data, usedforsecurity=False).hexdigest()
    if got != BATCH_MD5[path.stem]:
        raise damaged(path, f"as a binary batch it has md5 {got}, expected {BATCH_MD5[path.stem]}")
    return {"x": records[:, 1:].reshape(-1, 3, 32, 32), "y": records[:, 0].astype(np.int64)}


def _records_of_bin(path: Path) -> np.ndarray:
    size = _BATCH * _RECORD
    content = read_bytes(path, size)
    if len(content) != size:
        got = f"{len(content):,}" if len(content) < size else f"more than {size:,}"
        raise damaged(path, f"holds {got} bytes, expected {size:,}")
    return np.frombuffer(content, np.uint8).reshape(_BATCH, _RECORD)


def _records_of_npz(path: Path) -> np.ndarray:
    content = read_npz(path, "x", "y", "r")
    y = content.get("y")
    if "r" in content and content["r"].shape == (3, _BATCH, 32, 32):
        x = _undo_residuals(content["r"])
    elif "x" in content and content["x"].shape == (_BATCH, 32, 32, 3):
        x = content["x"].transpose(0, 3, 1, 2)
    elif "x" in content and content["x"].shape in ((_BATCH, 3, 32, 32), (_BATCH, _RECORD - 1)):
        x = content["x"]
    else:
        shapes = {key: value.shape for key, value in content.items()}
        raise damaged(path, f"expected y and either x [10000,32,32,3] or r [3,10000,32,32], got {shapes}")
    if y is None or y.shape != (_BATCH,) or x.dtype != np.uint8 or y.dtype.kind not in "ui":
        raise damaged(path, f"expected uint8 images and {_BATCH:,} integer labels y")
    records = np.empty((_BATCH, _RECORD), np.uint8)
    records[:, 0] = y
    records[:, 1:] = x.reshape(_BATCH, -1)
    return records


def _undo_residuals(r: np.ndarray) -> np.ndarray:
    # Red and blue are stored minus green, then as differences along both image axes, all mod 256.
    x = r.astype(np.uint8, copy=False).cumsum(2, dtype=np.uint8)
    np.cumsum(x, 3, dtype=np.uint8, out=x)
    x[::2] += x[1:2]
    return x.transpose(1, 0, 2, 3)


def _assemble(parts: Mapping[str, Arrays]) -> Dataset:
    train = [parts[batch] for batch in BATCH_MD5 if batch != "test_batch"]
    test = parts["test_batch"]
    return Dataset(
        "cifar10",
        np.concatenate([batch["x"] for batch in train]),
        np.concatenate([batch["y"] for batch in train]),
        test["x"].copy(),
        test["y"],
        10,
    )


CIFAR10 = Source(
    name="cifar10",
    samples="50,000 + 10,000",
    classes=10,
    note="the binary version, or npz batches",
    way_out="Run `hiflash data fetch cifar10`, or point --data.dir or HIFLASH_DATA at a folder that has it.",
    find=_find,
    read=_read,
    assemble=_assemble,
)
