"""A run on disk: its configuration, its events, its checkpoint and, at the end, result and model."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from hiflash.errors import DamageError, RunError, StorageError
from hiflash.store.checkpoint import load_checkpoint, save_checkpoint
from hiflash.store.checksums import check_file, file_sha256, write_sums
from hiflash.store.files import remedy, remove_leftovers, storing, write_atomic

__all__ = [
    "RunDirectory",
    "check_config",
    "check_name",
    "claimed",
    "clear_unbegun",
    "is_finished",
    "read_events",
    "read_result_file",
]

LOCK = ".lock"
CHUNK = 8192  # bytes of events that are hashed and written at once
BLOCK = 2**20  # bytes read at once

REMAKE = "remove it, and resuming the run makes it again"


def check_name(name: str) -> str:
    """Return a run name that is one plain folder name, or say what is wrong with it."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}", name):
        raise RunError(
            f"a run name has up to 100 letters, digits, '.', '_', '+', '-' and no '/', got {name[:120]!r}; "
            "use --name for the name and --runs for the folder it goes into"
        )
    return name


def is_finished(path: Path) -> bool:
    """Return whether a run directory has a result."""
    return (path / "result.json").is_file()


def read_result_file(path: Path) -> dict[str, Any]:
    """Return the content of a finished run's `result.json`, or say that it is damaged."""
    file = path / "result.json"
    check_file(path, file.name, REMAKE)
    try:
        numbers = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DamageError(f"{file} is damaged ({error}); {REMAKE}") from error
    if not isinstance(numbers, dict):
        raise DamageError(f"{file} is damaged (it holds no object); {REMAKE}")
    return numbers


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a finished run's `events.jsonl`, or say that it is damaged."""
    check_file(path, "events.jsonl", f"remove {path} and run it again")
    yield from _rows(path / "events.jsonl")


def check_config(path: Path) -> None:
    """Raise if the configuration has changed since its run began."""
    check_file(
        path,
        "config.toml",
        "put it back as it was, or remove its line there to accept the change, or remove the folder",
    )


def clear_unbegun(path: Path) -> None:
    """Remove the folder of a run that was killed before its configuration was written: it is empty."""
    if not path.is_dir() or is_finished(path):
        return
    others = sorted(each.name for each in path.iterdir() if not each.match(".*.tmp"))
    if others:
        raise RunError(
            f"{path} holds files that are not of a run ({others[0]}); choose another --name or remove it"
        )
    remove_leftovers(path)
    path.rmdir()


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Lock a folder against other processes; make it if needed, and remove it if it stays empty."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        file = open(path / LOCK, "ab")  # noqa: SIM115  # closed below
    except OSError as error:
        helps = f"{remedy(error)}, or " if remedy(error) else ""
        raise RunError(f"{path} cannot be written: {error.strerror}; {helps}choose another --runs") from None
    _lock(file, path)
    try:
        remove_leftovers(path)
        yield
    finally:
        if [left.name for left in path.iterdir()] == [LOCK]:
            shutil.rmtree(path)
        file.close()


class RunDirectory:
    """Files of one run. `events.jsonl` grows; everything else is replaced whole.

    The checkpoint holds length and checksum of `events.jsonl`. Resuming cuts the file to this length, so its
    events always match the state.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.then = f"go on with: hiflash run --resume {path}"  # after a storage error
        self._file = path / "events.jsonl"
        with storing(self._file):
            # Without a buffer: closing the file must not retry a write that a full disk has refused.
            self._events = open(self._file, "ab", buffering=0)  # noqa: SIM115  # closed by close()
        _lock(self._events, path)
        self._length = 0
        self._hash = hashlib.sha256()
        self._pending: list[bytes] = []
        self._pending_bytes = 0

    @classmethod
    def create(cls, path: Path, config_toml: str) -> RunDirectory:
        """Return a new run directory with its configuration in it."""
        check_name(path.name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir()
        except FileExistsError:
            raise RunError(
                f"{path} exists already; resume it (--resume {path}) or choose another --name"
            ) from None
        except OSError as error:
            helps = f"{remedy(error)}, or " if remedy(error) else ""
            raise RunError(
                f"{path} cannot be created: {error.strerror}; {helps}choose another --runs"
            ) from None
        try:
            write_atomic(path / "config.toml", config_toml)
            write_sums(path, {"config.toml": file_sha256(path / "config.toml")})
            return cls(path)
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """Return an existing run directory."""
        if not (path / "config.toml").is_file():
            raise RunError(
                f"{path} is not a run directory: it has no config.toml; `--resume` takes runs/NAME"
            )
        check_config(path)
        folder = cls(path)
        remove_leftovers(path)  # safe: the lock keeps other writers out
        return folder

    def log(self, now: float, kind: str, row: Mapping[str, Any]) -> None:
        """Append an event."""
        line = json.dumps({"t": now, "event": kind, **row}, separators=(",", ":"))
        self._pending.append(line.encode() + b"\n")
        self._pending_bytes += len(line)
        if self._pending_bytes >= CHUNK:
            with self._resumable():
                self._write_events()

    def save(self, state: Mapping[str, Any]) -> None:
        """Write a checkpoint that matches the events written so far."""
        with self._resumable():
            self._sync_events()
            events = {"events_bytes": self._length, "events_sha256": self._hash.hexdigest()}
            save_checkpoint(self.path / "checkpoint.safetensors", {**state, **events})

    def load(self) -> dict[str, Any] | None:
        """Cut the events to the length in the last checkpoint and return it, None if there is none yet."""
        state = None
        if (self.path / "checkpoint.safetensors").exists():
            state = load_checkpoint(self.path / "checkpoint.safetensors")
            self._check_events(state["events_bytes"], state["events_sha256"])
        with self._resumable(), storing(self._file):
            self._events.truncate(self._length)
        return state

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the rows up to the checkpoint that was loaded."""
        yield from _rows(self._file)

    def finish(self, result: Mapping[str, Any], model: bytes | None) -> None:
        """Write the model, if any, and the result last: it marks the run as complete."""
        text = json.dumps(result, indent=1) + "\n"
        with self._resumable():
            self._sync_events()
            sums = {
                "config.toml": file_sha256(self.path / "config.toml"),
                "events.jsonl": self._hash.hexdigest(),
                "result.json": hashlib.sha256(text.encode()).hexdigest(),
            }
            if model is not None:
                write_atomic(self.path / "model.safetensors", model)
                sums["model.safetensors"] = hashlib.sha256(model).hexdigest()
            write_sums(self.path, sums)
            write_atomic(self.path / "result.json", text)

    def close(self) -> None:
        """Write the remaining events and release the directory."""
        with suppress(StorageError):  # beyond the last checkpoint: resuming makes these events again
            self._write_events()
        self._events.close()

    @contextmanager
    def _resumable(self) -> Iterator[None]:
        """Add the command that resumes the run to a storage error."""
        try:
            yield
        except StorageError as error:
            raise StorageError(error.what, self.then) from error

    def _write_events(self) -> None:
        data = b"".join(self._pending)
        self._pending.clear()
        self._pending_bytes = 0
        with storing(self._file):
            try:
                left = memoryview(data)
                while left:
                    left = left[self._events.write(left) :]
            except OSError:
                self._events.truncate(self._length)  # leave no partial line
                raise
        self._hash.update(data)
        self._length += len(data)

    def _sync_events(self) -> None:
        self._write_events()
        with storing(self._file):
            os.fsync(self._events.fileno())

    def _check_events(self, length: int, expected: str) -> None:
        """Hash the events up to a checkpoint, and raise if the run wrote others."""
        with self._file.open("rb") as file:
            while self._length < length:
                block = file.read(min(BLOCK, length - self._length))
                if not block:
                    break
                self._hash.update(block)
                self._length += len(block)
        if self._hash.hexdigest() != expected:
            raise DamageError(
                f"{self._file} is damaged: its first {length} bytes do not match the checkpoint; "
                "remove its folder and run again"
            )


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    try:
        with file.open("rb") as lines:
            for line in lines:
                yield json.loads(line)
    except (OSError, ValueError, RecursionError) as error:
        raise DamageError(f"{file} is damaged ({error}); remove {file.parent} and run it again") from error


def _lock(file: IO[bytes], path: Path) -> None:
    """Lock a folder against other processes until the file in it is closed."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise RunError(f"{path} is in use by another process; wait for it or stop it") from None
