"""What a client keeps over restarts: its local steps, its own values of the model, its algorithm's state.

An algorithm's state counts if its edge used the client's model, and once the cloud has accepted the upload
that it went into. So a client remembers its state before the last task and before the last lease too. It
learns with its next task which of them holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from hiflash.core.state import Stateful, record
from hiflash.messages import Extra, Weights
from hiflash.store.checkpoint import load_checkpoint, save_checkpoint

__all__ = ["Memories", "Memory", "MemoryFile", "Outcomes", "Own"]

UNKNOWN, COUNTED, REFUSED, LEFT_OUT = 0, 1, 2, 3  # what became of a client's task
LEASES_KEPT = 1_000


@record
@dataclass(frozen=True, slots=True, eq=False)
class Own:
    """A client's values of the model that it does not share, and its algorithm's state."""

    kept: Weights | None = None
    state: Extra = field(default_factory=dict)


@record
@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """A client between two tasks.

    `settled` is what it holds if the cloud did not accept its last lease. `before` and `after` are what it
    held before and after its last task, which belonged to a lease and a round of the run `run`. Of its
    `steps`, `skipped` were those of tasks that never reached it.
    """

    steps: int = 0
    lease_id: int = 0
    round: int = 0
    settled: Own = field(default_factory=Own)
    before: Own = field(default_factory=Own)
    after: Own = field(default_factory=Own)
    run: str = ""
    skipped: int = 0

    def skipped_before(self, first_step: int) -> int:
        """Return how many steps before this one were those of tasks that never reached this client."""
        return self.skipped + max(0, first_step - self.steps)

    def depends_on_outcome(self, place: tuple[int, int]) -> bool:
        """Return whether the task of a lease and a round depends on what became of the last one."""
        return self.lease_id != 0 and place != (self.lease_id, self.round) and bool(self.after.state)

    def at_start(self, place: tuple[int, int], outcome: int) -> Own:
        """Return what the client holds when it begins the task of a lease and a round.

        `outcome` says what became of its last task. A task that is begun again, after a restart, begins as it
        did the first time.
        """
        if place == (self.lease_id, self.round):
            return self.before
        state = self.settled.state
        if outcome in (COUNTED, LEFT_OUT):
            state = (self.after if outcome == COUNTED else self.before).state
        return Own(self.after.kept, state)

    def begun(self, place: tuple[int, int], own: Own, first_step: int, steps: int) -> Memory:
        """Return the memory of a client that begins a task of so many steps with `own`."""
        settled = self.settled if place[0] == self.lease_id else own
        skipped = self.skipped_before(first_step)
        return Memory(first_step + steps, *place, settled, own, own, self.run, skipped)

    def worked(self, own: Own) -> Memory:
        """Return the memory of a client that ends its task with `own`."""
        return replace(self, after=own)


class Outcomes(Stateful):
    """What became of the tasks of clients: the clients whose models counted, and the leases accepted."""

    STATE = ("counted", "accepted")

    def __init__(self) -> None:
        self.counted: dict[int, dict[int, frozenset[int]]] = {}
        self.accepted: dict[int, bool] = {}

    def closed(self, lease_id: int, index: int, counted: Iterable[int]) -> None:
        """Take note of the clients whose models went into a round's."""
        rounds = self.counted.get(lease_id, {})  # not changed in place: a snapshot may hold it
        self.counted[lease_id] = {**rounds, index: frozenset(counted)}
        _shorten(self.counted)

    def ended(self, lease_id: int, *, accepted: bool) -> None:
        """Take note of whether the cloud accepted a lease's upload."""
        self.accepted[lease_id] = accepted
        _shorten(self.accepted)

    def of(self, client: int, place: tuple[int, int], *, now: int = 0) -> int:
        """Return what became of a client's task; the lease `now` is still under way."""
        lease_id, index = place
        rounds = self.counted.get(lease_id, {})
        if lease_id != now:
            if not self.accepted.get(lease_id, True):
                return REFUSED
            if lease_id not in self.accepted:
                return UNKNOWN
        return UNKNOWN if index not in rounds else COUNTED if client in rounds[index] else LEFT_OUT


def _shorten(kept: dict[int, Any]) -> None:
    if len(kept) > LEASES_KEPT:
        del kept[next(iter(kept))]


class Memories(Protocol):
    """Where a client keeps its memory."""

    def load(self) -> Memory | None:
        """Return the memory, None before the first task."""
        ...

    def save(self, memory: Memory) -> None:
        """Replace the memory, durably."""
        ...


class MemoryFile:
    """A memory in one file, which is replaced whole."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> Memory | None:
        """Return the memory, None before the first task; a damaged file is an error that names it."""
        if not self.path.exists():
            return None
        memory: Memory = load_checkpoint(self.path)["memory"]
        return memory

    def save(self, memory: Memory) -> None:
        """Write the memory so that a crash leaves the old or the new one."""
        save_checkpoint(self.path, {"memory": memory})
