from __future__ import annotations

import numpy as np
import pytest

from hiflash.control.replay import Replay, Transition
from hiflash.errors import RunError
from hiflash.seeding import rng


def transition(index: int) -> Transition:
    state = np.float32([index, -index])
    return Transition(state, index % 3, index / 2, index, state + 1, index % 2 == 1)


def filled(capacity: int, count: int) -> Replay:
    memory = Replay(capacity, width=2)
    for index in range(count):
        memory.add(transition(index))
    return memory


def test_the_oldest_is_forgotten_first() -> None:
    memory = filled(capacity=3, count=5)
    assert len(memory) == 3
    seen = memory.sample(200, rng(0, "sample")).states[:, 0]
    assert set(seen.tolist()) == {2, 3, 4}


def test_a_sample_has_only_what_was_seen_and_keeps_the_fields_together() -> None:
    batch = filled(capacity=100, count=4).sample(50, rng(0, "sample"))
    assert set(batch.states[:, 0].tolist()) == {0, 1, 2, 3}
    for row, index in enumerate(batch.states[:, 0].astype(int).tolist()):
        state, action, reward, slots, following, terminated = transition(index)
        assert batch.states[row].tolist() == state.tolist()
        assert batch.next_states[row].tolist() == following.tolist()
        assert (batch.actions[row], batch.rewards[row], batch.slots[row]) == (action, reward, slots)
        assert batch.terminated[row] == terminated


@pytest.mark.parametrize("count", [0, 2, 5])
def test_a_restored_memory_goes_on_alike(count: int) -> None:
    memory, other = filled(3, count), Replay(3, width=2)
    other.restore(memory.snapshot())
    for index in (7, 8):
        memory.add(transition(index))
        other.add(transition(index))
    one, two = (m.sample(20, rng(0, "sample")) for m in (memory, other))
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def test_a_memory_of_another_size_is_refused() -> None:
    with pytest.raises(RunError, match="use the settings of the first training"):
        Replay(2, width=2).restore(filled(3, 3).snapshot())
    with pytest.raises(RunError, match="memory"):
        Replay(3, width=3).restore(filled(3, 3).snapshot())
