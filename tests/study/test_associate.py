"""Strategies in a run, and `hiflash associate`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import hiflash
from hiflash.cli import main
from hiflash.errors import ConfigError, Paused
from hiflash.study.associate import associate, parse_sweep
from hiflash.study.run import resume
from tiny import TINY, assert_same_run, make_tiny_data, make_tiny_model

STRATEGIES = ("random", "heterogeneity", "latency", "data", "edge-iid", "edge-noniid")
SMALL = ["--federation.clients=30", "--federation.edges=5"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_runs_and_goes_on_after_a_pause_to_the_same_digest(strategy, tmp_path: Path) -> None:
    settings = {**TINY, "federation.association": strategy, "stop.communications": 20}
    own = {"data": make_tiny_data(), "model": make_tiny_model}
    whole = hiflash.run(**own, directory=tmp_path / "whole", **settings)
    asked = iter([False] * 15)
    with pytest.raises(Paused):
        hiflash.run(**own, directory=tmp_path / "parts", pause=lambda: next(asked, True), **settings)
    assert_same_run(resume(tmp_path / "parts", **own), whole)
    assert sum(whole.cluster_sizes) == 12


def test_heterogeneity_has_lower_divergence_and_latency_than_random() -> None:
    aware, random = associate(hiflash.Config(), strategies=["heterogeneity", "random"]).rows
    assert aware.total_js < random.total_js / 2
    assert aware.mean_latency_ms < random.mean_latency_ms / 2
    assert aware.waiting_ms < random.waiting_ms / 2


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"federation.capacity": 2}, r"federation.capacity \(2\) x federation.edges \(4\) leaves no room"),
        (
            {"federation.reach": 2},
            'reach is for federation.association = "heterogeneity" or "data", and here',
        ),
        (
            {"data.name": "none", "trainer": "none", "federation.association": "data"},
            "federation.association = data needs labels",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, said) -> None:
    with pytest.raises(ConfigError, match=said):
        hiflash.Config(**{"federation": {}}).with_settings({**TINY, **settings})


def test_capacity_and_reach_hold(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = [*SMALL, "--federation.capacity=6", "--federation.reach=3", "--json", f"--runs={tmp_path}"]
    assert main(["associate", *words]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["cluster_sizes"] == [6] * 5  # 30 clients, 5 edges, at most 6 each
    assert (row["strategy"], row["lambda"]) == ("heterogeneity", 300.0)
    assert {"total_js", "mean_latency_ms", "waiting_ms", "cluster_sizes", "seconds"} < set(row)


def test_a_sweep_is_a_list_with_one_chosen_lambda_and_a_figure(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = [*SMALL, "--sweep", "0,200,...,600", "--strategy", "heterogeneity,random", f"--runs={tmp_path}"]
    assert main(["associate", *words, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["lambda"] for row in rows] == [0.0, 200.0, 400.0, 600.0, None]
    assert sum(row["chosen"] for row in rows) == 1
    assert rows[3]["total_js"] < rows[0]["total_js"]
    folder = tmp_path / "associate-mnist5k-noniid2"
    assert json.loads((folder / "associate.json").read_text()) == rows
    assert (folder / "associate.png").stat().st_size > 10_000
    assert (folder / "associate.pdf").exists()
    assert main(["associate", *words]) == 0
    said = capsys.readouterr().out
    assert "chosen: lambda" in said
    assert str(folder / "associate.png") in said


def test_sweeps_understand_the_ellipsis() -> None:
    assert parse_sweep("0,50,...,200") == [0, 50, 100, 150, 200]
    assert parse_sweep("1, 2, ..., 4, 300") == [1, 2, 3, 4, 300]
    assert parse_sweep("300") == [300]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--sweep", "0,...,100"], "two numbers before ..."),
        (["--sweep", "0,50,..."], "two numbers before ..."),
        (["--sweep", "0,50,...,120"], "steps of 50 from 50 do not lead to 120"),
        (["--sweep", "0,0,...,120"], "do not lead to 120"),
        (["--sweep", "a,b"], "--sweep must be numbers"),
        (["--sweep=-1,2"], "numbers >= 0"),
        (["--sweep", "5,5"], "a value twice"),
        (["--sweep", "1,2", "--strategy", "random"], "only heterogeneity has"),
        (["--strategy", "nearest"], "federation.association must be"),
        (["--federation.capacity", "1"], "leaves no room"),
    ],
)
def test_wrong_input_is_a_clear_error_and_writes_nothing(
    words, said, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["associate", *words]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_interruption_leaves_nothing_behind(tmp_path: Path) -> None:
    code = (
        "import hiflash.study.associate as a, hiflash.cli as c\n"
        "def stop(*_, **__): raise KeyboardInterrupt\n"
        "a.cluster_clients = stop\n"
        "raise SystemExit(c.main(['associate']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 130
    assert "nothing was written" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
