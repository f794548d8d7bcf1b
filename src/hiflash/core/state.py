"""State that can be taken out and put back: what checkpoints and replays are made of."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

__all__ = ["RECORDS", "SHARED", "Stateful", "record", "shared_record"]

RECORDS: dict[str, type] = {}
SHARED: set[str] = set()

Kind = TypeVar("Kind", bound=type)


def record(kind: Kind) -> Kind:
    """Let checkpoints hold this type of record: only types marked so can be read back."""
    RECORDS[kind.__name__] = kind
    return kind


def shared_record(kind: Kind) -> Kind:
    """Let checkpoints hold this type, and keep it one object where several places hold the same one."""
    SHARED.add(kind.__name__)
    return record(kind)


class Stateful:
    """Something whose whole state lies in the attributes that `STATE` names."""

    STATE: ClassVar[tuple[str, ...]] = ()

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state."""
        return {name: _apart(getattr(self, name)) for name in self.STATE}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot."""
        for name in self.STATE:
            setattr(self, name, state[name])


def _apart(value: Any) -> Any:
    """Return a copy of a container, so that going on does not change the snapshot.

    Arrays and messages need none: nothing changes them in place.
    """
    return copy.copy(value) if isinstance(value, dict | list | set) else value
