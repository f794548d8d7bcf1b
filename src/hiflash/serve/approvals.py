"""What a CA remembers: an index of the certificates that it approved, and a denylist that services read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from hiflash.errors import IdentityError
from hiflash.serve.certificates import utc_now
from hiflash.serve.identity import Identity, parse_identity
from hiflash.store.files import write_atomic

__all__ = ["DENYLIST", "INDEX", "Approval", "add_approval", "add_denied", "read_approvals", "read_denylist"]

INDEX = "approved.jsonl"
DENYLIST = "denylist.txt"


@dataclass(frozen=True)
class Approval:
    """A certificate that was signed: for whom, which hosts, which key, until when."""

    identity: Identity
    hosts: tuple[str, ...]
    key: str
    serial: str
    fingerprint: str
    not_after: datetime

    def to_json(self) -> dict[str, Any]:
        """Return a line of the index."""
        return {
            "identity": self.identity.uri,
            "hosts": list(self.hosts),
            "key": self.key,
            "serial": self.serial,
            "fingerprint": self.fingerprint,
            "not_after": self.not_after.isoformat(),
        }

    @classmethod
    def from_json(cls, line: dict[str, Any]) -> Approval:
        """Return the approval of a line of the index."""
        return cls(
            parse_identity(line["identity"]),
            tuple(map(str, line["hosts"])),
            str(line["key"]),
            str(line["serial"]),
            str(line["fingerprint"]),
            datetime.fromisoformat(line["not_after"]),
        )


def add_approval(folder: Path, approval: Approval) -> None:
    """Add a line to the index of a CA."""
    _append(folder / INDEX, [json.dumps(approval.to_json())])


def add_denied(folder: Path, approvals: Iterable[Approval]) -> None:
    """Add certificates to the denylist of a CA."""
    today = f"{utc_now():%Y-%m-%d}"
    _append(folder / DENYLIST, [f"{a.fingerprint} {a.identity.uri} {today}" for a in approvals])


def read_approvals(folder: Path) -> list[Approval]:
    """Return every approval of a CA, oldest first."""
    path = folder / INDEX
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        raise IdentityError(
            f"{path} is missing; hiflash certs init makes the folder of a CA; name that one"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise IdentityError(f"{path} cannot be read: {error}") from None
    approvals = []
    for number, line in enumerate(lines, 1):
        try:
            approvals.append(Approval.from_json(json.loads(line)))
        except (ValueError, KeyError, TypeError, IdentityError) as error:
            raise IdentityError(
                f"{path}, line {number} is damaged ({error}); put it back as it was"
            ) from None
    return approvals


def read_denylist(folder: Path) -> frozenset[str]:
    """Return the fingerprints of the denied certificates; none if there is no denylist."""
    path = folder / DENYLIST
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return frozenset()
    except (OSError, UnicodeDecodeError) as error:
        raise IdentityError(f"{path} cannot be read: {error}") from None
    denied = []
    for number, line in enumerate(lines, 1):
        first = line.split(" ", 1)[0]
        if not re.fullmatch("[0-9a-f]{64}", first):  # a typing error must not let somebody in
            raise IdentityError(
                f"{path}, line {number} must begin with a fingerprint of 64 digits, got {line[:80]!r}"
            )
        denied.append(first)
    return frozenset(denied)


def _append(path: Path, lines: Iterable[str]) -> None:
    """Add lines to a small file; a crash leaves it without any of them or with all."""
    before = path.read_bytes() if path.exists() else b""
    write_atomic(path, before + "".join(f"{line}\n" for line in lines).encode())
