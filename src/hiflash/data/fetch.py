"""Downloads datasets over http(s) from several mirrors, resumes part files, and checks every checksum."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ..errors import DataError
from .cifar10 import BATCH_MD5, BINARY_FOLDER
from .datasets import check, describe

__all__ = ["Progress", "fetch"]

Progress = Callable[[str, int, int | None], None]  # file name, bytes so far, bytes in all if known


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
_TIMEOUT = 5.0  # seconds without an answer; a stalled download goes on from its part file
_BLOCK = 1 << 16
_LIMIT = 1 << 28  # all files here are far below 256 MiB: a longer answer is not the dataset


def fetch(
    name: str, directory: str | Path, mirror: str | None = None, progress: Progress | None = None
) -> list[Path]:
    """Download a dataset into `directory/name` and return its files; complete files are not fetched again.

    `mirror` is a base URL to use instead of the public ones.
    """
    describe(name)  # an unknown name is refused here, with a suggestion
    folder = Path(directory).expanduser() / name
    if name == "mnist5k":
        rows = check(name)
        if bad := [row.message for row in rows if not row.ok]:
            raise DataError("\n".join(bad))
        return [row.file for row in rows]
    if name == "femnist":
        raise DataError(_femnist_advice(folder))
    download = _DOWNLOADS[name]
    mirrors = download.mirrors if mirror is None else (mirror,)
    for base in mirrors:
        if urlsplit(base).scheme not in ("http", "https"):
            raise DataError(f"mirror '{base}': only http:// and https:// addresses can be used.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot be made ({error}). Choose another --data.dir.") from error
    if name == "cifar10":
        return _fetch_cifar10(folder, download, mirrors, progress)
    return [_fetch_file(file, folder, download, mirrors, progress) for file in download.md5]


def _fetch_cifar10(
    folder: Path, download: _Download, mirrors: tuple[str, ...], progress: Progress | None
) -> list[Path]:
    batches = {folder / BINARY_FOLDER / f"{batch}.bin": md5 for batch, md5 in BATCH_MD5.items()}
    if not all(path.is_file() and _md5(path) == md5 for path, md5 in batches.items()):
        (file,) = download.md5
        archive = _fetch_file(file, folder, download, mirrors, progress)
        _unpack(archive, batches)
        archive.unlink()
    return list(batches)


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
    file: str, folder: Path, download: _Download, mirrors: tuple[str, ...], progress: Progress | None
) -> Path:
    path, part, md5 = folder / file, folder / f"{file}.part", download.md5[file]
    if path.is_file() and _md5(path) == md5:
        return path
    failures = []
    for base in mirrors:
        url = f"{base.rstrip('/')}/{file}"
        try:
            _download(url, part, md5, progress)
            os.replace(part, path)
        except (OSError, ValueError, http.client.HTTPException) as error:
            failures.append(f"  {url}: {error or type(error).__name__}")
        else:
            return path
    by_hand = "\n".join(f"  {name}  md5 {value}" for name, value in download.md5.items())
    raise DataError(
        f"{file} could not be downloaded:\n" + "\n".join(failures) + "\n"
        "Give another address with --mirror, or download by hand:\n"
        f"{by_hand}\ninto {folder.absolute()}"
        + (f" (unpack it there: {BINARY_FOLDER}/)" if file.endswith(".tar.gz") else "")
        + f", then run `hiflash data check {folder.name}`."
    )


def _download(url: str, part: Path, md5: str, progress: Progress | None) -> None:
    """Complete `part` to the content of `url`, or raise; a wrong checksum leaves no part file."""
    while True:
        before = _size(part)
        try:
            _receive(url, part, progress)
        except (OSError, http.client.HTTPException):
            # If the broken connection brought some bytes, try again from there.
            if _size(part) > before:
                continue
            raise
        got = _md5(part)
        if got == md5:
            return
        part.unlink()
        # An old part file may be wrong instead of the server's file: try once more from the start.
        if before == 0:
            raise ValueError(f"wrong checksum: md5 {got}, expected {md5}")


def _receive(url: str, part: Path, progress: Progress | None) -> None:
    start = _size(part)
    headers = {"User-Agent": "hiflash", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - the opener knows http(s) only
    try:
        response = _opener().open(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416 and start:  # no bytes after `start`: the checksum decides
                return
            raise OSError(f"HTTP {error.code} {error.reason}") from None
    with response:
        if response.status != 206 or not _continues(response.headers.get("Content-Range"), start):
            start = 0  # the server ignores the range and sends the whole file
        length = response.headers.get("Content-Length")
        total = start + int(length) if length and length.isdigit() else None
        with part.open("ab" if start else "wb") as out:
            done = start
            while block := response.read(_BLOCK):
                out.write(block)
                done += len(block)
                if done > _LIMIT:
                    break
                if progress is not None:
                    progress(part.stem, done, total)
    if done > _LIMIT:
        part.unlink()
        raise OSError(f"more than {_LIMIT >> 20} MiB sent, this is not the dataset")
    if total is not None and done < total:
        raise OSError(f"the connection ended after {done} of {total} bytes")


def _continues(content_range: str | None, start: int) -> bool:
    return content_range is not None and content_range.startswith(f"bytes {start}-")


def _opener() -> urllib.request.OpenerDirector:
    # urllib's own opener also follows file: and ftp: addresses; this one cannot.
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener


def _size(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


def _md5(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _femnist_advice(folder: Path) -> str:
    return (
        "femnist has no single trustworthy download. Build it with LEAF (https://github.com/TalwalkarLab/leaf):\n"
        "  cd leaf/data/femnist && ./preprocess.sh -s niid --sf 0.05 -k 0 -t sample\n"
        f"and put its data/train/*.json and data/test/*.json into train/ and test/ of\n"
        f"  {folder.absolute()}\nor a femnist.npz (arrays x, y, w, is_test) into that folder itself; then "
        "run `hiflash data check femnist`."
    )
