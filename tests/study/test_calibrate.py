"""Calibration from plan to files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import hiflash
from hiflash.cli import main
from hiflash.config import Config
from hiflash.control.surrogate.file import load_surrogate
from hiflash.control.surrogate.run_log import read_log
from hiflash.errors import ConfigError, RunError
from hiflash.sim.federation import outline
from hiflash.study.calibrate import calibration_cells

SMALL = {
    "federation.clients": 12,
    "federation.edges": 4,
    "client.batch": 20,
    "client.lr": 0.1,
    "evaluate.every": 4,
    "stop.target": 0.5,
    "stop.communications": 24,
    "workers": 1,
}


def test_a_calibration_fits_random_and_uneven_runs_and_checks_others() -> None:
    cells = calibration_cells(fit_seeds=[200, 201, 202], check_seeds=[100, 101])
    fit = [cell.name for cell in cells if cell.tags["use"] == "fit"]
    assert fit == ["random-s200", "random-s201", "random-s202", "uneven-s200"]
    check = [cell for cell in cells if cell.tags["use"] == "check"]
    assert [cell.name for cell in check[::2]] == [
        "random-s100", "fixed-0-s100", "fixed-1-s100", "fixed-2-s100",
        "fixed-4-s100", "fixed-8-s100", "fixed-16-s100", "skip-5-s100",
    ]  # fmt: skip
    by_name = {cell.name: cell.config for cell in cells}
    assert by_name["fixed-8-s101"].cloud.threshold == 8
    assert by_name["skip-5-s101"].cloud.threshold == "skip_slowest"
    assert by_name["skip-5-s101"].cloud.skipped == 5
    assert {cell.config.method for cell in cells} == {"hiflash"}
    assert all(cell.config.seed == int(cell.name.rpartition("s")[2]) for cell in cells)


def test_what_is_checked_fits_the_federation_or_is_as_asked() -> None:
    small = calibration_cells(settings={"federation.edges": 4, "cloud.threshold_max": 4}, check_seeds=[1])
    names = [cell.name for cell in small if cell.tags["use"] == "check"]
    assert names == ["random-s1", "fixed-0-s1", "fixed-1-s1", "fixed-2-s1", "fixed-4-s1", "skip-2-s1"]
    asked = calibration_cells(check_policies="latency,fixed-3", check_seeds=[1])
    assert [cell.name for cell in asked if cell.tags["use"] == "check"] == ["latency-s1", "fixed-3-s1"]
    (agent,) = calibration_cells(check_policies="agent", check_seeds=[1], settings={"cloud.agent": "mnist"})[
        -1:
    ]
    assert (agent.name, agent.config.cloud.threshold, agent.config.cloud.agent) == (
        "agent-s1",
        "agent",
        "mnist",
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"settings": {"seed": 1}}, "a calibration varies seed itself.*fit_seeds and check_seeds"),
        ({"settings": {"cloud.threshold": 2}}, "a calibration varies cloud.threshold itself.*check_policies"),
        ({"fit_seeds": [1, 2], "check_seeds": [2]}, "fit_seeds and check_seeds both have 2"),
        ({"fit_seeds": []}, "seeds must be"),
        ({"check_seeds": [1, 1]}, "check_seeds has 1 twice"),
        ({"check_policies": ""}, "policies must be a list like random,fixed-2,skip-5, got none"),
        ({"check_policies": "fixed"}, "policies may be inf, parallel, .*, got 'fixed'"),
        ({"check_policies": "fixed--1"}, "policies may be inf, parallel"),
        ({"check_policies": "skip-10"}, r"cloud.skipped \(10\) must be less than federation.edges \(10\)"),
        (
            {"settings": {"method": "fedavg"}},
            "for asynchronous methods with edges, and fedavg is not one;",
        ),
        ({"settings": {"method": "fedasync"}}, "asynchronous methods with edges, and fedasync is not one"),
        ({"settings": {"cloud.mixing": "buffer"}}, 'cloud.mixing = "buffer" combines several updates; use'),
        ({"settings": {"client.batch_norm": "local"}}, 'client.batch_norm = "local" makes many'),
        ({"settings": {"stop.target": "none"}}, "a surrogate is for runs with a target; set stop.target"),
        ({"settings": {"stop.target": 1.0}}, "a surrogate never reaches an accuracy of 1; set stop.target"),
        ({"settings": {"mobility.absent": 0.1}}, "leave out mobility"),
        ({"settings": {"attack.kind": "noise"}}, "leave out attack"),
        ({"settings": {"edge.aggregate": "median"}}, "leave out edge.aggregate"),
        ({"settings": {"cloud.norm_bound": 1.0}}, "leave out cloud.norm_bound"),
        ({"settings": {"trainer": "none"}}, "a surrogate replaces training, and this configuration trains"),
    ],
)
def test_what_cannot_be_calibrated_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        calibration_cells(**given)


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, hiflash.Calibration, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("runs") / "small"
    asked = {
        "directory": folder, "fit_seeds": [5, 6], "check_seeds": [1, 2],
        "check_policies": ["random", "fixed-0"], **SMALL,
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hiflash.study.run.draw_result", lambda result, folder: None)
        patch.setattr("hiflash.study.calibrate.REHEARSALS", 2)
        return folder, hiflash.calibrate(**asked), asked


def test_a_small_calibration_from_runs_to_files(
    calibrated: tuple[Path, hiflash.Calibration, dict[str, Any]],
) -> None:
    folder, calibration, _ = calibrated
    assert [cell.name for cell in calibration.fitted] == ["random-s5", "random-s6", "uneven-s5"]
    names = [path.name for path in calibration.files]
    assert names == ["surrogate.json", "calibration.json", "calibration.png", "calibration.pdf"]
    assert all((folder / name).is_file() for name in names)
    assert load_surrogate(folder / "surrogate.json", Config()) == calibration.surrogate
    saved = json.loads((folder / "surrogate.json").read_text())["about"]
    assert saved["data"] == "mnist5k"
    assert saved["fitted_on"] == ["random-s5", "random-s6", "uneven-s5"]
    report = json.loads((folder / "calibration.json").read_text())["report"]
    assert saved["report"] == report
    assert [row["policy"] for row in report["policies"]] == ["random", "fixed-0"]
    assert [row["seeds"] for row in report["policies"]] == [2, 2]
    assert all(len(row["shares"][0]["real"]) == 4 for row in report["policies"])


def test_calibrating_again_keeps_finished_runs_and_gives_the_same(
    calibrated: tuple[Path, hiflash.Calibration, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, calibration, asked = calibrated
    monkeypatch.setattr("hiflash.study.calibrate.REHEARSALS", 2)

    def untouched() -> dict[str, int]:
        return {path.parent.name: path.stat().st_mtime_ns for path in folder.glob("*/result.json")}

    before = untouched()
    again = hiflash.calibrate(**asked)
    assert untouched() == before
    assert len(before) == 7
    assert again.numbers() == calibration.numbers()


def test_a_log_has_the_updates_and_evaluations_of_the_run(
    calibrated: tuple[Path, hiflash.Calibration, dict[str, Any]],
) -> None:
    folder, _, _ = calibrated
    data, spec = outline(Config.load(folder / "random-s5" / "config.toml"))
    log = read_log(folder / "random-s5", data, spec)
    result = json.loads((folder / "random-s5" / "result.json").read_text())
    assert len(log.updates) == result["version"]
    per_edge = [sum(edge == each for edge, _, _ in log.updates) for each in range(4)]
    assert per_edge == result["applied_per_edge"]
    staleness = [number - base for number, (_, base, _) in enumerate(log.updates)]
    assert sum(staleness) / len(staleness) == pytest.approx(result["staleness"]["mean"])
    assert log.evaluations == [(row["version"], row["accuracy"]) for row in result["evaluations"]]
    assert log.shares.shape == (4, 10)
    assert log.shares.sum(axis=1) == pytest.approx(1)


def test_a_log_of_a_run_with_a_validation_set_has_its_accuracies(tmp_path: Path) -> None:
    config = Config(method="hiflash", **SMALL, **{"cloud.threshold": "random", "evaluate.validation": 0.1})
    result = hiflash.run(config, directory=tmp_path / "run")
    data, spec = outline(config)
    log = read_log(tmp_path / "run", data, spec)
    assert log.evaluations == [(row["version"], row["validation_accuracy"]) for row in result.evaluations]
    assert log.evaluations != [(row["version"], row["accuracy"]) for row in result.evaluations]


def test_a_damaged_log_is_refused(
    calibrated: tuple[Path, hiflash.Calibration, dict[str, Any]], tmp_path: Path
) -> None:
    folder, _, _ = calibrated
    data, spec = outline(Config.load(folder / "random-s5" / "config.toml"))
    (tmp_path / "config.toml").write_bytes((folder / "random-s5" / "config.toml").read_bytes())
    for content in (
        b'{"event": "gra',
        b"[1]\n",
        b"[" * 100_000,
        b'{"event": "upload", "status": "applied", "edge": 1, "lease": 7}\n',
    ):
        (tmp_path / "events.jsonl").write_bytes(content)
        with pytest.raises(RunError, match=r"is not the log of a run .*; run it again"):
            read_log(tmp_path, data, spec)


def the_command(folder: Path) -> list[str]:
    """Return the command that makes what `calibrated` has."""
    words = ["calibrate", "--runs", str(folder.parent), "--name", "small", "--fit-seeds", "5,6"]
    words += ["--check-seeds", "1,2", "--check-policies", "random,fixed-0"]
    return words + [word for key, value in SMALL.items() for word in (f"--{key}", str(value))]


def test_the_command_can_be_interrupted_while_it_checks(
    calibrated: tuple[Path, hiflash.Calibration, dict[str, Any]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, calibration, _ = calibrated
    monkeypatch.setattr("hiflash.control.surrogate.fit.fit_surrogate", lambda logs: calibration.surrogate)
    rehearsed: list[int] = []
    monkeypatch.setattr("hiflash.control.surrogate.rehearsal.rehearse", lambda *_: rehearsed.append(1))
    monkeypatch.setattr("hiflash.cli.calibrate.pause_on_signal", lambda: lambda: len(rehearsed) == 8)
    assert main(the_command(folder)) == 130
    assert len(rehearsed) == 8  # of the first of four runs
    assert f"paused; give the same command again to go on with {folder}" in capsys.readouterr().err


def test_the_command_prints_one_object_and_goes_on_with_what_is_there(
    calibrated: tuple[Path, hiflash.Calibration, dict[str, Any]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, calibration, _ = calibrated
    monkeypatch.setattr("hiflash.study.calibrate.REHEARSALS", 2)
    monkeypatch.setattr("hiflash.report.calibration_figures.draw_calibration", lambda *_: [])
    assert main([*the_command(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(calibration.numbers()))
    assert main(the_command(folder)) == 0
    out = capsys.readouterr().out
    assert "surrogate and real runs: to 50% accuracy, mean of 2 seeds" in out
    assert "rank correlation" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--fit-seeds", "a"], "--fit-seeds must be a list of seeds like 100,101,102, got a"),
        (["--check-seeds", "200"], "fit_seeds and check_seeds both have 200"),
        (["--check-policies", "fast"], "policies may be inf, parallel"),
        (["--cloud.mixing", "tiers"], "cloud.mixing"),
        (["missing.toml"], "missing.toml does not exist"),
    ],
)
def test_bad_input_is_said_and_nothing_is_written(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", "--runs", str(tmp_path / "runs"), *words]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_other_events_than_the_run_wrote_are_refused(
    calibrated: tuple[Path, hiflash.Calibration, dict[str, Any]], tmp_path: Path
) -> None:
    folder, _, _ = calibrated
    data, spec = outline(Config.load(folder / "random-s5" / "config.toml"))
    shutil.copytree(folder / "random-s5", tmp_path / "r")
    events = tmp_path / "r" / "events.jsonl"
    changed = events.read_text().replace('"edge":1', '"edge":2', 1)  # still the log of a run
    assert changed != events.read_text()
    events.write_text(changed)
    with pytest.raises(RunError, match=r"events\.jsonl is damaged: SHA256SUMS has another checksum"):
        read_log(tmp_path / "r", data, spec)
