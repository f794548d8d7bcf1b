"""A short smoke of the benchmarks; `make bench` runs them in full."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.environment import environment_steps_s
from benchmarks.peers import ratio_with_startup

ROOT = Path(__file__).parents[1]


def benchmarks(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)


def test_a_named_benchmark_prints_one_json_object() -> None:
    done = benchmarks("trainer_lenet_vs_loop", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found) == ["trainer_lenet_vs_loop"]
    assert found["trainer_lenet_vs_loop"] > 1


def test_an_unknown_benchmark_is_an_error_that_lists_the_known() -> None:
    done = benchmarks("trainer_lenet")
    assert done.returncode == 2
    assert "there are trainer_lenet_vs_loop" in done.stderr


def test_the_table_of_codecs_has_a_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    module = runpy.run_path(str(ROOT / "benchmarks" / "compression.py"))
    module["main"](communications=2, codecs=[("topk", "int8", 0.1)])
    _, line = capsys.readouterr().out.splitlines()
    assert line.split()[:3] == ["topk", "0.1", "int8"]


def test_start_up_counts_on_both_sides() -> None:
    flower = {"steps_per_s_with_startup": 1000 / 60, "total_s": 60.0}
    # 1,000 steps: 5 s + 1000 / 100 s here, 60 s there.
    assert ratio_with_startup(100.0, 5.0, flower) == pytest.approx(4.0)


def test_the_environment_steps_many_times_a_second() -> None:
    assert environment_steps_s(steps=300, repeats=3) > 500  # the bar is 5,000 where nobody else runs
