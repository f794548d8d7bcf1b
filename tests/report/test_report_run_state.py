"""The time left for several runs, worked by hand."""

from typing import Any, Literal

from hiflash.report.board import total_line
from hiflash.report.run_state import RunState, TimeLeft, time_left


def run(
    state: Literal["waiting", "running", "done"],
    elapsed_s: float = 0.0,
    fraction: float | None = None,
    target: float | None = None,
) -> RunState:
    latest: dict[str, Any] = {"fraction": fraction, "wall_s": elapsed_s, "target": target, "accuracy": 0.5}
    return RunState("a run", state, latest if state == "running" else {}, elapsed_s)


def test_nothing_is_known_before_a_run_has_got_anywhere() -> None:
    assert time_left([run("waiting")] * 3, 2) is None
    assert time_left([run("running", 5.0, 0.0), run("waiting")], 2) is None
    line = total_line([run("running"), run("waiting")], 5.0, None)
    assert line == "0 of 2 runs done, 5s elapsed, time left not known yet"


def test_nothing_is_left_when_all_are_done() -> None:
    assert time_left([run("done", 10.0)] * 2, 2) == TimeLeft(0.0, at_most=False)
    assert total_line([run("done")] * 2, 75.0, None) == "2 of 2 runs done, 1m 15s elapsed"


def test_waiting_runs_take_as_long_as_finished_ones_and_share_the_processes() -> None:
    runs = [run("done", 20.0), run("done", 40.0), run("running", 10.0, 0.5), *[run("waiting")] * 4]
    # A run takes 30 s. The running one has no target and 10 s to go.
    assert time_left(runs, 1) == TimeLeft(130.0, at_most=False)  # 10 + 4 * 30
    # Two processes: one free after 10 s, the other now: 0-30, 10-40, 30-60, 40-70.
    assert time_left(runs, 2) == TimeLeft(70.0, at_most=False)
    assert time_left(runs, 8) == TimeLeft(30.0, at_most=False)


def test_before_a_run_is_done_the_running_ones_tell_by_their_budgets() -> None:
    runs = [run("running", 10.0, 0.25), run("running", 10.0, 0.5), run("waiting")]
    # 30 s and 10 s to go, 40 s and 20 s in all: the waiting one takes 30 s from 10 s on.
    assert time_left(runs, 2) == TimeLeft(40.0, at_most=False)


def test_a_target_makes_it_an_upper_bound_until_finished_runs_tell_better() -> None:
    running = run("running", 10.0, 0.1, target=0.9)
    assert time_left([running, run("waiting")], 1) == TimeLeft(190.0, at_most=True)  # 90 + 100
    assert time_left([run("done", 30.0), running, run("waiting")], 1) == TimeLeft(50.0, at_most=False)
    # Longer than the finished one already: only its budget tells.
    assert time_left([run("done", 8.0), running, run("waiting")], 1) == TimeLeft(98.0, at_most=True)
    assert total_line([running] * 2, 10.0, TimeLeft(190.0, at_most=True)).endswith("at most 3m 10s left")


def test_a_run_that_was_finished_long_ago_and_says_no_time_does_not_count() -> None:
    assert time_left([run("done", 0.0), run("waiting")], 1) is None


def test_the_longest_line_fits_into_sixty_columns() -> None:
    runs = [run("done")] * 119 + [run("waiting")]
    assert len(total_line(runs, 3599.0, TimeLeft(12 * 3600.0, at_most=True))) <= 60
