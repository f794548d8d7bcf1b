"""Downloads one file over http(s): resumed from its part file, limited in size, verified by checksum."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

__all__ = ["FAILURES", "Checksum", "Progress", "download", "read_page", "without_credentials"]

Progress = Callable[[str, int, int | None], None]  # file name, bytes so far, bytes in all if known
FAILURES = (OSError, ValueError, http.client.HTTPException)

_TIMEOUT = 5.0  # seconds without an answer; a stalled download goes on from its part file
_BLOCK = 1 << 16


class Checksum(NamedTuple):
    """The expected digest of a file: the name of the algorithm, and its value in hexadecimal."""

    algorithm: str
    value: str

    def __str__(self) -> str:
        return f"{self.algorithm} {self.value}"

    def matches(self, path: Path) -> bool:
        """Return whether this is the checksum of an existing file."""
        return path.is_file() and self.of(path) == self.value

    def of(self, path: Path) -> str:
        """Return the digest of a file by the same algorithm."""
        with path.open("rb") as stream:
            return hashlib.file_digest(
                stream, lambda: hashlib.new(self.algorithm, usedforsecurity=self.algorithm != "md5")
            ).hexdigest()


def download(url: str, path: Path, checksum: Checksum, limit: int, progress: Progress | None) -> None:
    """Write the content of `url` to `path`, or raise one of `FAILURES`.

    A broken connection leaves `<path>.part`, from which the next download goes on. A wrong checksum leaves
    nothing.
    """
    part = path.with_name(f"{path.name}.part")
    while True:
        before = _size(part)
        try:
            _receive(url, part, limit, progress)
        except (OSError, http.client.HTTPException):
            # If the broken connection brought some bytes, try again from there.
            if _size(part) > before:
                continue
            raise
        got = checksum.of(part)
        if got == checksum.value:
            os.replace(part, path)
            return
        part.unlink()
        # An old part file may be wrong instead of the server's file: try once more from the start.
        if before == 0:
            raise ValueError(f"wrong checksum: {checksum.algorithm} {got}, expected {checksum.value}")


def read_page(url: str, limit: int) -> tuple[str, str]:
    """Return a page as text, and its address after redirects; raise beyond `limit` bytes."""
    with _open(url, {"Accept": "text/html"}) as response:
        content = response.read(limit + 1)
        if len(content) > limit:
            raise ValueError(f"the page is larger than {limit >> 20} MiB")
        return content.decode("utf-8", "replace"), response.url


def without_credentials(url: str) -> str:
    """Return an address without its user name and password, for messages.

    >>> without_credentials("https://me:secret@host:8080/simple")
    'https://host:8080/simple'
    """
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


class _Refused(OSError):  # noqa: N818  # as in "connection refused"
    """The server answered with an error."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"HTTP {code} {reason}")
        self.code = code


def _receive(url: str, part: Path, limit: int, progress: Progress | None) -> None:
    start = _size(part)
    headers = {"Range": f"bytes={start}-"} if start else {}
    try:
        response = _open(url, headers)
    except _Refused as refused:
        if refused.code == 416 and start:  # no bytes after `start`: the checksum decides
            return
        raise
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
                if done > limit:
                    break
                if progress is not None:
                    progress(part.stem, done, total)
    if done > limit:
        part.unlink()
        raise OSError(f"more than {limit >> 20} MiB sent, this is not the dataset")
    if total is not None and done < total:
        raise OSError(f"the connection ended after {done} of {total} bytes")


def _open(url: str, headers: dict[str, str]) -> http.client.HTTPResponse:
    headers = {"User-Agent": "hiflash", "Accept-Encoding": "identity", **headers}
    bare = without_credentials(url)
    request = urllib.request.Request(bare, headers=headers)  # noqa: S310 - the opener knows http(s) only
    parts = urlsplit(url)
    if parts.username is not None:
        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        # Not sent along with a redirect, which may lead to another host.
        request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(secret).decode()}")
    try:
        return _opener().open(request, timeout=_TIMEOUT)  # type: ignore[no-any-return]
    except urllib.error.HTTPError as error:
        with error:
            raise _Refused(error.code, error.reason) from None


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
