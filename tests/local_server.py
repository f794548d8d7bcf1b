"""A web server on this machine, with files and faults, for tests of downloads."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Server:
    """What the server holds, how it behaves, and what was asked of it."""

    base: str
    files: dict[str, bytes]
    ranges: bool = True
    cut: int | None = None  # the connection ends after so many bytes of each answer
    redirect: str | None = None
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    credentials: list[str | None] = field(default_factory=list)

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        asked = request.headers.get("Range")
        self.asked.append((request.path, asked))
        self.credentials.append(request.headers.get("Authorization"))
        if self.redirect is not None:
            request.send_response(302)
            request.send_header("Location", self.redirect)
            request.end_headers()
            return
        content = self.files.get(request.path.lstrip("/"))
        if content is None:
            request.send_error(404)
            return
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.ranges else 0
        if start >= len(content):
            request.send_error(416)
            return
        request.send_response(206 if start else 200)
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        request.send_header("Content-Length", str(len(content) - start))
        request.end_headers()
        request.wfile.write(content[start:][: self.cut])


@contextlib.contextmanager
def serving(files: dict[str, bytes]) -> Iterator[Server]:
    """Yield a running server of these files, by path."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.answer(self)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        state = Server(f"http://127.0.0.1:{listener.server_address[1]}", files)
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield state
        listener.shutdown()
        thread.join()


def closed_port() -> str:
    """Return an address where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"
