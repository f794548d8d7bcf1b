"""`hiflash forecast` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hiflash.cli import main

PLAIN = ["forecast", "--trainer", "none", "--data.name", "none", "--seeds", "1"]


def test_json_has_rows_constants_and_expected_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PLAIN, "--methods", "fedavg,hierfavg", "--rounds", "20", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["label"] for row in told["rows"]] == ["fedavg", "hierfavg"]
    assert [row["communications"] for row in told["rows"]] == [200, 20]  # 20 rounds of 10; 10 rounds of 2
    assert told["constants"]["noniid2"] == {"rounds": 20.0, "origin": "given", "measured": []}
    assert 0 < told["rows"][0]["expected_error"]["median"] < told["rows"][0]["expected_error"]["worst"]


def test_the_table_says_where_the_numbers_come_from(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)
    words = [*PLAIN, "--methods", "hierfavg,fedadam", "--rounds", "20", "--stop.communications", "5"]
    assert main([*words, "--name", "plan"]) == 0
    out = capsys.readouterr().out
    assert "HierFAVG" in out
    assert "S = 20 rounds of FedAvg to the target (given)" in out
    assert "expected error" in out
    assert "HierFAVG: more than stop.communications allows" in out
    assert "FedAdam is left out: cloud.optimizer" in out
    assert sorted(path.name for path in (tmp_path / "runs/plan").iterdir()) == [
        "forecast.csv",
        "forecast.json",
    ]


def test_without_a_name_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*PLAIN, "--methods", "hierfavg", "--rounds", "3"]) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_variant_is_forecast(capsys: pytest.CaptureFixture[str]) -> None:
    variant = "mine=hifl cloud.mixing=delta cloud.alpha=1.0 cloud.threshold=0"
    words = ["--federation.edges", "1", "--edge.edge_rounds", "[2]", "--rounds", "20", "--json"]
    assert main([*PLAIN, "--variant", variant, *words]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["label"], row["communications"]) == ("mine", 10)  # 2 each


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--methods", "fedadam", "--rounds", "20"], "fedadam cannot be forecast"),
        (["--methods", "hifl"], "give FedAvg's rounds to the target with --rounds N"),
        (["--methods", "hifl", "--rounds", "many"], "--rounds must be FedAvg's rounds"),
        (["--methods", "hifl", "--rounds", "0"], "rounds must be FedAvg's rounds"),
        (["--methods", "hifl", "--from", "nowhere"], "nowhere is no run directory"),
        (["--methods", "nobody", "--rounds", "20"], "methods must be all or some of"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*PLAIN, *words]) == 2
    assert said in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_told_before_the_work(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "runs").write_text("a file, no folder")
    monkeypatch.setattr("hiflash.study.forecast.study.forecast_cells", lambda *_: pytest.fail("it worked"))
    words = [
        *PLAIN,
        "--methods",
        "hierfavg",
        "--rounds",
        "3",
        "--name",
        "x",
        "--runs",
        str(tmp_path / "runs"),
    ]
    assert main(words) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_variants_to_other_targets_stand_in_tables_of_their_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    low, high = "low=hierfavg stop.target=0.7", "high=hierfavg stop.target=0.9"
    assert main(["forecast", "--seeds", "1", "--variant", low, "--variant", high]) == 0
    out = capsys.readouterr().out
    assert "forecast to 70% accuracy" in out
    assert "forecast to 90% accuracy" in out
    assert "noniid2/low: S = 70 rounds" in out
    assert "noniid2/high: S = 241" in out
