"""What a signal does where a program is: at once, at the next question, or in time whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from hiflash.study.signals import Stopped, answered, new_pause


def send_and_wait(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(5)


BOTH = [signal.SIGINT, signal.SIGTERM]


@pytest.mark.parametrize("number", BOTH)
def test_before_anybody_asks_a_signal_raises(number: int) -> None:
    with answered(), pytest.raises(Stopped):
        send_and_wait(number)


@pytest.mark.parametrize("number", BOTH)
def test_once_a_loop_asks_a_signal_waits_for_the_next_question(number: int) -> None:
    with answered():
        pause = new_pause()
        assert pause() is False
        os.kill(os.getpid(), number)
        assert pause() is True


def test_a_second_ctrl_c_does_not_wait_and_a_second_sigterm_does() -> None:
    with answered():
        pause = new_pause()
        pause()
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
        assert pause()
        with pytest.raises(Stopped):
            send_and_wait(signal.SIGINT)


def test_what_fails_because_it_was_interrupted_has_been_stopped() -> None:
    def turned_into_another_error() -> None:
        try:
            send_and_wait(signal.SIGTERM)
        except Stopped:
            raise ValueError from None

    with pytest.raises(Stopped), answered():
        turned_into_another_error()
    with pytest.raises(ValueError, match="its own"), answered():
        raise ValueError("its own")


def test_a_loop_that_does_not_ask_in_time_is_interrupted_while_it_waits() -> None:
    begun = time.monotonic()
    with answered(limit_s=0.2):
        new_pause()()
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(Stopped):
            threading.Event().wait(30)
    assert time.monotonic() - begun < 10


def test_the_next_part_of_a_command_is_set_up_again() -> None:
    with answered():
        new_pause()()
        new_pause()
        with pytest.raises(Stopped):
            send_and_wait(signal.SIGTERM)


def test_handlers_are_as_before_afterwards() -> None:
    before = [signal.getsignal(number) for number in BOTH], sys.unraisablehook
    with answered():
        assert [signal.getsignal(number) for number in BOTH] != before[0]
    assert ([signal.getsignal(number) for number in BOTH], sys.unraisablehook) == before
    assert new_pause()() is False


def test_other_threads_leave_signals_alone() -> None:
    before, seen = signal.getsignal(signal.SIGINT), []

    def elsewhere() -> None:
        with answered():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [before]


HARD_CASES = {
    "swallowed": "while True:\n    try: time.sleep(9)\n    except BaseException: pass",
    "in a finaliser": (
        "class Slow:\n    def __del__(self):\n        print('ready', flush=True)\n        time.sleep(0.6)\n"
        "Slow()\ntime.sleep(60)"
    ),
    "in a weak reference's callback": (
        "import weakref\nclass Thing: pass\nthing = Thing()\n"
        "def gone(_):\n    print('ready', flush=True)\n    time.sleep(0.6)\n"
        "seen = weakref.ref(thing, gone)\ndel thing\ntime.sleep(60)"
    ),
}


@pytest.mark.parametrize("number", BOTH)
@pytest.mark.parametrize("case", HARD_CASES)
def test_a_signal_that_gets_lost_still_ends_the_process_without_a_traceback(case: str, number: int) -> None:
    code = (
        "import sys, time\nfrom hiflash.study.signals import Stopped, answered\n"
        "try:\n  with answered(limit_s=1.0):\n    print('ready', flush=True)\n"
        + "".join(f"    {line}\n" for line in HARD_CASES[case].splitlines())
        + "except Stopped: sys.exit(130)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for _ in range(1 if case == "swallowed" else 2):  # the second is said by what must be interrupted
        assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "ignored" not in err
