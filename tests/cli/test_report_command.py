"""`hiflash report` on the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import hiflash
from hiflash.cli import main


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a comparison of four runs that trained nothing."""
    home = tmp_path_factory.mktemp("made")
    hiflash.compare(
        methods=["fedavg", "hifl"],
        seeds=2,
        trainer="none",
        data={"name": "none"},
        stop={"communications": 20},
        directory=home / "runs/plan",
    )
    return home


@pytest.fixture
def plan(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a copy of that folder."""
    home = Path(shutil.copytree(made, tmp_path / "here"))
    monkeypatch.chdir(home)
    return home


def test_it_writes_a_page_and_says_where(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "runs/plan"]) == 0
    out = capsys.readouterr().out
    assert "4 runs in 1 study" in out
    assert out.splitlines()[-2:] == ["report/report.html", "report/report.md"]
    page = (plan / "report/report.html").read_text()
    assert "hiflash run runs/plan/fedavg-" in page
    assert "work.svg" in (plan / "report/report.md").read_text()


def test_json_is_one_object(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "runs", "--out", "there", "--title", "Plan", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["title"] == "Plan"
    (study,) = told["studies"]
    assert (study["path"], study["kind"], len(study["runs"])) == ("runs/plan", "comparison", 4)
    assert [row["label"] for row in study["rows"]] == ["fedavg", "hifl"]
    assert told["files"][0] == "there/report.html"
    assert told["left_out"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "error: nowhere is not a folder"),
        (["runs/plan", "nowhere", "neither"], "error: neither is not a folder"),
        (["runs/plan", "--out", "runs/plan/compare.json"], "is a file"),
        (["empty"], "error: empty has no runs"),
    ],
)
def test_wrong_input_is_an_error_and_nothing_is_written(
    plan: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (plan / "empty").mkdir()
    before = sorted(plan.rglob("*"))
    assert main(["report", *words]) == 2
    assert said in capsys.readouterr().err
    assert sorted(plan.rglob("*")) == before
