"""Finished runs of the paper's items, kept in files of the repository and put back from them."""

from __future__ import annotations

import json
import lzma
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.paper_records import keep, main, record_file, restore

from hiflash import reproduce
from hiflash.errors import StorageError
from hiflash.study.paper.items import NAMES, load_item

RESULTS = Path(__file__).parents[2] / "docs" / "results"
RECORDS, PAGES = RESULTS / "records", RESULTS / "paper"
FEMNIST = "accuracy-femnist"
JUDGED = [
    name
    for name in NAMES
    if (RECORDS / load_item(name).runs_from.name).exists() and (PAGES / f"{name}.json").exists()
]


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all committed runs."""
    folder = tmp_path_factory.mktemp("runs")
    restore(RECORDS, folder)
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Return a folder with the committed runs of one item."""
    shutil.copytree(RECORDS / FEMNIST, tmp_path / "committed" / FEMNIST)
    restore(tmp_path / "committed", tmp_path / "runs")
    return tmp_path / "runs"


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return what a refused command says; it has written nothing."""

    def said(*command: object) -> str:
        before = sorted(tmp_path.rglob("*"))
        assert main([str(part) for part in command]) == 2
        assert sorted(tmp_path.rglob("*")) == before
        return capsys.readouterr().err

    return said


@pytest.mark.parametrize("name", JUDGED)
def test_committed_records_still_give_the_committed_verdicts(
    name: str, committed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule that changes is judged, and its page written, again."""
    monkeypatch.setattr("hiflash.study.run_cells.run", None)  # nothing runs
    found = reproduce(name, directory=committed, scale="full").to_json()
    assert json.loads(json.dumps(found)) == json.loads((PAGES / f"{name}.json").read_text())


def test_runs_come_back_as_they_were_kept(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["keep", str(runs), str(tmp_path / "records")]) == 0
    assert main(["restore", str(tmp_path / "records"), str(tmp_path / "again")]) == 0
    files = [path for path in sorted(runs.rglob("*")) if path.is_file()]
    count = len(files) // 3
    assert capsys.readouterr().out.splitlines() == [
        f"{FEMNIST}: {count} runs, {count} of them kept now",
        f"{FEMNIST}: {count} runs, {count} of them restored now",
    ]
    assert {path.name for path in files} == {"SHA256SUMS", "config.toml", "result.json"}
    for path in files:
        assert (tmp_path / "again" / path.relative_to(runs)).read_bytes() == path.read_bytes()


def test_keeping_again_changes_nothing_and_runs_that_are_gone_stay(runs: Path, tmp_path: Path) -> None:
    (gone, *others) = (runs / FEMNIST / "full").iterdir()
    count, changed = keep(tmp_path, runs)[FEMNIST]
    assert count == changed == 1 + len(others)
    before = {path: path.read_bytes() for path in (tmp_path / FEMNIST).iterdir()}
    (gone / "result.json").unlink()
    assert keep(tmp_path, runs) == {FEMNIST: (count, 0)}
    assert {path: path.read_bytes() for path in (tmp_path / FEMNIST).iterdir()} == before


def test_a_run_that_is_there_is_not_replaced(runs: Path, tmp_path: Path) -> None:
    begun = next((runs / FEMNIST / "full").iterdir())
    for file in begun.iterdir():
        file.unlink()
    assert restore(tmp_path / "committed", runs)[FEMNIST][1] == 0
    assert list(begun.iterdir()) == []


def test_an_interrupted_restore_leaves_no_half_run(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folders are whole, so that giving the command again makes those that are missing."""
    done: list[int] = []

    def write(path: Path, data: str) -> None:
        if len(done) == 4:  # in the middle of the second run
            raise OSError(28, "No space left on device")
        done.append(path.write_text(data))

    with monkeypatch.context() as patched:
        patched.setattr("benchmarks.paper_records.write_new", write)
        with pytest.raises(StorageError, match="make room"):
            restore(tmp_path / "committed", tmp_path / "others")
    (whole,) = (tmp_path / "others" / FEMNIST / "full").iterdir()
    assert len(list(whole.iterdir())) == 3
    count, restored = restore(tmp_path / "committed", tmp_path / "others")[FEMNIST]
    assert restored == count - 1


@pytest.mark.parametrize(
    ("file", "content", "error"),
    [
        ("result.json", '{"name": "other"}', "result.json is damaged"),
        ("config.toml", "seed = 7\n", "config.toml is damaged"),
        ("SHA256SUMS", None, "has no SHA256SUMS; remove the run and make it again"),
    ],
)
def test_a_damaged_run_is_not_kept(
    file: str, content: str | None, error: str, runs: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    changed = next((runs / FEMNIST / "full").iterdir()) / file
    changed.unlink()
    if content is not None:
        changed.write_text(content)
    assert error in refused("keep", runs, tmp_path / "others")


@pytest.mark.parametrize(
    "content",
    [
        b"no xz",
        lzma.compress(b"no JSON"),
        lzma.compress(b"[1]"),
        lzma.compress(b'{"config.toml": ""}'),
        lzma.compress(b'{"SHA256SUMS": "", "config.toml": "", "result.json": null}'),
    ],
    ids=["no xz", "no JSON", "no object", "files missing", "no text"],
)
def test_a_damaged_record_writes_nothing_of_the_others(
    content: bytes, runs: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    keep(tmp_path / "records", runs)
    damaged = record_file(tmp_path / "records", "accuracy-js", "hifl-s0")
    damaged.parent.mkdir()
    damaged.write_bytes(content)
    said = refused("restore", tmp_path / "records", tmp_path / "others")
    assert said.startswith(f"error: {damaged} is damaged (")


def test_folders_without_runs_or_records_are_refused(tmp_path: Path, refused: Callable[..., str]) -> None:
    (tmp_path / "file").touch()
    for wrong in ("nothing", "file"):
        place = tmp_path / wrong
        assert f"{place} has no finished run" in refused("keep", place, tmp_path / "records")
        assert f"{place} has no record" in refused("restore", place, tmp_path / "runs")
