"""When a cloud is told the time."""

import math
from dataclasses import dataclass

from hiflash.core.timers import SlotTimer
from hiflash.messages import Slot


@dataclass
class Cloud:
    """As much of a cloud as a timer looks at."""

    answerable: bool = True
    deadline: float = math.inf


def test_a_check_in_is_answered_at_the_next_slot_boundary():
    timer = SlotTimer(0.5)
    assert timer.schedule(Cloud(), 0.7) == [Slot(2, 1.0)]  # ceil(0.7 / 0.5) = 2, at 2 * 0.5
    assert timer.schedule(Cloud(), 0.8) == []  # it is due already


def test_a_slot_answers_once_however_many_wait():
    timer = SlotTimer(0.5)
    (slot,) = timer.schedule(Cloud(), 1.0)
    timer.passed(slot)
    assert timer.schedule(Cloud(), 1.0) == [Slot(3, 1.5)]  # slot 2, at 1.0, is used up


def test_without_slots_everything_is_answered_now():
    timer = SlotTimer(None)
    (slot,) = timer.schedule(Cloud(), 0.7)
    timer.passed(slot)
    assert [slot, *timer.schedule(Cloud(), 0.7)] == [Slot(0, 0.7), Slot(1, 0.7)]


def test_nobody_to_answer_needs_no_slot_and_a_deadline_needs_one():
    timer = SlotTimer(0.5)
    assert timer.schedule(Cloud(answerable=False), 0.7) == []
    assert timer.schedule(Cloud(answerable=False, deadline=9.25), 0.7) == [Slot(0, 9.25)]
    assert timer.schedule(Cloud(answerable=False, deadline=9.25), 0.8) == []  # once for each deadline


def test_a_restored_timer_goes_on_alike():
    timer, other = SlotTimer(0.5), SlotTimer(0.5)
    timer.passed(timer.schedule(Cloud(), 2.0)[0])
    other.restore(timer.snapshot())
    assert timer.schedule(Cloud(), 2.0) == other.schedule(Cloud(), 2.0) == [Slot(5, 2.5)]
