from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hiflash.errors import DamageError, RunError, StorageError
from hiflash.store.run_directory import RunDirectory, check_config, read_result_file


class FullDisk:
    """A file that takes some bytes and then no more."""

    def __init__(self, file: Any, room: int) -> None:
        self.file, self.room = file, room

    def write(self, data: memoryview) -> int:
        if self.room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = self.file.write(data[: self.room])
        self.room -= taken
        return int(taken)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def made(path: Path, rows: int) -> RunDirectory:
    folder = RunDirectory.create(path, "seed = 1\n")
    for number in range(rows):
        folder.log(float(number), "row", {"number": number})
    return folder


def test_events_are_written_in_order_and_whole(tmp_path: Path) -> None:
    folder = made(tmp_path / "run", 1000)  # several chunks
    folder.close()
    rows = [json.loads(line) for line in (tmp_path / "run/events.jsonl").read_text().splitlines()]
    assert [row["number"] for row in rows] == list(range(1000))


def test_a_full_disk_leaves_whole_lines_the_old_checkpoint_and_says_how_to_resume(tmp_path: Path) -> None:
    folder = made(tmp_path / "run", 10)
    folder.save({"at": 10})
    before = (tmp_path / "run/events.jsonl").read_bytes()
    folder._events = FullDisk(folder._events, room=100)  # type: ignore[assignment]  # writes like a file
    folder.log(10.0, "row", {"number": 10})
    said = r"events\.jsonl cannot be written: No space left .*; make room.*hiflash run --resume .*run$"
    for number in range(11, 20):
        folder.log(float(number), "row", {"number": number})
    with pytest.raises(StorageError, match=said):
        folder.save({"at": 20})
    folder.close()
    assert (tmp_path / "run/events.jsonl").read_bytes() == before
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        "config.toml", "events.jsonl", "checkpoint.safetensors", "SHA256SUMS",
    }  # fmt: skip
    again = RunDirectory.open(tmp_path / "run")
    assert (again.load() or {})["at"] == 10
    again.close()


def test_resuming_continues_the_checksum_of_the_events(tmp_path: Path) -> None:
    folder = made(tmp_path / "run", 10)
    folder.save({"at": 10})
    folder.log(10.0, "lost", {})
    folder.close()
    again = RunDirectory.open(tmp_path / "run")
    again.load()
    again.log(11.0, "row", {})
    again.finish({"digest": "d"}, b"model")
    again.close()
    lines = (tmp_path / "run/SHA256SUMS").read_text().splitlines()
    events = (tmp_path / "run/events.jsonl").read_bytes()
    assert b"lost" not in events
    assert lines == [
        f"{hashlib.sha256(content).hexdigest()}  {name}"
        for name, content in (
            ("config.toml", b"seed = 1\n"),
            ("events.jsonl", events),
            ("model.safetensors", b"model"),
            ("result.json", b'{\n "digest": "d"\n}\n'),
        )
    ]
    checked = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=tmp_path / "run", capture_output=True)
    assert checked.returncode == 0


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_result_that_cannot_be_written_leaves_a_run_to_resume(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(tmp_path / "run", 3)
    folder.save({"at": 3})

    def fail(*_: object) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    with monkeypatch.context() as patched:
        patched.setattr(os, failing, fail)
        with pytest.raises(StorageError, match=r"cannot be written: .*quota.*, then go on with: .*--resume"):
            folder.finish({"digest": "d"}, b"model")
    folder.close()
    assert not (tmp_path / "run/result.json").exists()
    assert not list((tmp_path / "run").glob(".*"))


def test_a_changed_configuration_is_named_unless_the_change_is_meant(tmp_path: Path) -> None:
    made(tmp_path / "run", 0).close()
    (tmp_path / "run/config.toml").write_text("seed = 3\n")
    with pytest.raises(
        DamageError, match=r"config\.toml is damaged: SHA256SUMS has another.*remove its line"
    ):
        check_config(tmp_path / "run")
    (tmp_path / "run/SHA256SUMS").write_text("")
    check_config(tmp_path / "run")


@pytest.mark.parametrize(
    "sums", ["\n", "nonsense\n", "0" * 64 + "  other.toml\n", "0" * 64 + "  config.toml"]
)
def test_damaged_checksums_are_named(sums: str, tmp_path: Path) -> None:
    made(tmp_path / "run", 0).close()
    (tmp_path / "run/SHA256SUMS").write_text(sums)
    with pytest.raises(DamageError, match="SHA256SUMS is damaged; remove it"):
        RunDirectory.open(tmp_path / "run")


def test_a_missing_result_with_a_checksum_is_an_error_not_a_traceback(tmp_path: Path) -> None:
    folder = made(tmp_path / "run", 0)
    folder.finish({"digest": "d"}, None)
    folder.close()
    assert read_result_file(tmp_path / "run") == {"digest": "d"}
    (tmp_path / "run/result.json").unlink()
    (tmp_path / "run/result.json").mkdir()
    with pytest.raises(RunError, match=r"result\.json cannot be read \(Is a directory\)"):
        read_result_file(tmp_path / "run")
