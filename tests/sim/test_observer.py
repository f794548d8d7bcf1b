"""What observers see: every row, once, in order, also after a stop; and whose errors are whose."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import hiflash
from hiflash.sim.observer import Audience
from tiny import TINY, make_tiny_model

Run = Callable[..., hiflash.Result]
MOVING = {"mobility.moves_per_s": 2.0, "mobility.repair_s": 1.0, "federation.association": "data"}


class Recorder(hiflash.Observer):
    """Keeps everything it is told."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.rows: list[Mapping[str, Any]] = []
        self.evaluations: list[Mapping[str, Any]] = []
        self.result: hiflash.Result | None = None

    def started(self, run: hiflash.RunInfo) -> None:
        self.calls.append(f"started {run.name}")

    def event(self, run: hiflash.RunInfo, row: Mapping[str, Any]) -> None:
        self.rows.append(row)

    def evaluation(self, run: hiflash.RunInfo, row: Mapping[str, Any]) -> None:
        self.evaluations.append(row)

    def finished(self, run: hiflash.RunInfo, result: hiflash.Result) -> None:
        self.calls.append(f"finished {run.name}")
        self.result = result

    def stopped(self, run: hiflash.RunInfo) -> None:
        self.calls.append(f"stopped {run.name}")


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]


def pause_after(events: int) -> Callable[[], bool]:
    left: Iterator[int] = iter(range(events))
    return lambda: next(left, None) is None


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize(
    "settings",
    [{}, {"method": "hierfavg"}, {"method": "centralized", "stop.steps": 250}, MOVING],
    ids=["hifl", "hierfavg", "centralized", "moving"],
)
def test_an_observer_sees_the_rows_of_events_jsonl_and_the_evaluations_of_the_result(
    settings: dict[str, Any], run_tiny: Run, tmp_path: Path
) -> None:
    seen = Recorder()
    result = run_tiny(directory=tmp_path / "r", observers=[seen], **settings)
    assert seen.rows == rows_of(tmp_path / "r")
    assert seen.evaluations == result.evaluations
    assert seen.calls == ["started r", "finished r"]
    assert seen.result is result
    assert result.digest == run_tiny(**settings).digest


def test_a_run_without_a_directory_is_observed_too(run_tiny: Run) -> None:
    seen = Recorder()
    result = run_tiny(observers=[seen])
    assert [seen.rows[0]["event"], seen.rows[-1]["event"]] == ["start", "stop"]
    assert seen.evaluations == result.evaluations
    assert seen.calls == ["started hifl-s0", "finished hifl-s0"]


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize("workers", [1, 2])
def test_an_observer_of_a_resumed_run_sees_every_row_once(
    workers: int, run_tiny: Run, resume_tiny: Run, tmp_path: Path
) -> None:
    whole, first, second, last = Recorder(), Recorder(), Recorder(), Recorder()
    run_tiny(directory=tmp_path / "whole", observers=[whole])
    with pytest.raises(hiflash.Paused):
        run_tiny(directory=tmp_path / "r", observers=[first], pause=pause_after(90), workers=workers)
    # A killed process leaves rows behind its checkpoint; they are made again.
    with (tmp_path / "r/events.jsonl").open("a") as events:
        events.write('{"t":99.0,"event":"grant","edge":0}\n')
    with pytest.raises(hiflash.Paused):
        resume_tiny(tmp_path / "r", observers=[second], pause=pause_after(50), workers=workers)
    resume_tiny(tmp_path / "r", observers=[last], workers=workers)
    assert 0 < len(first.rows) < len(second.rows) < len(whole.rows)
    assert first.rows == whole.rows[: len(first.rows)]
    assert second.rows == whole.rows[: len(second.rows)]
    assert last.rows == whole.rows == rows_of(tmp_path / "r")
    assert last.evaluations == whole.evaluations
    assert [first.calls, last.calls] == [["started r", "stopped r"], ["started r", "finished r"]]


@pytest.mark.usefixtures("no_figures")
def test_a_finished_run_is_shown_from_its_files(run_tiny: Run, resume_tiny: Run, tmp_path: Path) -> None:
    result = run_tiny(directory=tmp_path / "r")
    seen = Recorder()
    resume_tiny(tmp_path / "r", observers=[seen])
    assert seen.rows == rows_of(tmp_path / "r")
    assert seen.evaluations == result.evaluations
    assert seen.calls == ["started r", "finished r"]
    with (tmp_path / "r/events.jsonl").open("a") as events:
        events.write("{}\n")
    with pytest.raises(hiflash.DamageError, match=r"events\.jsonl is damaged"):
        resume_tiny(tmp_path / "r", observers=[Recorder()])


class MineError(Exception):
    """What a user's own code raises."""


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize("method", ["started", "event", "evaluation", "progress", "finished"])
def test_what_an_observer_raises_passes_through_and_the_others_hear_of_it(
    method: str, run_tiny: Run, resume_tiny: Run, tmp_path: Path
) -> None:
    error = MineError("mine")

    def raise_mine(self: object, *_: object) -> None:
        raise error

    raising = type("Raising", (hiflash.Observer,), {method: raise_mine})()
    before, after = Recorder(), Recorder()
    with pytest.raises(MineError) as caught:
        run_tiny(directory=tmp_path / "r", observers=[before, raising, after])
    assert caught.value is error
    ended = "finished r" if method == "finished" else "stopped r"
    assert before.calls == ["started r", ended]
    assert after.calls == ([] if method == "started" else ["started r", ended])
    assert resume_tiny(tmp_path / "r").digest == run_tiny().digest


def test_without_an_observer_of_rows_the_log_is_the_one_that_saves() -> None:
    def save(now: float, kind: str, row: Mapping[str, Any]) -> None:
        pass

    class Bar(hiflash.Observer):
        def progress(self, run: hiflash.RunInfo, status: Mapping[str, Any]) -> None:
            pass

    about = hiflash.RunInfo("r", hiflash.Config())
    assert Audience([Bar()]).log(about, save) is save
    assert Audience([Bar(), Recorder()]).log(about, save) is not save


SMALL = {
    "methods": ["fedavg", "hifl"], "seeds": 1, "federation.clients": 20, "federation.edges": 4,
    "client.batch": 8, "stop.target": "none", "stop.communications": 30,
}  # fmt: skip


class ByRun(hiflash.Observer):
    """Keeps the rows of each run apart."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Mapping[str, Any]]] = {}
        self.labels: dict[str, str] = {}

    def started(self, run: hiflash.RunInfo) -> None:
        self.rows[run.name] = []
        self.labels[run.name] = run.tags["label"]

    def event(self, run: hiflash.RunInfo, row: Mapping[str, Any]) -> None:
        self.rows[run.name].append(row)


@pytest.mark.usefixtures("no_figures")
def test_rows_of_other_processes_come_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hiflash.Comparison, "save", lambda self, directory: [])
    apart, again = ByRun(), ByRun()
    hiflash.compare(directory=tmp_path / "c", processes=2, observers=[apart], **SMALL)
    names = ["fedavg-noniid2-s0", "hifl-noniid2-s0"]
    assert apart.rows == {name: rows_of(tmp_path / "c" / name) for name in names}
    assert apart.labels == dict(zip(names, SMALL["methods"], strict=True))
    hiflash.compare(directory=tmp_path / "c", processes=2, observers=[again], **SMALL)  # finished: read back
    assert again.rows == apart.rows


def test_a_sweep_names_the_point_of_every_run(tiny_data: hiflash.Dataset) -> None:
    points = []

    class Points(hiflash.Observer):
        def finished(self, run: hiflash.RunInfo, result: hiflash.Result) -> None:
            points.append((run.name, run.tags["point"]))

    hiflash.sweep(
        grid={"cloud.alpha": [0.5, 0.7]}, observers=[Points()], data=tiny_data, model=make_tiny_model,
        **{**TINY, "stop.communications": 4},
    )  # fmt: skip
    assert points == [("alpha0.5-s0", {"cloud.alpha": 0.5}), ("alpha0.7-s0", {"cloud.alpha": 0.7})]
