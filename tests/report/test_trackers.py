"""The files of the trackers: what they hold, after a stop too, and what is said if one cannot be made."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hiflash
from hiflash.cli import main
from hiflash.report.trackers import TRACKERS, make_tracker

Run = Callable[..., hiflash.Result]

pytestmark = pytest.mark.usefixtures("no_figures")


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def rows_of(path: Path, kind: str) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]
    return [row for row in rows if row["event"] == kind]


def scalars(path: Path) -> dict[str, list[tuple[int, float]]]:
    """Return steps and values of every tag, as TensorBoard reads them."""
    pytest.importorskip("tensorboard", reason='tensorboard is not installed: pip install "hiflash[track]"')
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    files = list((path / "tensorboard").iterdir())
    assert len(files) == 1
    read = EventAccumulator(str(files[0]), size_guidance={"scalars": 0}).Reload()
    return {tag: [(point.step, point.value) for point in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


def pause_after(events: int) -> Callable[[], bool]:
    left: Iterator[int] = iter(range(events))
    return lambda: next(left, None) is None


def test_csv_has_a_row_for_every_evaluation_with_all_coordinates(run_tiny: Run, tmp_path: Path) -> None:
    result = run_tiny(directory=tmp_path / "r", observers=["csv"], seed=3)
    found = table(tmp_path / "r/evaluations.csv")
    assert len(found) == 12  # 60 communications, one evaluation per 5
    assert [float(row["accuracy"]) for row in found] == [row["accuracy"] for row in result.evaluations]
    assert {(row["run"], row["method"], row["seed"]) for row in found} == {("r", "hifl", "3")}
    assert [int(row["communications"]) for row in found] == list(range(5, 61, 5))
    assert set(found[0]) == {"run", "method", "seed", *result.evaluations[0]}


def test_csv_has_a_row_for_every_upload_with_its_grant(run_tiny: Run, tmp_path: Path) -> None:
    run_tiny(directory=tmp_path / "r", observers=["csv"], cloud__enforce="discard", cloud__threshold_max=2)
    found, uploads = table(tmp_path / "r/uploads.csv"), rows_of(tmp_path / "r", "upload")
    grants = {str(row["lease"]): row for row in rows_of(tmp_path / "r", "grant")}
    assert [(row["lease"], row["status"], row["staleness"]) for row in found] == [
        (str(row["lease"]), row["status"], str(row["staleness"])) for row in uploads
    ]
    assert {row["status"] for row in found} == {"applied", "rejected"}
    assert [int(row["communications"]) for row in found] == list(range(1, 61))
    for row in found:
        grant = grants[row["lease"]]
        assert (row["threshold"], float(row["granted_s"])) == (grant["threshold"], grant["t"])
        assert float(row["granted_s"]) < float(row["virtual_s"])


def test_tensorboard_reads_back_what_was_measured(run_tiny: Run, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    result = run_tiny(directory=tmp_path / "r", observers=["tensorboard"])
    found = scalars(tmp_path / "r")
    for metric in ("accuracy", "loss"):
        values = [row[metric] for row in result.evaluations]
        for over in ("communications", "client_steps", "wan_bytes", "version"):
            steps, read = zip(*found[f"{metric}/by_{over}"], strict=True)
            assert list(steps) == [row[over] for row in result.evaluations]
            assert list(read) == pytest.approx(values)
        seconds = [step for step, _ in found[f"{metric}/by_virtual_ms"]]
        assert seconds == [round(1000 * row["virtual_s"]) for row in result.evaluations]
    uploads, grants = rows_of(tmp_path / "r", "upload"), rows_of(tmp_path / "r", "grant")
    assert found["staleness/upload"] == [(n, row["staleness"]) for n, row in enumerate(uploads, 1)]
    assert found["threshold/grant"] == [(n, float(row["threshold"])) for n, row in enumerate(grants, 1)]
    assert found["total/total_cost"][-1] == (60, pytest.approx(result.total_cost))


def test_tensorboard_of_pooled_training_draws_over_versions(run_tiny: Run, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    run_tiny("centralized", directory=tmp_path / "r", observers=["tensorboard"], stop__steps=250)
    found = scalars(tmp_path / "r")
    assert set(found) == {"accuracy/by_version", "loss/by_version", "train_loss/by_steps"}
    assert [step for step, _ in found["train_loss/by_steps"]] == [100, 200, 250]


def test_a_synchronous_cloud_has_no_thresholds_to_draw(run_tiny: Run, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    run_tiny("fedavg", directory=tmp_path / "r", observers=["tensorboard"])
    assert "threshold/grant" not in scalars(tmp_path / "r")


def test_files_of_a_resumed_run_are_those_of_an_undisturbed_one(
    run_tiny: Run, resume_tiny: Run, tmp_path: Path
) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    track = ["csv", "tensorboard"]
    (tmp_path / "whole").mkdir()
    run_tiny(directory=tmp_path / "whole/r", observers=track)
    with pytest.raises(hiflash.Paused):
        run_tiny(directory=tmp_path / "r", observers=track, pause=pause_after(70))
    resume_tiny(tmp_path / "r", observers=track)
    for file in ("evaluations.csv", "uploads.csv"):
        assert (tmp_path / "r" / file).read_bytes() == (tmp_path / "whole/r" / file).read_bytes()
    assert scalars(tmp_path / "r") == scalars(tmp_path / "whole/r")


def test_a_finished_run_can_be_tracked_afterwards(run_tiny: Run, resume_tiny: Run, tmp_path: Path) -> None:
    run_tiny(directory=tmp_path / "r")
    assert not (tmp_path / "r/evaluations.csv").exists()
    resume_tiny(tmp_path / "r", observers=["csv"])
    assert len(table(tmp_path / "r/evaluations.csv")) == 12


def test_a_missing_package_is_said_before_anything_is_written(
    run_tiny: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(hiflash.ConfigError, match=r'not installed: pip install "hiflash\[track\]"'):
        run_tiny(directory=tmp_path / "r", observers=["tensorboard"])
    assert not (tmp_path / "r").exists()


SMALL = ["--federation.clients=20", "--federation.edges=4", "--client.batch=8", "--stop.communications=20",
         "--stop.target=none", "--json"]  # fmt: skip


def test_the_command_tracks_a_run_and_a_resumed_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", *SMALL, f"--runs={tmp_path}", "--name=r"]
    assert main([*words, "--track", "csv"]) == 0
    result = json.loads(capsys.readouterr().out)
    before = (tmp_path / "r/evaluations.csv").read_bytes()
    assert len(table(tmp_path / "r/evaluations.csv")) == len(result["evaluations"])
    (tmp_path / "r/evaluations.csv").unlink()
    assert main(["run", "--resume", str(tmp_path / "r"), "--track", "csv", "--json"]) == 0
    assert (tmp_path / "r/evaluations.csv").read_bytes() == before
    assert main([*words, "--track", "cvs"]) == 2
    assert "unknown tracker 'cvs'; there are csv, tensorboard" in capsys.readouterr().err


def test_the_command_tracks_the_cells_of_a_comparison_in_their_own_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hiflash.Comparison, "save", lambda self, directory: [])
    words = ["compare", *SMALL, "--methods=fedavg,hifl", "--seeds=1", f"--runs={tmp_path}", "--name=c"]
    assert main([*words, "--track", "csv"]) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    for cell in cells:
        found = table(tmp_path / "c" / cell["name"] / "evaluations.csv")
        assert [float(row["accuracy"]) for row in found] == [row["accuracy"] for row in cell["evaluations"]]


class Counting(hiflash.Observer):
    """Counts the runs it has seen."""

    seen: list[str] = []  # noqa: RUF012  # shared on purpose: the tracker is made by name

    def finished(self, run: hiflash.RunInfo, result: hiflash.Result) -> None:
        self.seen.append(run.name)


def test_a_tracker_of_the_users_own_is_chosen_by_name(run_tiny: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hiflash.report.trackers.TRACKERS", dict(TRACKERS))
    hiflash.register_tracker("counting", Counting)
    run_tiny(observers=["counting"])
    assert Counting.seen == ["hifl-s0"]
    with pytest.raises(hiflash.ConfigError, match="counting is a tracker that you registered already"):
        hiflash.register_tracker("counting", Counting)
    hiflash.register_tracker("counting", lambda: 3, replace=True)
    with pytest.raises(hiflash.ConfigError, match=r"must return a hiflash\.Observer, got int"):
        make_tracker("counting")
    with pytest.raises(hiflash.ConfigError, match="csv is a tracker of HiFlash"):
        hiflash.register_tracker("csv", Counting, replace=True)
    with pytest.raises(hiflash.ConfigError, match="needs a function that makes one"):
        hiflash.register_tracker("mine", 3)
    with pytest.raises(hiflash.ConfigError, match="lower-case letters"):
        hiflash.register_tracker("My tracker", Counting)


PLUGIN = """
import hiflash

class Lines(hiflash.Observer):
    def finished(self, run, result):
        (run.directory / "lines.txt").write_text(f"{result.communications} communications")

hiflash.register_tracker("lines", Lines)
"""


def test_a_plugin_brings_a_tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hiflash.report.trackers.TRACKERS", dict(TRACKERS))
    (tmp_path / "lines_tracker.py").write_text(PLUGIN)
    plugin = f"--plugin={tmp_path / 'lines_tracker.py'}"
    assert main(["run", *SMALL, plugin, "--track=lines", f"--runs={tmp_path}", "--name=r"]) == 0
    assert (tmp_path / "r/lines.txt").read_text() == "20 communications"
    (tmp_path / "r/lines.txt").unlink()
    assert main(["run", f"--resume={tmp_path / 'r'}", "--track=lines", "--json"]) == 0  # config.toml names it
    assert (tmp_path / "r/lines.txt").read_text() == "20 communications"
