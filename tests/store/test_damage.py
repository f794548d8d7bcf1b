"""Bits flipped in any file of a run: the undisturbed digest comes out, or an error that names the file."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import hiflash
from hiflash.agents import FOLDER
from hiflash.config import Config
from hiflash.control.surrogate.file import load_surrogate
from hiflash.errors import ConfigError, Paused, RunError
from hiflash.store.agent_file import load_agent

Run = Callable[..., hiflash.Result]

SHORT: dict[str, Any] = {"stop__communications": 12, "evaluate__every": 6}
FLIPS = 14  # of every file in every state of a run


@pytest.fixture
def folders(run_tiny: Run, no_figures: None, tmp_path: Path) -> dict[str, Path]:
    """Return a finished run, an interrupted one, and one that was killed before its first checkpoint."""
    paths = {name: tmp_path / name for name in ("finished", "interrupted", "killed")}
    run_tiny(directory=paths["finished"], **SHORT)
    asked = iter([False] * 60)
    with pytest.raises(Paused):
        run_tiny(directory=paths["interrupted"], pause=lambda: next(asked, True), **SHORT)
    shutil.copytree(paths["interrupted"], paths["killed"])
    (paths["killed"] / "checkpoint.safetensors").unlink()
    return paths


@pytest.mark.parametrize("state", ["finished", "interrupted", "killed"])
def test_a_flipped_bit_is_named_or_changes_nothing(
    state: str, folders: dict[str, Path], resume_tiny: Run, tmp_path: Path
) -> None:
    expected = resume_tiny(folders["finished"]).digest
    files = sorted(path.name for path in folders[state].iterdir())
    noticed: dict[str, int] = dict.fromkeys(files, 0)
    draw = random.Random(f"flips of {state}")

    def resumed(path: Path) -> str:
        return resume_tiny(path).digest

    for name in files:
        for number in range(FLIPS):
            copy = tmp_path / "copies" / f"{name}-{number}"
            shutil.copytree(folders[state], copy)
            flip(copy / name, draw)
            found = outcome(partial(resumed, copy), RunError)
            if found != expected:
                noticed[name] += 1
                assert name in found
                assert re.search(r"; .*(remove|put it back)", found)
    # Files that decide something: no flipped bit in them may pass.
    decisive = {
        "finished": {"result.json"},
        "interrupted": {"checkpoint.safetensors", "config.toml"},
        "killed": {"config.toml"},
    }
    for name in decisive[state]:
        assert noticed[name] == FLIPS


def test_a_flipped_bit_in_the_seen_events_of_an_interrupted_run_is_noticed(
    folders: dict[str, Path], resume_tiny: Run, tmp_path: Path
) -> None:
    events = folders["interrupted"] / "events.jsonl"
    whole = events.read_bytes()
    assert len(whole) > 1000
    for hole in (slice(0, 1), slice(500, 516), slice(len(whole) - 3, len(whole))):
        changed = bytearray(whole)
        changed[hole] = bytes(len(changed[hole]))  # a block that was never written reads as zeros
        events.write_bytes(changed)
        with pytest.raises(RunError, match=r"events\.jsonl is damaged.*; remove its folder and run again"):
            resume_tiny(folders["interrupted"])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "Expecting value"),
        (b'{"digest": "ab', "Unterminated string"),
        (b"{}", "name: field required"),
        (b"[]", "it holds no object"),
        (b"[" * 100_000, "recursion"),
        (b'"\xff"', "codec"),
    ],
)
def test_a_result_without_checksum_is_checked_field_by_field(
    content: bytes, said: str, folders: dict[str, Path], resume_tiny: Run
) -> None:
    file = folders["finished"] / "result.json"
    (folders["finished"] / "SHA256SUMS").unlink()  # as of a run from before there were any
    expected = resume_tiny(folders["finished"]).digest
    file.write_bytes(content)
    with pytest.raises(RunError, match=rf"result\.json is damaged \(.*{said}.*; remove it, and resuming"):
        resume_tiny(folders["finished"])
    file.unlink()
    assert resume_tiny(folders["finished"]).digest == expected


@pytest.mark.parametrize(
    ("key", "value"), [("digest", 3), ("virtual_s", "1"), ("version", True), ("targets", [])]
)
def test_a_field_of_another_type_is_named(
    key: str, value: object, folders: dict[str, Path], resume_tiny: Run
) -> None:
    file = folders["finished"] / "result.json"
    (folders["finished"] / "SHA256SUMS").unlink()
    file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))
    with pytest.raises(RunError, match=rf"result\.json is damaged \({key}: "):
        resume_tiny(folders["finished"])


def test_a_flipped_bit_in_an_agent_or_a_surrogate_is_named(tmp_path: Path) -> None:
    draw = random.Random("flips of agents")
    loads: dict[str, Callable[[Path], str]] = {
        "mnist.safetensors": lambda path: load_agent(path).digest,
        "femnist.json": lambda path: str(load_surrogate(path, Config())),
    }
    for name, load in loads.items():
        as_saved = load(FOLDER / name)
        for _ in range(20):
            shutil.copy(FOLDER / name, tmp_path / name)
            flip(tmp_path / name, draw)
            found = outcome(partial(load, tmp_path / name), ConfigError)
            if found != as_saved:  # or white space became other white space
                assert str(tmp_path / name) in found


def outcome(call: Callable[[], str], refusal: type[Exception]) -> str:
    """Return what a call gives, or what it says when it refuses."""
    try:
        return call()
    except refusal as error:
        return str(error)


def flip(path: Path, draw: random.Random) -> None:
    """Change one bit somewhere in a file."""
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)
