"""Full disks, size limits, read-only folders and an output that cannot be written: one line, nothing half."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hiflash.cli import main

HIFLASH = f"{sys.executable} -m hiflash"
SMALL = "--federation.clients=20 --federation.edges=4 --client.batch=8 --client.local_steps=1"
QUICK = f"{SMALL} --stop.communications=30 --stop.target=none --checkpoint_s=0.1"


def shell(script: str, cwd: Path, *before: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, "bash", "-c", script],
        cwd=cwd, capture_output=True, text=True, timeout=240, env={**os.environ, **environment},
    )  # fmt: skip


def errors(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return all that was said but the progress."""
    return [line for line in done.stderr.splitlines() if ": started" not in line and ": done" not in line]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the digest of a run that nothing disturbed."""
    done = shell(f"{HIFLASH} run {QUICK} --json", tmp_path_factory.mktemp("whole"))
    return str(json.loads(done.stdout)["digest"])


@pytest.fixture(scope="module")
def namespace() -> list[str]:
    """Return what begins a command that may mount, or skip with the reason."""
    before = ["unshare", "--map-root-user", "--mount"]
    try:
        tried = subprocess.run(
            [*before, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, text=True
        )
    except FileNotFoundError:
        pytest.skip("unshare is not here: no small disk can be made")
    if tried.returncode:
        pytest.skip(f"no small disk can be made: {tried.stderr.strip()}")
    return before


def test_a_full_disk_is_one_error_and_the_run_resumes_to_the_same_digest(
    whole: str, namespace: list[str], tmp_path: Path
) -> None:
    done = shell(
        "mkdir disk && mount -t tmpfs -o size=160k tmpfs disk || exit 9\n"
        f"{HIFLASH} run {QUICK} --runs disk --name r; echo $?; ls -A disk/r\n"
        "mount -o remount,size=9m disk || exit 9\n"
        f"{HIFLASH} run --resume disk/r --json",
        tmp_path,
        *namespace,
    )
    code, *files, result = done.stdout.splitlines()
    assert code == "2", done.stderr
    (error,) = errors(done)
    assert error.startswith("error: disk/r/")
    assert error.endswith(
        " cannot be written: No space left on device; make room on the disk, "
        "then go on with: hiflash run --resume disk/r"
    )
    assert set(files) <= {
        "SHA256SUMS", "checkpoint.safetensors", "config.toml", "events.jsonl", "figure.pdf", "figure.png",
    }  # fmt: skip
    assert json.loads(result)["digest"] == whole


def test_a_limit_on_file_sizes_is_one_error_in_a_worker_process_too(whole: str, tmp_path: Path) -> None:
    words = f"compare {QUICK} --methods hifl --seeds 1 --name c"
    done = shell(f"ulimit -f 40; exec {HIFLASH} {words}", tmp_path)
    assert done.returncode == 2
    (error,) = errors(done)
    cell = "runs/c/hifl-noniid2-s0"
    assert error.startswith(f"error: hifl-noniid2-s0: {cell}/")
    assert "File too large; raise the limit on file sizes (ulimit -f), then give the same command" in error
    assert not list((tmp_path / cell).glob(".*"))
    again = shell(f"{HIFLASH} {words} --json", tmp_path)
    assert [each["digest"] for each in json.loads(again.stdout)["cells"]] == [whole]


def test_a_read_only_folder_is_one_error(namespace: list[str], tmp_path: Path) -> None:
    script = f"mkdir disk && mount -t tmpfs -o ro tmpfs disk || exit 9\n{HIFLASH} associate --runs disk"
    done = shell(script, tmp_path, *namespace)
    assert done.returncode == 2
    assert errors(done) == [
        "error: disk/associate-mnist5k-noniid2 cannot be written: Read-only file system; "
        "make it writable, or choose another --runs"
    ]


@pytest.mark.parametrize(
    ("words", "computes"),
    [
        ("run", "hiflash.study.run.run"),
        ("compare", "hiflash.study.run_cells._Processes"),
        ("sweep --set cloud.alpha=0.5,0.7", "hiflash.study.run_cells._Processes"),
        ("calibrate", "hiflash.study.run_cells._Processes"),
        ("evaluate-agent --data.name=mnist5k", "hiflash.study.run_cells._Processes"),
        ("evaluate-agent --data.name=mnist5k --finished", "hiflash.study.run_cells.read_cells"),
        ("associate", "hiflash.study.associate.associate"),
        ("train-agent", "hiflash.control.train.Training"),
    ],
)
def test_an_unwritable_folder_is_noticed_before_anything_is_computed(
    words: str,
    computes: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def compute(*_: Any, **__: Any) -> None:
        pytest.fail("it computes before it looks at the folder")

    monkeypatch.setattr(computes, compute)
    (tmp_path / "file").touch()
    assert main([*words.split(), "--runs", str(tmp_path / "file")]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert "cannot be written: Not a directory; choose another --runs" in error


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", ["data list", f"run {QUICK} --json --name r"])
def test_an_output_on_a_full_device_is_one_error(words: str, unbuffered: str, tmp_path: Path) -> None:
    done = shell(f"exec {HIFLASH} {words} > /dev/full", tmp_path, PYTHONUNBUFFERED=unbuffered)
    then = "go on with: hiflash run --resume runs/r" if "run" in words else "give the same command again"
    assert errors(done) == [
        "error: the standard output cannot be written: No space left on device; "
        f"send it elsewhere, then {then}"
    ]
    assert done.returncode == 2


@pytest.mark.parametrize("words", ["data list", "--help", "methods --json"])
def test_an_output_that_nobody_reads_is_no_error(words: str, tmp_path: Path) -> None:
    # The reader is gone before anything is written.
    gone = f"{{ sleep 0.3; {HIFLASH} {words}; echo $? >&2; }} | true"
    for script in (gone, f"{HIFLASH} {words} >&-; echo $? >&2"):
        for unbuffered in ("", "1"):
            done = shell(script, tmp_path, PYTHONUNBUFFERED=unbuffered)
            assert done.stderr.split() == ["0"]
