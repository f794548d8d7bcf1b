"""What commands print: titles of runs, and warnings where they belong."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hiflash
from hiflash.cli import main
from hiflash.cli.compare import _titles
from hiflash.sim.result import Result
from hiflash.study.catalogue import list_datasets
from hiflash.study.compare import comparison_cells

QUICK = [
    "--federation.clients=20", "--federation.edges=4", "--client.batch=8", "--client.local_steps=1",
    "--stop.communications=10", "--name=n",
]  # fmt: skip
REFUSED = "8,072 updates refused: not finite"


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Return an empty current folder, and give the signals back to pytest."""
    monkeypatch.chdir(tmp_path)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield tmp_path
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def diverged(monkeypatch: pytest.MonkeyPatch, folder: Path, no_figures: None) -> None:
    """Give the results of seed 1 a warning."""
    plain = Result.to_dict

    def warned(self: Result) -> dict[str, Any]:
        return {**plain(self), "warnings": [REFUSED] if self.seed == 1 else []}

    monkeypatch.setattr(Result, "to_dict", warned)


COMPARE = ["compare", *QUICK, "--variant", "hifl+delta=hifl cloud.mixing=delta", "--seeds=2", "--processes=1"]
SWEEP = ["sweep", *QUICK, "--set", "cloud.alpha=0.5", "--seeds=2", "--processes=1"]
RUN = ["run", *QUICK, "--seed=1"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (COMPARE, f"warning: HiFL + delta, noniid2, seed 1: {REFUSED}"),
        (SWEEP, f"warning: alpha 0.5, seed 1: {REFUSED}"),
        (RUN, f" warning         {REFUSED}"),
    ],
)
def test_tables_end_with_the_warnings_of_their_runs(
    diverged: None, capsys: pytest.CaptureFixture[str], words: list[str], line: str
) -> None:
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [text.rstrip() for text in lines if "warning" in text] == [line]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (COMPARE, f"warning: HiFL + delta, seed 1: {REFUSED}"),
        (SWEEP, f"warning: alpha0.5-s1: {REFUSED}"),
        (RUN, f"warning: {REFUSED}"),
    ],
)
def test_with_json_warnings_go_to_stderr(
    diverged: None, capsys: pytest.CaptureFixture[str], words: list[str], line: str
) -> None:
    assert main([*words, "--json"]) == 0
    told = capsys.readouterr()
    assert "warnings" in json.dumps(json.loads(told.out))
    assert [text for text in told.err.splitlines() if "warning" in text] == [line]


def test_a_run_lists_every_file_to_look_at(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *QUICK, "--evaluate.clients=0.2"]) == 0
    listed = {line for line in capsys.readouterr().out.splitlines() if line.startswith("runs/n/")}
    written = {str(path.relative_to(folder)) for path in (folder / "runs/n").iterdir()}
    needed_to_resume = {"runs/n/config.toml", "runs/n/SHA256SUMS", "runs/n/checkpoint.safetensors"}
    assert listed == written - needed_to_resume


@pytest.mark.parametrize("columns", ["40", "80", "120"])
def test_the_list_of_datasets_breaks_neither_names_nor_paths(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["data", "list"]) == 0
    printed = capsys.readouterr().out
    for row in list_datasets():
        assert any(line.split()[:1] == [row.name] for line in printed.splitlines())
        assert row.path is None or f"  found in {row.path}\n" in printed
        assert all(word in printed.split() for word in row.note.split())  # nothing is cut off


def test_titles_have_what_tells_runs_apart() -> None:
    variants = {"hifl+delta": {"method": "hifl", "cloud.mixing": "delta"}}
    alone = comparison_cells(methods=["fedavg"], variants=variants, seeds=1)
    assert list(_titles(alone).values()) == ["FedAvg", "HiFL + delta"]
    seeds = comparison_cells(methods=[], variants=variants, seeds=2)
    assert _titles(seeds) == {
        "hifl+delta-noniid2-s0": "HiFL + delta, seed 0",
        "hifl+delta-noniid2-s1": "HiFL + delta, seed 1",
    }
    parts = comparison_cells(methods=["centralized", "hifl"], partitions=["iid", "noniid2"], seeds=1)
    assert list(_titles(parts).values()) == ["Centralized", "HiFL, iid", "HiFL, noniid2"]


@pytest.mark.usefixtures("parts_as_before")
def test_brackets_in_a_sentence_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    hiflash.register("weighting", hiflash.Part("mine", "see [/docs] and [a, b]", lambda _: float))
    assert main(["methods"]) == 0
    shown = capsys.readouterr().out
    assert "see [/docs] and [a, b]" in shown
    assert "with [a, b] = hinge" in " ".join(shown.split())
