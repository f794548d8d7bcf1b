"""Ports on loopback: a free one, and whether one is free."""

from __future__ import annotations

import socket

__all__ = ["free_port", "is_free"]

HOST = "127.0.0.1"


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])


def is_free(port: int) -> bool:
    """Return whether nobody listens on a port."""
    try:
        with socket.create_server((HOST, port)):
            return True
    except OSError:
        return False
