"""FEMNIST by writer: the first 100 writers, from one npz file or from the json files that LEAF writes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError
from .dataset import Dataset
from .files import Arrays, Found, Source, damaged, read_npz, sha256

__all__ = ["FEMNIST", "WRITERS"]

WRITERS = 100
_CLASSES = 62
_NPZ = "femnist.npz"
_NPZ_KEYS = ("x", "y", "w", "is_test")
# The 300-writer subset is recognised by its number of images. Other npz files have no known checksum.
_SUBSET_SAMPLES = 45_958
_SUBSET_SHA256 = "21c77ecdd616988242e6ec0288976a4a868003cfa94159aae78ba64cfaa3e5ab"  # of x, y, w, is_test


def _find(folder: Path) -> Found:
    if (folder / _NPZ).is_file():
        return Found({_NPZ: folder / _NPZ}, [])
    for root in (folder, folder / "data"):  # LEAF leaves its output in data/femnist/data
        train, test = _json_files(root / "train"), _json_files(root / "test")
        if train or test:
            missing = [f"{part}/*.json" for part, files in (("train", train), ("test", test)) if not files]
            return Found({f"{path.parent.name}/{path.name}": path for path in train + test}, missing)
    return Found({}, [f"{_NPZ}, or train/*.json and test/*.json"])


def _json_files(folder: Path) -> list[Path]:
    def by_number(path: Path) -> list[tuple[int, str]]:
        # all_data_2 comes before all_data_10, so that "the first writers" are LEAF's first writers
        return [(int(word), "") if word.isdigit() else (-1, word) for word in re.split(r"(\d+)", path.name)]

    return sorted(folder.glob("*.json"), key=by_number) if folder.is_dir() else []


def _read(path: Path) -> Arrays:
    return _read_npz(path) if path.suffix == ".npz" else _read_json(path)


def _read_npz(path: Path) -> Arrays:
    arrays = read_npz(path, *_NPZ_KEYS)
    lacking = [key for key in _NPZ_KEYS if key not in arrays]
    if lacking:
        raise damaged(path, f"holds no array {', '.join(lacking)}")
    n = len(arrays["y"]) if arrays["y"].ndim else 0
    shapes = [arrays[key].shape for key in _NPZ_KEYS]
    if shapes != [(n, 28, 28), (n,), (n,), (n,)] or arrays["x"].dtype != np.uint8:
        raise damaged(path, f"expected uint8 x [n,28,28] and y, w, is_test [n], got shapes {shapes}")
    if arrays["y"].dtype.kind not in "ui":
        raise damaged(path, f"expected whole numbers y, got {arrays['y'].dtype}")
    if n == _SUBSET_SAMPLES:
        got = sha256(*(arrays[key] for key in _NPZ_KEYS))
        if got != _SUBSET_SHA256:
            raise damaged(path, f"the arrays have sha256 {got}, expected {_SUBSET_SHA256}")
    return arrays


def _read_json(path: Path) -> Arrays:
    """Return the images of every writer of a LEAF file as `x:<writer>` and the labels as `y:<writer>`."""
    try:
        with path.open(encoding="utf-8") as stream:
            content = json.load(stream)
        arrays: Arrays = {}
        for user in content["users"]:
            data = content["user_data"][user]
            arrays[f"x:{user}"] = _images(data["x"])
            arrays[f"y:{user}"] = np.asarray(data["y"], np.int64)
            _require_pairs(arrays[f"x:{user}"], arrays[f"y:{user}"], user)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise damaged(path, f"is not a LEAF json file ({type(error).__name__}: {error})") from error
    return arrays


def _images(rows: Any) -> np.ndarray:
    pixels = np.asarray(rows, np.float32).reshape(-1, 28, 28)
    if not ((pixels >= 0) & (pixels <= 1)).all():  # also false for NaN
        raise ValueError("a pixel lies outside 0..1")
    return np.rint(pixels * 255).astype(np.uint8)  # LEAF's floats are exactly k/255


def _require_pairs(x: np.ndarray, y: np.ndarray, user: str) -> None:
    if len(x) != len(y):
        raise ValueError(f"writer {user} has {len(x)} images but {len(y)} labels")


def _assemble(parts: Mapping[str, Arrays]) -> Dataset:
    if _NPZ in parts:
        return _first_writers(parts[_NPZ])
    train = _merge(parts, "train/")
    test = _merge(parts, "test/")
    rows: list[Arrays] = []
    users = [key.removeprefix("x:") for key in train if key.startswith("x:")][:WRITERS]
    for writer, user in enumerate(users):
        seen: set[bytes] = set()
        for is_test, arrays in ((False, train), (True, test)):
            if f"x:{user}" not in arrays:
                continue
            x, y = arrays[f"x:{user}"], arrays[f"y:{user}"]
            fresh = np.array([_is_new(image, seen) for image in x], bool)
            count = int(fresh.sum())
            rows.append(
                {
                    "x": x[fresh],
                    "y": y[fresh],
                    "w": np.full(count, writer),
                    "is_test": np.full(count, is_test),
                }
            )
    if not any(len(row["y"]) and row["is_test"][0] for row in rows):
        raise DataError(
            "femnist: no writer of the train files has samples in the test files. "
            "Make them with LEAF's `preprocess.sh -s niid -t sample`, which splits within each writer."
        )
    return _first_writers({key: np.concatenate([row[key] for row in rows]) for key in _NPZ_KEYS})


def _merge(parts: Mapping[str, Arrays], prefix: str) -> Arrays:
    return {key: value for name in parts if name.startswith(prefix) for key, value in parts[name].items()}


def _is_new(image: np.ndarray, seen: set[bytes]) -> bool:
    # LEAF stores the first image of every writer twice, which can leak it from train into test.
    key = image.tobytes()
    new = key not in seen
    seen.add(key)
    return new


def _first_writers(arrays: Arrays) -> Dataset:
    x, y = arrays["x"][:, None], arrays["y"].astype(np.int64)
    held, writer = np.unique(arrays["w"], return_inverse=True)
    is_test = arrays["is_test"].astype(bool)
    chosen = writer < min(WRITERS, len(held))
    train, test = chosen & ~is_test, chosen & is_test
    return Dataset("femnist", x[train], y[train], x[test], y[test], _CLASSES, writer[train].astype(np.int64))


FEMNIST = Source(
    name="femnist",
    samples="first 100 writers",
    classes=_CLASSES,
    note="femnist.npz, or LEAF's train/ and test/ json files; naturally split by writer",
    way_out="`hiflash data fetch femnist` says how to get it; or point --data.dir or HIFLASH_DATA at it.",
    find=_find,
    read=_read,
    assemble=_assemble,
)
