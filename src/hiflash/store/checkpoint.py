"""A simulation's whole state as one safetensors file: arrays as tensors, the rest as JSON. No pickle.

Only messages and types marked with `core.state.record` can be read back, so a file cannot make this code
build anything else. A checksum over arrays and JSON reveals damage. Shared objects (the model of ten leases,
the promise behind all tasks of an edge round) are stored once and are shared again after reading.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from hiflash import messages
from hiflash.core.state import RECORDS, SHARED
from hiflash.errors import DamageError, RunError
from hiflash.store.checksums import arrays_sha256
from hiflash.store.files import write_atomic

__all__ = ["FORMAT", "load_checkpoint", "save_checkpoint"]

FORMAT = 2


def _is_message(kind: object) -> bool:
    """Return whether this is a kind of message: no union, and no promise, whose kinds are records."""
    return isinstance(kind, type) and kind is not messages.Promise


MESSAGES = {name: kind for name in messages.__all__ if _is_message(kind := getattr(messages, name))}


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write a state so that a crash at any instant leaves the old file or the new one."""
    from safetensors.numpy import save

    arrays: dict[str, np.ndarray] = {}
    names: dict[int, str] = {}
    shared: list[Any] = []
    positions: dict[int, int] = {}

    def encode(value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, np.ndarray):
            if id(value) not in names:
                names[id(value)] = f"a{len(names)}"
                arrays[names[id(value)]] = np.require(value, requirements="C")  # a number stays one
            return {"array": names[id(value)]}
        if isinstance(value, list):
            return [encode(item) for item in value]
        if type(value) is tuple:
            return {"tuple": [encode(item) for item in value]}
        if isinstance(value, set | frozenset):
            return {type(value).__name__: [encode(item) for item in sorted(value)]}
        if isinstance(value, dict):  # a Counter is restored by its owner
            return {"dict": [[encode(key), encode(item)] for key, item in value.items()]}
        kind = type(value).__name__
        if kind in SHARED and id(value) in positions:
            return {"shared": positions[id(value)]}
        if kind in MESSAGES or kind in RECORDS:
            fields = {name: encode(getattr(value, name)) for name in _fields(value)}
            encoded = {"type": kind, "fields": fields}
            if kind not in SHARED:
                return encoded
            positions[id(value)] = len(shared)
            shared.append(encoded)
            return {"shared": positions[id(value)]}
        raise TypeError(f"a checkpoint cannot hold {type(value).__name__}")

    body = encode(state)
    text = json.dumps({"shared": shared, "state": body}, separators=(",", ":"))
    metadata = {"format": str(FORMAT), "state": text, "sha256": arrays_sha256(text, arrays)}
    write_atomic(path, save(arrays, metadata=metadata))


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Return a saved state, or say what is wrong with the file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a dict
        if metadata.get("format") != str(FORMAT):
            raise RunError(
                f"{path} has checkpoint format {metadata.get('format')}, this version reads {FORMAT}; "
                "finish the run with the version that began it"
            )
        if metadata["sha256"] != arrays_sha256(metadata["state"], arrays):
            raise ValueError("its checksum does not match")  # noqa: TRY301  # reported below
        state: dict[str, Any] = _decode(json.loads(metadata["state"]), arrays)
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamageError(f"{path} is damaged ({error}); remove its folder and run again") from error
    return state


def _fields(value: Any) -> Iterable[str]:
    """Return the names of a record's constructor arguments."""
    named: tuple[str, ...] | None = getattr(value, "_fields", None)  # of a NamedTuple
    return [field.name for field in dataclasses.fields(value) if field.init] if named is None else named


def _decode(document: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    shared: list[Any] = []

    def decode(value: Any) -> Any:
        if isinstance(value, list):
            return [decode(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "array" in value:
            return arrays[value["array"]]
        if "shared" in value:
            return shared[value["shared"]]
        if "tuple" in value:
            return tuple(decode(item) for item in value["tuple"])
        if "set" in value:
            return {decode(item) for item in value["set"]}
        if "frozenset" in value:
            return frozenset(decode(item) for item in value["frozenset"])
        if "dict" in value:
            return {decode(key): decode(item) for key, item in value["dict"]}
        kind = MESSAGES.get(value["type"]) or RECORDS[value["type"]]
        return kind(**{name: decode(item) for name, item in value["fields"].items()})

    for record in document["shared"]:  # a record stands after the records that it refers to
        shared.append(decode(record))
    return decode(document["state"])
