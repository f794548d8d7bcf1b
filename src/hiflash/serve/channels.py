"""How a node reaches others and is reached: addresses, credentials, and whether that is safe."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from hiflash.errors import ConfigError, IdentityError
from hiflash.serve.approvals import read_denylist
from hiflash.serve.credentials import Credentials
from hiflash.serve.grpc_transport import GrpcCaller
from hiflash.serve.identity import Identity, parse_label

__all__ = ["Channels", "open_channels", "split_address"]

PLAIN = "plaintext"  # the federation's name where there are no certificates


@dataclass(frozen=True)
class Channels:
    """The ways of one node. Without credentials calls are neither secret nor proved."""

    identity: Identity
    credentials: Credentials | None = field(default=None, repr=False)
    denied: Collection[str] = ()
    insecure: bool = False

    def to(self, address: str, role: str, number: int, most_bytes: int) -> GrpcCaller:
        """Return the way to the service of another node."""
        host, _ = split_address(address)
        if self.credentials is None and not self.insecure and not is_loopback(host):
            raise ConfigError(f"{address} is beyond this machine; give --certs DIR, or spell out --insecure")
        label = role if role == "cloud" else f"{role}/{number}"
        server = parse_label(label, self.identity.federation)
        return GrpcCaller(address, self.credentials or self.identity, server, most_bytes)


def open_channels(certs: Path | None, who: str, addresses: Collection[str], *, insecure: bool) -> Channels:
    """Return the ways of a node such as `edge/3` with the certificates of a folder.

    Without certificates all `addresses` must be on loopback, unless the user asks for `insecure` calls.
    """
    if certs is not None:
        if insecure:
            raise ConfigError("--certs and --insecure are both given; leave one of them out")
        credentials = Credentials.load(certs, who)
        return Channels(credentials.identity, credentials, frozenset(read_denylist(certs)))
    beyond = [address for address in addresses if not is_loopback(split_address(address)[0])]
    if beyond and not insecure:
        raise ConfigError(
            f"{beyond[0]} is beyond this machine, and without certificates anybody could join and read; give "
            "--certs DIR (hiflash certs), or spell out --insecure"
        )
    try:
        return Channels(parse_label(who, PLAIN), insecure=insecure)
    except IdentityError as error:
        raise ConfigError(f"--node {who}: {error}") from None


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of an address such as `127.0.0.1:7600`, `[::1]:7600` or `edge.example.org:0`."""
    host, colon, port = address.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(f"an address is HOST:PORT, like cloud.example.org:7600, got {address[:100]!r}")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine itself."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
