"""The samples that a deployed client brings: a folder of npz files, or what a function returns."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from hiflash.errors import ConfigError, DataError
from hiflash.methods.plugins import import_function

__all__ = ["read_samples"]


def read_samples(where: str, client: int) -> tuple[np.ndarray, np.ndarray]:
    """Return samples and answers of a client.

    `where` is a folder of npz files with `x` and `y` in each, taken in the order of their names, or a
    function like "package.module:name" that gets the client's number and returns `x, y`.
    """
    folder = Path(where)
    if folder.is_dir():
        return _from_folder(folder)
    if ":" not in where:
        raise ConfigError(
            f"--data {where}: there is no such folder; give a folder of npz files, or a function like "
            "package.module:name or file.py:name"
        )
    found: Any = import_function(where, "--data")(client)
    if not isinstance(found, tuple) or len(found) != 2:
        raise ConfigError(f"--data {where} must return a pair x, y, got {type(found).__name__}")
    return np.asarray(found[0]), np.asarray(found[1])


def _from_folder(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    files = sorted(folder.glob("*.npz"))
    if not files:
        raise DataError(f"{folder} has no npz files; put samples there as arrays x and y")
    parts = [_read(path) for path in files]
    try:
        return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])
    except ValueError as error:
        raise DataError(f"the files of {folder} do not fit together: {error}") from None


def _read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            x, y = arrays["x"], arrays["y"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} cannot be read ({error}); it must hold the arrays x and y") from None
    if len(x) != len(y):
        raise DataError(f"{path} has {len(x)} samples and {len(y)} answers; give one answer per sample")
    return x, y
