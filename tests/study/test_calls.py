"""Everything a command does is one call in Python: both give the same numbers and leave the same files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hiflash
from hiflash.cli import main
from hiflash.control.surrogate.file import save_surrogate
from hiflash.control.surrogate.model import Surrogate

SETTINGS: dict[str, Any] = {
    "data.name": "mnist5k",
    "federation.clients": 20,
    "federation.edges": 4,
    "client.batch": 8,
    "stop.target": 0.25,
    "stop.communications": 12,
    "evaluate.every": 2,
    "workers": 1,
}
TIMES = ("wall_s", "seconds", "name")

Command = Callable[..., Any]

pytestmark = pytest.mark.usefixtures("no_figures")


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Return a caller of the command line, which gives what it printed as an object."""
    monkeypatch.chdir(tmp_path)

    def call(name: str, *words: str) -> Any:
        settings = [f"--{key}={value}" for key, value in SETTINGS.items()]
        assert main([name, *words, *settings, "--name=there", "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return call


def same(one: Any) -> Any:
    """Return numbers as JSON has them, without those that differ from run to run."""
    text = json.dumps(one)

    def without(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return {key: value for key, value in pairs if key not in TIMES}

    return json.loads(text, object_pairs_hook=without)


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def test_run(command: Command) -> None:
    told = command("run", "--seed=1", "--track=csv")
    result = hiflash.run(directory="runs/here", seed=1, observers=["csv"], **SETTINGS)
    assert same(result.to_dict()) == same(told)
    assert files(Path("runs/here")) == files(Path("runs/there"))


def test_compare(command: Command) -> None:
    told = command("compare", "--methods=fedavg,hifl", "--seeds=1", "--processes=1")
    comparison = hiflash.compare(methods=["fedavg", "hifl"], seeds=1, directory="runs/here", **SETTINGS)
    assert same({"cells": comparison.numbers(), "rows": comparison.rows()}) == same(told)
    assert files(Path("runs/here")) == files(Path("runs/there")) > {path.name for path in comparison.files}


def test_sweep(command: Command) -> None:
    told = command("sweep", "--set=cloud.alpha=0.5,0.7", "--by=communications", "--processes=1")
    sweep = hiflash.sweep(
        grid={"cloud.alpha": [0.5, 0.7]}, by="communications", directory="runs/here", **SETTINGS
    )
    assert same({"by": sweep.by, "cells": sweep.numbers(), "rows": sweep.rows()}) == same(told)
    assert files(Path("runs/here")) == files(Path("runs/there")) > {path.name for path in sweep.files}


def test_associate(command: Command) -> None:
    told = command("associate", "--strategy=heterogeneity,random", "--sweep=0,100,...,300")
    study = hiflash.associate(
        strategies=["heterogeneity", "random"], sweep="0,100,...,300", directory="runs/here", **SETTINGS
    )
    assert len(told) == 5  # lambda 0, 100, 200, 300, and random
    assert same(study.to_json()) == same(told)
    assert files(Path("runs/here")) == files(Path("runs/there")) == {path.name for path in study.files}
    listed = hiflash.associate(strategies=["heterogeneity", "random"], sweep=[0, 100, 200, 300], **SETTINGS)
    assert same(listed.to_json()) == same(told)


def test_associate_takes_the_strategy_of_the_settings(command: Command) -> None:
    told = command("associate", "--federation.association=latency")
    assert told["strategy"] == "latency"
    settings = {**SETTINGS, "federation.association": "latency"}
    assert same(hiflash.associate(**settings).to_json()) == same(told)
    assert hiflash.associate(**SETTINGS).rows[0].strategy == "heterogeneity"  # as the command does


def test_calibrate(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hiflash.study.calibrate.REHEARSALS", 2)
    words = ("--fit-seeds=5,6", "--check-seeds=1", "--check-policies=random", "--processes=1")
    told = command("calibrate", *words)
    calibration = hiflash.calibrate(
        directory="runs/here", fit_seeds=[5, 6], check_seeds=[1], check_policies=["random"], **SETTINGS
    )
    assert same(calibration.numbers()) == same(told)
    assert files(Path("runs/here")) == files(Path("runs/there"))


QUICK = Surrogate(-1.5, 1.1, 0.5, 0.02, 0.4, 0.1, 0.1, 0.5)


def test_train_agent(command: Command, tmp_path: Path) -> None:
    save_surrogate(tmp_path / "quick.json", QUICK, {})
    told = command("train-agent", "--episodes=2", "--surrogate=quick.json", "--reward=paper")
    episodes: list[dict[str, Any]] = []
    trained = hiflash.train_agent(
        directory="runs/here", episodes=2, surrogate="quick.json", reward="paper", progress=episodes.append,
        **SETTINGS,
    )  # fmt: skip
    assert same(trained.record) == same(told)
    assert episodes == trained.record["episodes"]
    assert trained.path == Path("runs/here/agent.safetensors")
    assert files(Path("runs/here")) == files(Path("runs/there"))
    acting = {**SETTINGS, "cloud.agent": str(trained.path)}
    assert hiflash.run(method="hiflash", **acting).agent == trained.agent.digest


def test_evaluate_agent(command: Command) -> None:
    words = ("--policies=random,fixed-0", "--associations=aware", "--enforce=admit", "--dynamics=static",
             "--seeds=1", "--choice-seeds=none", "--processes=1")  # fmt: skip
    told = command("evaluate-agent", *words)
    asked: dict[str, Any] = {
        "directory": "runs/here", "policies": ["random", "fixed-0"], "associations": ["aware"],
        "enforce": ["admit"], "dynamics": ["static"], "seeds": 1, "choice_seeds": [], **SETTINGS,
    }  # fmt: skip
    with pytest.raises(hiflash.RunError, match="no finished run of this evaluation"):
        hiflash.evaluate_agent(finished=True, **asked)
    measured: list[int] = []
    evaluation = hiflash.evaluate_agent(progress=measured.append, **asked)
    assert measured == [0, 1, 2]
    assert same(evaluation.to_json()) == same(told)
    assert files(Path("runs/here")) == files(Path("runs/there")) > {path.name for path in evaluation.files}
    assert hiflash.evaluate_agent(finished=True, **asked).to_json() == evaluation.to_json()


def test_methods(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", "--json"]) == 0
    told = {"methods": hiflash.list_methods(), "parts": hiflash.list_parts()}
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(told))


def test_datasets(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["data", "list"]) == 0
    printed = capsys.readouterr().out
    assert all(row.name in printed for row in hiflash.list_datasets())
    assert main(["data", "check", "mnist5k"]) == 0
    printed = capsys.readouterr().out.replace("\n", "")
    assert all(f"ok  {row.file}" in printed for row in hiflash.check_dataset("mnist5k"))
    assert main(["data", "fetch", "mnist5k"]) == 0
    printed = capsys.readouterr().out.replace("\n", "")
    assert all(str(path) in printed for path in hiflash.fetch_dataset("mnist5k"))
    with pytest.raises(hiflash.DataError, match="only http:// and https://"):
        hiflash.fetch_dataset("mnist", tmp_path, mirror="ftp://example.org")


WRONG: dict[str, tuple[Callable[..., Any], dict[str, Any], str]] = {
    "episodes": (hiflash.train_agent, {"episodes": "2"}, "episodes must be a whole number"),
    "no episodes": (hiflash.train_agent, {"episodes": 0}, "episodes must be at least 1"),
    "reward": (hiflash.train_agent, {"reward": "more"}, "reward must be one of progress, paper, got 'more'"),
    "network": (hiflash.train_agent, {"network": 3}, "network must be a name, got 3"),
    "surrogate": (hiflash.train_agent, {"surrogate": 3}, 'surrogate must be "auto", a file'),
    "policies": (hiflash.evaluate_agent, {"policies": 3}, "policies must be a list of names, got 3"),
    "agent": (hiflash.evaluate_agent, {"agent": {"aware": 3}}, "agent must be agents by condition"),
    "choice": (hiflash.evaluate_agent, {"choice_seeds": "1"}, "choice_seeds must be a list of seeds"),
    "sweep": (hiflash.associate, {"sweep": [-1]}, "sweep must be numbers from 0 to 1e9"),
    "a text": (hiflash.associate, {"sweep": "a"}, "sweep must be numbers like 0,50,...,1000, got a"),
    "strategies": (hiflash.associate, {"strategies": 3}, "strategies must be a list of names"),
    "an unknown one": (hiflash.associate, {"strategies": ["x"]}, "federation.association must be"),
    "a setting": (hiflash.associate, {"cloud": {"alfa": 1}}, "unknown key cloud.alfa"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_call_says_what_is_wrong_with_its_arguments(case: str, tmp_path: Path) -> None:
    call, wrong, said = WRONG[case]
    with pytest.raises(hiflash.ConfigError, match=said.replace("...", r"\.\.\.")):
        call(directory=tmp_path / "r", **wrong)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("call", [hiflash.list_datasets, hiflash.check_dataset, hiflash.fetch_dataset])
def test_a_dataset_is_a_name_and_a_folder_a_path(call: Callable[..., Any]) -> None:
    with pytest.raises(hiflash.ConfigError, match="must be"):
        call(3)


def test_federation(tmp_path: Path) -> None:
    assert (
        main(["federation", "example", "--out", str(tmp_path / "a"), "--clients", "12", "--edges", "3"]) == 0
    )
    made = hiflash.example_federation(12, 3)
    files = hiflash.write_federation(made, tmp_path / "b")
    assert {path.name: path.read_bytes() for path in files} == {
        path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()
    }
    assert (hiflash.read_federation(tmp_path / "a").latency_ms == made.latency_ms).all()
