"""Finished runs of the paper's items, kept in files of the repository and put back from them."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest
from benchmarks.paper_records import keep, main, read_records, record_file, restore

from hiflash import reproduce
from hiflash.study.paper.items import NAMES, load_item

RESULTS = Path(__file__).parents[2] / "docs" / "results"
RECORDS, PAGES = RESULTS / "records", RESULTS / "paper"
JUDGED = [
    name
    for name in NAMES
    if record_file(RECORDS, load_item(name).runs_from.name).exists() and (PAGES / f"{name}.json").exists()
]


@pytest.fixture(scope="module")
def runs(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an item that was run on real data; nothing is trained in it."""
    base = tmp_path_factory.mktemp("runs")
    reproduce("latency", directory=base)
    return base


def test_restored_runs_are_judged_without_running_anything(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["keep", str(runs), str(tmp_path / "records"), "--scale", "small"]) == 0
    assert main(["restore", str(tmp_path / "records"), str(tmp_path / "runs"), "--scale", "small"]) == 0
    count = len(list((runs / "latency" / "small").glob("*/result.json")))
    assert capsys.readouterr().out.splitlines() == [
        f"latency: {count} runs, {count} of them kept now",
        f"latency: {count} runs, {count} of them restored now",
    ]
    monkeypatch.setattr("hiflash.study.run_cells.run", None)
    again = reproduce("latency", directory=tmp_path / "runs").to_json()
    first = json.loads((runs / "latency" / "small" / "paper.json").read_text())
    assert json.loads(json.dumps(again)) == first


def test_keeping_again_changes_nothing_and_runs_that_are_gone_stay(runs: Path, tmp_path: Path) -> None:
    file = tmp_path / "latency.jsonl.xz"
    count, changed = keep(file, runs / "latency" / "small")
    assert count == changed > 0
    before = file.read_bytes()
    assert keep(file, runs / "latency" / "small") == (count, 0)
    assert keep(file, tmp_path / "nothing") == (count, 0)
    assert file.read_bytes() == before


def test_a_run_that_is_there_is_not_replaced(runs: Path, tmp_path: Path) -> None:
    keep(record_file(tmp_path, "latency"), runs / "latency" / "small")
    name = next(iter(read_records(record_file(tmp_path, "latency"))))
    begun = tmp_path / "runs" / "latency" / "full" / name
    begun.mkdir(parents=True)
    assert main(["restore", str(tmp_path), str(tmp_path / "runs")]) == 0
    assert list(begun.iterdir()) == []


def test_a_damaged_run_is_not_kept(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "runs"
    keep(record_file(tmp_path, "latency"), runs / "latency" / "small")
    main(["restore", str(tmp_path), str(folder)])
    file = next((folder / "latency" / "full").glob("*/result.json"))
    file.write_text(file.read_text().replace("0", "1", 1))
    assert main(["keep", str(folder), str(tmp_path / "others")]) == 2
    assert "result.json is damaged" in capsys.readouterr().err
    assert not (tmp_path / "others").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"no xz",
        lzma.compress(b"no JSON"),
        lzma.compress(b"[1]\n"),
        lzma.compress(b'{"name": "a", "files": {"config.toml": ""}}\n'),
        lzma.compress(b'{"name": "../a", "files": {"SHA256SUMS": "", "config.toml": "", "result.json": ""}}'),
    ],
)
def test_a_damaged_record_writes_nothing(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record_file(tmp_path, "latency").write_bytes(content)
    assert main(["restore", str(tmp_path), str(tmp_path / "runs")]) == 2
    assert capsys.readouterr().err.startswith("error: ")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", JUDGED)
def test_committed_records_still_give_the_committed_verdicts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule that changes is judged, and its page written, again."""
    source = load_item(name).runs_from.name
    restore(record_file(RECORDS, source), tmp_path / source / "full")
    monkeypatch.setattr("hiflash.study.run_cells.run", None)
    found = reproduce(name, directory=tmp_path, scale="full").to_json()
    assert json.loads(json.dumps(found)) == json.loads((PAGES / f"{name}.json").read_text())
