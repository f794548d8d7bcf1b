"""Checksums: HiFlash names and refuses a saved file that has changed since it was written.

A run directory keeps them in `SHA256SUMS`; `sha256sum -c` reads this file too. To change a file on purpose,
remove its line there: a file without a checksum is not checked.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hiflash.errors import DamageError
from hiflash.store.files import write_atomic

__all__ = ["SUMS", "arrays_sha256", "check_file", "file_sha256", "json_sha256", "write_sums"]

SUMS = "SHA256SUMS"
CHECKED = ("config.toml", "events.jsonl", "model.safetensors", "result.json")
LINE = re.compile(rf"([0-9a-f]{{64}})  ({'|'.join(map(re.escape, CHECKED))})")


def arrays_sha256(text: str, arrays: Mapping[str, np.ndarray]) -> str:
    """Return the checksum of a text and of named arrays: their types, shapes and values."""
    found = hashlib.sha256(text.encode())
    for name, array in sorted(arrays.items()):
        found.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def json_sha256(content: Mapping[str, Any]) -> str:
    """Return the checksum of a JSON object without its entry `sha256`; indentation does not matter."""
    others = {key: value for key, value in content.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(others, sort_keys=True).encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """Return the checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_sums(folder: Path, sums: Mapping[str, str]) -> None:
    """Write the checksums of a run directory by the names of its files."""
    write_atomic(folder / SUMS, "".join(f"{sums[name]}  {name}\n" for name in sorted(sums)))


def check_file(folder: Path, name: str, way_out: str) -> None:
    """Raise if a file of a run directory has changed since its run wrote it."""
    expected = _read_sums(folder).get(name)
    if expected is None:
        return
    try:
        found = file_sha256(folder / name)
    except OSError as error:
        raise DamageError(f"{folder / name} cannot be read ({error.strerror}); {way_out}") from error
    if found != expected:
        raise DamageError(f"{folder / name} is damaged: {SUMS} has another checksum for it; {way_out}")


def _read_sums(folder: Path) -> dict[str, str]:
    """Return the checksums by name; empty for an old run without `SHA256SUMS`."""
    path = folder / SUMS
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise DamageError(f"{path} cannot be read ({error.strerror}); make it readable") from error
    found = [LINE.fullmatch(line.decode("ascii", "replace")) for line in lines[:-1]]
    sums = {match[2]: match[1] for match in found if match is not None}
    if None in found or lines[-1] or len(sums) < len(found):
        raise DamageError(f"{path} is damaged; remove it to go on without checksums")
    return sums
