"""The replay memory: the latest decisions and their consequences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hiflash.errors import RunError
from hiflash.messages import Weights

__all__ = ["Batch", "Replay", "Transition"]


class Transition(NamedTuple):
    """One decision and its consequence.

    `reward` is the discounted sum of the rewards of the `slots` slots until the next decision. `terminated`
    says whether the episode reached the target. A truncated episode has not: its last state keeps its value.
    """

    state: Weights
    action: int
    reward: float
    slots: int
    next_state: Weights
    terminated: bool


class Batch(NamedTuple):
    """The fields of several transitions, one row each."""

    states: Weights
    actions: npt.NDArray[np.int64]
    rewards: Weights
    slots: Weights
    next_states: Weights
    terminated: npt.NDArray[np.bool_]


class Replay:
    """A ring of the last `capacity` transitions (B_max); a state has `width` numbers."""

    def __init__(self, capacity: int, width: int) -> None:
        self.capacity = capacity
        self.seen = 0
        self._rows = Batch(
            states=np.zeros((capacity, width), np.float32),
            actions=np.zeros(capacity, np.int64),
            rewards=np.zeros(capacity, np.float32),
            slots=np.zeros(capacity, np.float32),
            next_states=np.zeros((capacity, width), np.float32),
            terminated=np.zeros(capacity, np.bool_),
        )

    def __len__(self) -> int:
        return min(self.seen, self.capacity)

    def add(self, transition: Transition) -> None:
        """Remember a transition; a full memory forgets its oldest one."""
        place = self.seen % self.capacity
        rows = self._rows
        rows.states[place], rows.next_states[place] = transition.state, transition.next_state
        rows.actions[place], rows.terminated[place] = transition.action, transition.terminated
        rows.rewards[place], rows.slots[place] = transition.reward, transition.slots
        self.seen += 1

    def sample(self, size: int, stream: np.random.Generator) -> Batch:
        """Return `size` transitions, drawn uniformly with replacement."""
        drawn = stream.integers(len(self), size=size)
        return Batch._make(rows.take(drawn, axis=0) for rows in self._rows)

    def snapshot(self) -> dict[str, np.ndarray]:
        """Return the whole memory as arrays."""
        kept = {name: rows[: len(self)].copy() for name, rows in self._rows._asdict().items()}
        return {"seen": np.array(self.seen), **kept}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go back to a snapshot."""
        seen = int(state["seen"].item())
        size = min(seen, self.capacity)
        for name, rows in self._rows._asdict().items():
            kept = state[name]
            if kept.shape != (size, *rows.shape[1:]) or kept.dtype != rows.dtype:
                raise RunError(
                    f"the saved memory does not fit: {name} is {kept.dtype} {kept.shape}, and this memory "
                    f"holds {self.capacity} transitions; use the settings of the first training"
                )
        for name, rows in self._rows._asdict().items():
            rows[:size] = state[name]
        self.seen = seen
