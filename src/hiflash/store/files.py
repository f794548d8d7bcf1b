"""Files that are either the old or the new version, never something in between."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from hiflash.errors import RunError, StorageError
from hiflash.store.crash import crash_point

__all__ = [
    "check_writable",
    "remedy",
    "remove_leftovers",
    "replacing",
    "storing",
    "write_atomic",
    "write_new",
]

PROBE_BYTES = 4096  # one block: a full disk refuses it too

REMEDIES = {
    errno.ENOSPC: "make room on the disk",
    errno.EDQUOT: "make room within the quota",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f)",
    errno.EROFS: "make it writable",
    errno.EACCES: "make it writable",
    errno.EPERM: "make it writable",
    errno.EIO: "check the disk",
}


def remedy(error: OSError) -> str | None:
    """Return the remedy for a disk error, None for an error of another kind."""
    return REMEDIES.get(error.errno or 0)


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """Turn an `OSError` into a `StorageError` with the file, the reason and the remedy."""
    try:
        yield
    except OSError as error:
        helps = remedy(error) or "see that its folder is there and writable"
        raise StorageError(f"{path} cannot be written: {error.strerror or error}; {helps}") from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path. On success it durably replaces `path`, on failure it is removed.

    What is made there may be a folder; it replaces an empty one only.
    """
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            _sync(temporary)
            crash_point(f"{path.stem}.written")
            os.replace(temporary, path)
            crash_point(f"{path.stem}.renamed")
            _sync(path.parent)
        finally:
            if temporary.is_dir():
                shutil.rmtree(temporary, ignore_errors=True)
            else:
                temporary.unlink(missing_ok=True)


def write_atomic(path: Path, data: bytes | str, mode: int = 0o666) -> None:
    """Replace the content of a file; a crash leaves the old or the new content.

    The file has its permissions, `mode` without the bits of the umask, from the moment it is created.
    """
    with replacing(path) as temporary:
        write_new(temporary, data, mode)


def write_new(path: Path, data: bytes | str, mode: int = 0o666) -> None:
    """Write a file that must not exist yet, without waiting for the disk; permissions as `write_atomic`."""
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def check_writable(folder: Path) -> None:
    """Raise if a folder cannot be written, to fail before anything is computed; leave nothing behind."""
    try:
        there = folder
        while not there.exists():
            there = there.parent
        probe = there / f".{uuid4().hex}.tmp"
        try:
            probe.write_bytes(bytes(PROBE_BYTES))
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        helps = f"{remedy(error)}, or " if remedy(error) else ""
        raise RunError(
            f"{folder} cannot be written: {error.strerror or error}; {helps}choose another --runs"
        ) from error


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of a process that was killed while it replaced a file."""
    for leftover in folder.glob(".*.tmp"):
        leftover.unlink()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
