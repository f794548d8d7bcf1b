"""A run on disk: its configuration, its events, its checkpoint and, at the end, result and model."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from hiflash.errors import RunError
from hiflash.store.checkpoint import load_checkpoint, save_checkpoint
from hiflash.store.files import remove_leftovers, write_atomic

__all__ = ["RunDirectory", "check_name", "claimed"]

LOCK = ".lock"


def check_name(name: str) -> str:
    """Return a run name that is one plain folder name, or say what is wrong with it."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}", name):
        raise RunError(
            f"a run name has up to 100 letters, digits, '.', '_', '+', '-' and no '/', got {name[:120]!r}; "
            "use --name for the name and --runs for the folder it goes into"
        )
    return name


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Keep others out of a folder, which is made if need be and goes again if nothing was written."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        file = open(path / LOCK, "ab")  # noqa: SIM115  # closed below
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror}; choose another --runs") from None
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

    The checkpoint holds how long `events.jsonl` was, and resuming cuts it there: what is in the file
    is always exactly what the state has seen.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._events = open(path / "events.jsonl", "ab")  # noqa: SIM115  # closed by close()
        _lock(self._events, path)

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
            raise RunError(f"{path} cannot be created: {error.strerror}; choose another --runs") from None
        try:
            write_atomic(path / "config.toml", config_toml)
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
        folder = cls(path)
        remove_leftovers(path)  # the lock says that nobody else is writing here
        return folder

    @property
    def finished(self) -> bool:
        """Return whether the run has a result."""
        return (self.path / "result.json").is_file()

    def log(self, now: float, kind: str, row: Mapping[str, Any]) -> None:
        """Append an event."""
        line = json.dumps({"t": now, "event": kind, **row}, separators=(",", ":"))
        self._events.write(line.encode() + b"\n")

    def save(self, state: Mapping[str, Any]) -> None:
        """Write a checkpoint that matches the events written so far."""
        self._sync_events()
        save_checkpoint(self.path / "checkpoint.safetensors", {**state, "events_bytes": self._events.tell()})

    def load(self) -> dict[str, Any] | None:
        """Return the last checkpoint and cut the events to where it was made; None if there is none yet."""
        if not (self.path / "checkpoint.safetensors").exists():
            self._events.truncate(0)
            return None
        state = load_checkpoint(self.path / "checkpoint.safetensors")
        length = (self.path / "events.jsonl").stat().st_size
        if length < state["events_bytes"]:
            raise RunError(
                f"{self.path}/events.jsonl is shorter than its checkpoint says; it cannot be resumed"
            )
        self._events.truncate(state["events_bytes"])
        self._events.seek(0, os.SEEK_END)
        return state

    def result(self) -> dict[str, Any]:
        """Return the result of a finished run."""
        return json.loads((self.path / "result.json").read_bytes())  # type: ignore[no-any-return]

    def finish(self, result: Mapping[str, Any], model: bytes | None) -> None:
        """Write the model, if any, and last of all the result, which says that everything else is there."""
        self._sync_events()
        if model is not None:
            write_atomic(self.path / "model.safetensors", model)
        write_atomic(self.path / "result.json", json.dumps(result, indent=1) + "\n")

    def close(self) -> None:
        """Flush and release the directory."""
        self._events.close()

    def _sync_events(self) -> None:
        self._events.flush()
        os.fsync(self._events.fileno())


def _lock(file: IO[bytes], path: Path) -> None:
    """Keep others out of a folder until the file in it is closed."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise RunError(f"{path} is in use by another process; wait for it or stop it") from None
