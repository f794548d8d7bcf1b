"""Every run records the versions and the kind of machine that made it."""

from __future__ import annotations

import getpass
import json
import os
import platform
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
import torch

import hiflash
from hiflash.errors import Paused
from hiflash.report.page.blocks import Items, Words
from hiflash.report.page.makers import maker_blocks
from hiflash.sim import made_by
from hiflash.store.checksums import SUMS, file_sha256
from tiny import assert_same_run

OLD = {"hiflash": "0.0.9", "python": "3.11.1", "system": "Linux", "machine": "riscv64", "cores": 1}


def test_a_result_says_what_made_it_and_the_checksums_cover_that(run_tiny: Any, tmp_path: Path) -> None:
    result = run_tiny(directory=tmp_path / "run", stop__communications=10)
    (maker,) = json.loads((tmp_path / "run" / "result.json").read_text())["made_by"]
    assert maker == {
        "hiflash": hiflash.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "torch": torch.__version__,
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
    }
    assert result.made_by == [maker]
    assert result.wall_s > 0
    sums = (tmp_path / "run" / SUMS).read_text()
    assert f"{file_sha256(tmp_path / 'run' / 'result.json')}  result.json" in sums


def test_nothing_names_the_machine_its_user_or_a_path() -> None:
    told = [str(value) for value in made_by.made_by().values()]
    assert not {socket.gethostname(), platform.node(), getpass.getuser()} & set(told)
    assert not [value for value in told if "/" in value or "\\" in value]


def test_a_run_that_goes_on_elsewhere_names_both(
    run_tiny: Any,
    resume_tiny: Callable[..., hiflash.Result],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole, now = run_tiny(directory=tmp_path / "whole"), made_by.made_by()
    calls = iter(range(10_000))
    with monkeypatch.context() as patch:
        patch.setattr(made_by, "made_by", lambda: OLD)
        with pytest.raises(Paused):
            run_tiny(directory=tmp_path / "run", pause=lambda: next(calls) > 30)
    with pytest.raises(Paused):  # the same machine twice is named once
        resume_tiny(tmp_path / "run", pause=lambda: next(calls) > 60)
    resumed = resume_tiny(tmp_path / "run")
    assert resumed.made_by == [OLD, now]
    assert resumed.digest == whole.digest  # what made it is no part of a run's identity


def test_an_undisturbed_and_a_resumed_run_are_still_equal(
    run_tiny: Any, resume_tiny: Callable[..., hiflash.Result], tmp_path: Path
) -> None:
    one = run_tiny(directory=tmp_path / "one")
    with pytest.raises(Paused):
        run_tiny(directory=tmp_path / "other", pause=lambda: True)
    assert_same_run(one, resume_tiny(tmp_path / "other"))


def test_old_checkpoints_and_results_without_it_are_read(
    run_tiny: Any, resume_tiny: Callable[..., hiflash.Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hiflash.store.run_directory import RunDirectory

    load = RunDirectory.load
    with pytest.raises(Paused):
        run_tiny(directory=tmp_path / "run", pause=lambda: True)
    with monkeypatch.context() as patch:
        patch.setattr(
            RunDirectory,
            "load",
            lambda self: {key: value for key, value in load(self).items() if key != "made_by"},
        )
        assert resume_tiny(tmp_path / "run").made_by == [made_by.made_by()]
    file = tmp_path / "run" / "result.json"
    numbers = json.loads(file.read_text())
    del numbers["made_by"]
    file.write_text(json.dumps(numbers))
    (tmp_path / "run" / SUMS).unlink()  # an old run: it has no checksums either
    assert hiflash.resume(tmp_path / "run").made_by == []
    page = hiflash.make_report(tmp_path / "run").markdown()
    assert "Versions and machines of the runs: not recorded." in page


def test_a_report_shows_what_made_the_runs(run_tiny: Any, tmp_path: Path) -> None:
    run_tiny(directory=tmp_path / "run", stop__communications=10)
    report = hiflash.make_report(tmp_path / "run")
    maker = made_by.made_by()
    packages = ", ".join(f"{name} {maker[name]}" for name in ("numpy", "scipy", "torch"))
    told = f"{packages} on {maker['system']} {maker['machine']} with"
    assert told in report.markdown().replace("\\_", "_")
    assert told in report.html()
    (study,) = report.to_dict()["studies"]
    assert study["runs"][0]["made_by"] == [maker]


def test_runs_of_different_makers_are_told_apart() -> None:
    new = {**OLD, "hiflash": "0.1.0", "cores": 4}
    named = maker_blocks({"a": [OLD], "b": [OLD, new], "c": [], **{f"s{i}": [new] for i in range(8)}})
    old_words = "HiFlash 0.0.9, Python 3.11.1 on Linux riscv64 with 1 core"
    new_words = "HiFlash 0.1.0, Python 3.11.1 on Linux riscv64 with 4 cores"
    assert named == [
        Items(
            "Versions and machines of the runs",
            [
                f"{old_words}: a",
                f"{old_words}, then, resumed, {new_words}: b",
                "not recorded: c",
                f"{new_words}: s0, s1, s2, s3, s4, s5 and 2 more",
            ],
        )
    ]
    assert maker_blocks({"a": [OLD], "b": [OLD]}) == [
        Words(f"Versions and machines of the runs: {old_words}.")
    ]
    assert maker_blocks({"a": [], "b": []}) == [Words("Versions and machines of the runs: not recorded.")]
