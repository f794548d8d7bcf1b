import io
import sys
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest
from rich.console import Console

from hiflash.report import live
from hiflash.report.board import Board, RunState
from hiflash.report.live import LiveView

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
    assert cell.shown()["ETA"] == "≤1m 30s"
    assert "≤1m 30s" in _board([cell], 100)[1]
    assert "<1m 30s" in _board([cell], 100, encoding="ascii")[1]
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
    assert len(lines) == 1 + len(states)
    assert max(len(line.rstrip()) for line in lines) < width


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (50, ["%", "acc", "comms", "ETA"]),
        (80, ["%", "acc", "version", "comms", "time", "ETA"]),
        (100, ["%", "acc", "version", "stale", "comms", "time", "ETA"]),
        (140, ["%", "acc", "version", "stale", "comms", "time", "ETA"]),
    ],
)
def test_narrow_terminals_drop_the_less_important_columns(width: int, columns: list[str]) -> None:
    assert _board([RunState("hierfavg seed 0", "running", _progress())], width)[0].split() == columns


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
    lines = _board([done, RunState("b")], 100)
    assert lines[1].startswith("✓ a")
    assert lines[1].split()[-7:] == ["100%", "91.0%", "v40", "1.2", "40", "1m", "40s"]
    assert lines[2].split()[-7:] == ["-"] * 7


def test_the_eta_is_unknown_until_there_is_progress() -> None:
    assert RunState("a", "running").eta_s is None
    assert RunState("a", "running", _progress(fraction=0.0)).eta_s is None
    assert RunState("a", "running", _progress(fraction=0.25)).eta_s == 90.0


def test_among_many_cells_only_running_ones_have_a_line() -> None:
    cells = [RunState(f"cell {i}", "waiting") for i in range(20)]
    cells[0].state = "done"
    cells[1] = RunState("cell 1", "running", _progress())
    lines = _board(cells, 80)
    assert len(lines) == 3
    assert "cell 1" in lines[1]
    assert lines[2].strip() == "1 running, 18 waiting, 1 done"


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
    assert "0 running, 0 waiting, 12 done" in stream.getvalue()
