"""State that can be taken out and put back: what checkpoints and replays are made of."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar

__all__ = ["Stateful"]


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
