"""Files that are either the old or the new version, never something in between."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

__all__ = ["remove_leftovers", "replacing", "write_atomic"]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path beside `path` that durably takes its place on success and is removed on failure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        yield temporary
        _sync(temporary)
        os.replace(temporary, path)
        _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomic(path: Path, data: bytes | str) -> None:
    """Replace the content of a file; whatever happens, the old or the new content is there."""
    with replacing(path) as temporary:
        temporary.write_bytes(data.encode() if isinstance(data, str) else data)


def remove_leftovers(folder: Path) -> None:
    """Remove what a process that was killed while it replaced a file has left behind."""
    for leftover in folder.glob(".*.tmp"):
        leftover.unlink()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
