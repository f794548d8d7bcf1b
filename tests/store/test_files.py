from __future__ import annotations

import os
from pathlib import Path

import pytest

from hiflash.errors import RunError, StorageError
from hiflash.store.files import check_writable, remove_leftovers, replacing, write_atomic


def test_content_is_synced_before_the_rename_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, rename = os.fsync, os.replace

    def note_fsync(handle: int) -> None:
        target = Path(os.readlink(f"/proc/self/fd/{handle}"))
        calls.append("sync folder" if target == tmp_path else "sync file")
        fsync(handle)

    def note_rename(source: Path, target: Path) -> None:
        calls.append("rename")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", note_rename)
    write_atomic(tmp_path / "file", "new")
    assert calls == ["sync file", "rename", "sync folder"]
    assert (tmp_path / "file").read_text() == "new"


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failed_save_leaves_the_old_content_and_no_other_file(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_atomic(tmp_path / "file", "old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(StorageError, match="file cannot be written: No space left on device; make room"):
        write_atomic(tmp_path / "file", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "old"


def test_an_exception_while_writing_leaves_nothing(tmp_path: Path) -> None:
    def write() -> None:
        with replacing(tmp_path / "file") as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".model.safetensors.1.tmp").touch()
    (tmp_path / "kept.tmp").touch()
    remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kept.tmp"]


def test_a_folder_is_tried_before_anything_is_computed_and_nothing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_writable(tmp_path / "not/there/yet")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="file/run cannot be written: Not a directory; choose another --runs"):
        check_writable(tmp_path / "file/run")

    def fail(path: Path, data: bytes) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(RunError, match="Read-only file system; make it writable, or choose another --runs"):
        check_writable(tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
