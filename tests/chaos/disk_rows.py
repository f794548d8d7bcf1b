"""A row of disks that refuse the cloud's journal: one error, nothing acknowledged is lost, it goes on."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from chaos.federation import ENDS_S, HOST, Federation, configuration, simulated_digest
from chaos.ports import free_port
from chaos.processes import in_child
from chaos.rows import Found

__all__ = ["disk_full"]

LIMIT = 700_000  # bytes: some uploads of 87 kB
COMMUNICATIONS = 24
ERROR = 2
CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_REC, MS_PRIVATE, MS_REMOUNT = 0x4000, 0x40000, 0x20


def disk_full(folder: Path, quick: bool) -> Found:
    """Let the cloud's files reach a limit, and its disk become full; then make room."""
    config = configuration("hierfavg", COMMUNICATIONS)
    undisturbed = in_child(lambda: simulated_digest(config), ENDS_S)
    found, lines = Found("", {}), []
    limited = _Disk("a limit on file sizes", folder / "limited", None, limit=LIMIT)
    disks = [limited] if quick else [limited, _Disk("a full disk", folder / "small", _mount_small)]
    for disk in disks:
        told = in_child(lambda disk=disk: disk.run(undisturbed), 2 * ENDS_S)  # type: ignore[misc]
        lines.append(told["line"])
        found.missed += told["missed"]
        found.ports += told["ports"]
        found.figures |= told["figures"]
    found.line = "; ".join(lines)
    return found


class _Disk:
    """A disk that has too little room, and gets more."""

    def __init__(
        self, what: str, folder: Path, mount: Callable[[Path, int, bool], None] | None, limit: int = 0
    ) -> None:
        self.what, self.folder, self.mount, self.limit = what, folder, mount, limit

    def run(self, undisturbed: str) -> dict[str, object]:
        """Run a federation on this disk in a process of its own, which may mount things."""
        self.folder.mkdir()
        small = self.folder / "disk"
        small.mkdir()
        if self.mount is not None:
            try:
                _own_mounts()
                self.mount(small, LIMIT, False)
            except OSError as error:
                skipped = f"{self.what}: skipped, mounting is not permitted ({error.strerror})"
                return {"line": skipped, "missed": [], "ports": [], "figures": {}}
        found = self._fill(small, undisturbed)
        return {"line": found.line, "missed": found.missed, "ports": found.ports, "figures": found.figures}

    def _fill(self, small: Path, undisturbed: str) -> Found:
        config = configuration("hierfavg", COMMUNICATIONS)
        with Federation(self.folder / "federation", config, secure=False) as federation:
            federation.state = small / "state"
            address = federation.folder / "addresses" / "cloud"
            address.write_text(f"{HOST}:{free_port()}")
            file = federation.folder / "config.toml"
            file.write_text(config.to_toml())
            federation.start(*federation.names[1:])
            words = ["cloud", str(file), "--dir", str(federation.state), "--listen", address.read_text()]
            full = _cloud(words, self.limit)
            told, rows = len(federation.acknowledged()), federation.rows()
            lost = federation.lost()
            if self.mount is not None:
                self.mount(small, 100 * LIMIT, True)
            again = _cloud(words, 0)
            result = federation.finish() if again.returncode == 0 else {"digest": again.stderr}
            lost += federation.lost()
        errors = [line for line in full.stderr.splitlines() if not line.startswith("cloud: listening")]
        name = self.what.replace(" ", "_")
        found = Found(
            f"{self.what}: ended after {rows} rows and {told} verdicts, {len(lost)} lost, went on to the end",
            {f"chaos_{name}_rows": rows, f"chaos_{name}_lost": len(lost)},
            ports=list(federation.ports),
        )
        found.expect(full.returncode == ERROR, f"{self.what}: hiflash cloud ended with {full.returncode}")
        found.expect(len(errors) == 1 and "cannot be written" in errors[0], f"{self.what}: it said {errors}")
        found.expect(told > 0, f"{self.what}: nothing was acknowledged before")
        found.expect(not lost, f"{self.what}: acknowledged and lost: {lost[:3]}")
        found.expect(result["digest"] == undisturbed, f"{self.what}: it ended with {result['digest'][-300:]}")
        return found


def _cloud(words: list[str], limit: int) -> subprocess.CompletedProcess[str]:
    """Run the cloud to its end; with a limit, no file of it may grow beyond."""

    def limits() -> None:
        if limit:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.run(
        [sys.executable, "-m", "hiflash", *words],
        capture_output=True,
        text=True,
        timeout=ENDS_S,
        preexec_fn=limits,  # this process has one thread
    )


def _own_mounts() -> None:
    """Give this process mounts of its own, which end with it."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    flags = CLONE_NEWNS | (0 if user == 0 else CLONE_NEWUSER)
    if libc.unshare(flags):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    _mount(b"none", "/", None, MS_REC | MS_PRIVATE, "")


def _mount_small(folder: Path, size: int, again: bool) -> None:
    """Mount a small disk in memory, or change its size."""
    _mount(b"tmpfs", str(folder), b"tmpfs", MS_REMOUNT if again else 0, f"size={size}")


def _mount(source: bytes, target: str, kind: bytes | None, flags: int, data: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source, target.encode(), kind, ctypes.c_ulong(flags), data.encode()):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
