import io
import sys
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest
from rich.console import Console

from hiflash.report import live
from hiflash.report.board import Board, numbers_of
from hiflash.report.live import LiveView
from hiflash.report.run_state import RunState

MakeResult = Callable[..., dict[str, Any]]


class Clock:
    """A clock that the test moves."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(live, "time", clock)
    return clock


def _progress(fraction: float = 0.25, accuracy: float | None = 0.5) -> dict[str, Any]:
    return {
        "communications": 1234,
        "client_steps": 9000,
        "virtual_s": 754.0,
        "version": 1200,
        "accuracy": accuracy,
        "staleness": 2.34,
        "fraction": fraction,
        "wall_s": 30.0,
    }


def _board(cells: list[RunState], width: int, encoding: str = "utf-8") -> list[str]:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=file, width=width, color_system=None)
    console.print(Board(cells))
    file.seek(0)
    return file.read().splitlines()


def test_a_pipe_gets_a_line_at_start_every_five_seconds_and_at_the_end(
    make_result: MakeResult, clock: Clock
) -> None:
    stream = io.StringIO()
    with LiveView(["hifl seed 0"], stream=stream) as view:
        view.started("hifl seed 0")
        for _ in range(11):
            clock.now += 1
            view.progress("hifl seed 0", _progress())
        view.finished("hifl seed 0", make_result())
    line = (
        "hifl seed 0: 25%, accuracy 50.0%, version 1200, staleness 2.3, communications 1.23 k, "
        "virtual time 12m 34s, ETA 1m 30s"
    )
    assert stream.getvalue().splitlines() == [
        "hifl seed 0: started",
        line,
        line,
        "hifl seed 0: done, accuracy 91.0%, target 0.9 reached",
    ]


def test_the_time_to_go_is_at_most_so_long_where_a_target_may_end_the_run(clock: Clock) -> None:
    cell = RunState("a", "running", {**_progress(), "target": 0.9})
    assert numbers_of(cell)["ETA"] == "≤1m 30s"
    assert "≤1m 30s" in _board([cell], 100)[2]
    assert "<1m 30s" in _board([cell], 100, encoding="ascii")[2]
    stream = io.StringIO()
    with LiveView(["a"], stream=stream) as view:
        view.started("a")
        clock.now += 6
        view.progress("a", cell.latest)
    assert stream.getvalue().endswith("ETA at most 1m 30s\n")


def test_plain_output_has_no_escape_codes(make_result: MakeResult, clock: Clock) -> None:
    stream = io.StringIO()
    with LiveView(["a"], stream=stream, plain=True) as view:
        view.note("[bold]note")
        view.started("a")
        clock.now += 6
        view.progress("a", _progress(fraction=0.0, accuracy=None))
        view.finished("a", make_result(accuracies=()))
    assert "\x1b" not in stream.getvalue()
    assert stream.getvalue().startswith("[bold]note\n")
    assert "accuracy -, version 1200" in stream.getvalue()
    assert "ETA -\n" in stream.getvalue()


def test_each_cell_has_its_own_five_seconds(clock: Clock) -> None:
    stream = io.StringIO()
    with LiveView(["a", "b"], stream=stream) as view:
        view.started("a")
        clock.now += 3
        view.started("b")
        clock.now += 3
        view.progress("a", _progress())
        view.progress("b", _progress())
    assert [line[:3] for line in stream.getvalue().splitlines()] == ["a: ", "b: ", "a: "]


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    with LiveView(["a"], stream=stream) as view:
        view.started("a")
    assert stream.getvalue() == "a: started\n"


def test_a_report_after_the_end_is_ignored(make_result: MakeResult, clock: Clock) -> None:
    stream = io.StringIO()
    with LiveView(["a"], stream=stream) as view:
        view.started("a")
        view.finished("a", make_result())
        clock.now += 60
        view.progress("a", _progress())
    assert len(stream.getvalue().splitlines()) == 2


@pytest.mark.parametrize("width", [30, 50, 80, 100, 140])
@pytest.mark.parametrize("name", ["hifl seed 0", "a-name-that-is-much-longer-than-there-is-room-for-seed-0"])
def test_every_cell_is_one_line_that_fits(width: int, name: str) -> None:
    states = [RunState(name, "done", _progress()), RunState(name, "running", _progress()), RunState(name)]
    lines = _board(states, width)
    cells = [line for line in lines if line.startswith(("✓ ", "• ", f"  {name[0]}"))]
    assert len(cells) == len(states)
    assert max(len(line.rstrip()) for line in lines) < width


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (50, ["%", "acc", "comms", "ETA"]),
        (80, ["virtual", "%", "acc", "comms", "time", "ETA"]),
        (100, ["virtual", "%", "acc", "version", "stale", "comms", "time", "ETA"]),
        (140, ["virtual", "%", "acc", "version", "stale", "comms", "time", "ETA"]),
    ],
)
def test_narrow_terminals_drop_the_less_important_columns(width: int, columns: list[str]) -> None:
    heads = _board([RunState("hierfavg seed 0", "running", _progress())], width)[:-1]
    assert " ".join(heads).split() == columns


def test_long_names_keep_their_ends() -> None:
    lines = _board([RunState("x" * 60 + f"seed {seed}", "running", _progress()) for seed in (0, 1)], 80)
    assert "seed 0" in lines[1]
    assert "seed 1" in lines[2]


def test_an_ascii_terminal_gets_ascii() -> None:
    lines = _board(
        [RunState("x" * 60, state, _progress()) for state in ("done", "running", "waiting")], 80, "ascii"
    )
    assert lines[1].startswith("+ xxx")


def test_waiting_cells_show_dashes_and_done_ones_a_tick(make_result: MakeResult) -> None:
    done = RunState("a", "done", {**make_result(), "staleness": 1.25})
    _, _, first, second, _ = _board([done, RunState("b")], 100)
    assert first.startswith("✓ a")
    assert first.split()[-8:] == ["100%", "91.0%", "v40", "1.2", "40", "1m", "40s", "done"]
    assert second.split()[-7:] == ["-"] * 7


def test_the_eta_is_unknown_until_there_is_progress() -> None:
    assert RunState("a", "running").eta_s is None
    assert RunState("a", "running", _progress(fraction=0.0)).eta_s is None
    assert RunState("a", "running", _progress(fraction=0.25)).eta_s == 90.0


def test_a_run_that_has_used_up_its_budget_is_saving() -> None:
    cell = RunState("a", "running", {**_progress(fraction=1.0), "target": 0.9})
    assert numbers_of(cell)["ETA"] == "saving"


def test_a_run_at_its_target_is_full_and_says_so_before_and_after_it_is_saved(
    make_result: MakeResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    at_target = {**_progress(fraction=0.16, accuracy=0.9), "target": 0.9}
    line = _board([RunState("a", "running", at_target)], 100)[2]
    assert "100%" in line
    assert line.rstrip().endswith("target reached")
    assert _board([RunState("a" * 20, "running", at_target)], 60)[-1].rstrip().endswith(" reached")
    stream = io.StringIO()
    with LiveView(["a"], stream=stream, plain=False) as view:
        view.progress("a", at_target)
        view.finished("a", make_result())
    assert stream.getvalue().rstrip().count("target reached") >= 1
    assert "target missed" in _board([RunState("a", "done", {**at_target, "accuracy": 0.89})], 100)[2]


def test_a_bar_is_as_long_as_the_finished_part() -> None:
    def painted(progress: dict[str, Any]) -> int:
        console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system="standard")
        console.print(Board([RunState("a", "running", progress)]))
        bar = console.file.getvalue().splitlines()[2]  # type: ignore[attr-defined]
        return max(len(part.split("m", 1)[1]) for part in bar.split("\x1b[") if "━" in part and "m" in part)

    # Half of the bar has one colour and half the other; a full bar has only one.
    assert painted({**_progress(0.16, 0.9), "target": 0.9}) == painted(_progress(1.0))
    assert painted(_progress(0.5)) < painted(_progress(1.0))


def test_titles_stand_for_names(make_result: MakeResult) -> None:
    stream = io.StringIO()
    with LiveView({"hifl+delta-s0": "HiFL + delta"}, stream=stream) as view:
        view.started("hifl+delta-s0")
        view.finished("hifl+delta-s0", make_result())
    assert [line.partition(":")[0] for line in stream.getvalue().splitlines()] == ["HiFL + delta"] * 2


def test_a_pipe_is_told_about_all_runs_when_one_ends_and_now_and_then(
    make_result: MakeResult, clock: Clock
) -> None:
    stream = io.StringIO()
    with LiveView(["a", "b", "c"], stream=stream, processes=1) as view:
        view.started("a")
        clock.now += 31
        view.progress("a", _progress(0.25))  # 30 s for a quarter: 90 s left, and two runs of 121 s
        clock.now += 29
        view.progress("a", _progress(0.5))
        view.finished("a", make_result(wall_s=58.0))
        clock.now += 2
        view.started("b")
    totals = [line for line in stream.getvalue().splitlines() if "elapsed" in line]
    assert totals == [
        "0 of 3 runs done, 31s elapsed, about 5m 32s left",  # 90 + 2 * 121
        "1 of 3 runs done, 1m 00s elapsed, about 2m 00s left",  # 2 * 60
    ]


WARNING = "did not learn: accuracy 10.0 % after 600 communications, at chance"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_warnings_of_runs_are_lines_under_the_view(width: int) -> None:
    runs = [
        RunState("HiFL, seed 0", "running", {**_progress(), "warnings": [WARNING]}),
        RunState("HiFL, seed 1", "running", {**_progress(), "warnings": []}),
        RunState("HiFL, seed 2", "running", {**_progress(), "warnings": None}),
    ]
    lines = _board(runs, width)
    first = next(place for place, line in enumerate(lines) if line.startswith("warning"))
    assert " ".join(lines[first:]).split() == f"warning: HiFL, seed 0: {WARNING}".split()
    assert max(map(len, lines)) <= width
    assert _board(runs[:1], 120)[-1] == f"warning: {WARNING}"


def test_many_warnings_leave_room_for_the_runs() -> None:
    runs = [RunState(f"run {i}", "running", {**_progress(), "warnings": ["bad"]}) for i in range(7)]
    console = Console(file=io.StringIO(), width=80)
    console.print(Board(runs))
    console.print(Board(runs, final=True))
    lines = [line for line in console.file.getvalue().splitlines() if "warning" in line]  # type: ignore[attr-defined]
    assert lines[:5] == [*(f"warning: run {i}: bad" for i in range(4)), "warning: 3 more"]
    assert lines[5:] == [f"warning: run {i}: bad" for i in range(7)]


def test_a_pipe_gets_a_warning_once_and_its_last_number_at_the_end(
    make_result: MakeResult, clock: Clock
) -> None:
    stream = io.StringIO()
    with LiveView(["a"], stream=stream) as view:
        view.started("a")
        for refused in ("12", "1,240", "8,072"):
            clock.now += 6
            view.progress("a", {**_progress(), "warnings": [f"{refused} updates refused: not finite"]})
        view.finished("a", make_result(warnings=["8,072 updates refused: not finite"]))
    warnings = [line for line in stream.getvalue().splitlines() if line.startswith("warning")]
    assert warnings == [
        "warning: 12 updates refused: not finite",
        "warning: 8,072 updates refused: not finite",
    ]


def test_among_many_cells_only_running_ones_have_a_line() -> None:
    cells = [RunState(f"cell {i}", "waiting") for i in range(20)]
    cells[0].state = "done"
    cells[1] = RunState("cell 1", "running", _progress())
    lines = _board(cells, 80)
    assert len(lines) == 4
    assert "cell 1" in lines[2]
    assert lines[3] == "1 of 20 runs done, 0s elapsed, time left not known yet"


def test_an_exception_gives_the_terminal_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    stream = io.StringIO()
    before = sys.stdout, sys.stderr
    view = LiveView(["a"], stream=stream, plain=False)

    def fail() -> None:
        with view:
            view.started("a")
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        fail()
    hidden, shown = "\x1b[?25l", "\x1b[?25h"
    assert stream.getvalue().rindex(shown) > stream.getvalue().index(hidden)
    assert (sys.stdout, sys.stderr) == before


@pytest.mark.timeout(20)
def test_many_threads_may_report_at_once(make_result: MakeResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    stream = io.StringIO()
    names = [f"cell {i}" for i in range(12)]

    def work(name: str) -> None:
        view.started(name)
        for step in range(20):
            view.progress(name, _progress(fraction=step / 20))
            view.note(f"{name} at {step}")
        view.finished(name, make_result())

    with LiveView(names, stream=stream, plain=False) as view:
        threads = [Thread(target=work, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert stream.getvalue().count("done, accuracy 91.0%") == 12
    assert "12 of 12 runs done" in stream.getvalue()
