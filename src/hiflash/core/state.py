"""Snapshots of state, and how to restore them: the basis of checkpoints and replays."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, Self, TypeVar

__all__ = ["RECORDS", "SHARED", "Attempt", "Stateful", "record", "shared_record"]

RECORDS: dict[str, type] = {}
SHARED: set[str] = set()

Kind = TypeVar("Kind", bound=type)


def record(kind: Kind) -> Kind:
    """Let checkpoints hold this type of record: only types marked so can be read back."""
    RECORDS[kind.__name__] = kind
    return kind


def shared_record(kind: Kind) -> Kind:
    """Let checkpoints hold this type, and save an object only once if several places share it."""
    SHARED.add(kind.__name__)
    return record(kind)


class Restorable(Protocol):
    """An object with a state that can be saved and restored."""

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot."""
        ...


class Attempt:
    """A block in which a part may change its state: if the block raises, the state is restored."""

    __slots__ = ("before", "part")

    def __init__(self, part: Restorable) -> None:
        self.part = part
        self.before = part.snapshot()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.undo()

    def undo(self) -> None:
        """Restore the part's state from the beginning of the block."""
        self.part.restore(self.before)


class Stateful:
    """An object whose whole state lies in the attributes that `STATE` names."""

    STATE: ClassVar[tuple[str, ...]] = ()

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state."""
        return {name: _apart(getattr(self, name)) for name in self.STATE}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot."""
        for name in self.STATE:
            setattr(self, name, state[name])


def _apart(value: Any) -> Any:
    """Return a copy of a container, so that later changes do not reach the snapshot.

    Arrays and messages need none: nothing changes them in place.
    """
    return copy.copy(value) if isinstance(value, dict | list | set) else value
