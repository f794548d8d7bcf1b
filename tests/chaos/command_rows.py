"""Rows that stop the commands as people do: Ctrl-C, SIGTERM, and a kill of what holds everything together."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from chaos.federation import EDGES, ENDS_S, HOST, Federation, configuration, simulated_digest
from chaos.ports import free_port, is_free
from chaos.processes import in_child, wait_until
from chaos.rows import Found
from hiflash.config import Config
from hiflash.study.deploy import replay

__all__ = ["cloud_stopped", "up_stopped"]

SOON_S = 5.0
LONG = 400  # communications: some seconds of work
PAUSED = 130
TREE_S = 2.0


def up_stopped(folder: Path, quick: bool) -> Found:
    """Stop `hiflash up` with Ctrl-C and SIGTERM, resume it to the end; kill it with SIGKILL.

    Its edges stop, too, and lose the lease that they work on. So the model at the end is another one than
    that of an undisturbed run, and the journal must lead to it.
    """
    file = _write_config(folder, configuration("hierfavg", LONG))
    command = ["up", str(file), "--edges", str(EDGES), "--clients", "2", "--json", "--dir"]
    found = Found("", {})
    took_s = []
    for number in (signal.SIGTERM,) if quick else (signal.SIGTERM, signal.SIGINT):
        state, temporary = folder / f"state-{number}", folder / f"tmp-{number}"
        temporary.mkdir()
        with _started([*command, str(state)], folder / "up.log", temporary) as process:
            _wait_for_versions(process, state, folder / "up.log")
            took_s.append(_stop(process, number, whole_group=number == signal.SIGINT))
            left = _members(process.pid)
        found.expect(took_s[-1] < SOON_S, f"{took_s[-1]:.1f} s from {number.name} to the end of hiflash up")
        found.expect(
            process.returncode == PAUSED, f"{number.name}: hiflash up ended with {process.returncode}"
        )
        found.expect(not left, f"{number.name}: processes left: {left}")
        found.expect(not list(temporary.iterdir()), f"{number.name}: files left: {list(temporary.iterdir())}")
        found.expect(not list(state.glob(".*.tmp")), f"{number.name}: temporary files in the state folder")
        with _started([*command, str(state)], folder / "up.log", temporary) as process:
            process.wait(ENDS_S)
        again = in_child(partial(replay, state), ENDS_S) if process.returncode == 0 else {}
        resumed = again.get("matches_result") and again.get("communications") == LONG
        found.expect(bool(resumed), f"{number.name}: not resumed to its end, {again or process.returncode}")
    left = _killed(folder, command) if not quick else []
    found.expect(not left, f"SIGKILL of hiflash up left processes: {left}")
    found.line = (
        f"hiflash up ends {max(took_s):.1f} s after a signal at most, leaves nothing, goes on to its end"
    )
    found.figures = {"chaos_up_stopped_s": max(took_s)}
    return found


def cloud_stopped(folder: Path, quick: bool) -> Found:
    """Stop `hiflash cloud` with SIGTERM and Ctrl-C while its edges work; it goes on each time."""
    config = configuration("hierfavg", LONG)
    undisturbed = in_child(lambda: simulated_digest(config), ENDS_S)
    file = _write_config(folder, config)
    found, took_s = Found("", {}), []
    with Federation(folder / "federation", config, secure=False) as federation:
        port = free_port()
        (federation.folder / "addresses" / "cloud").write_text(f"{HOST}:{port}")
        command = ["cloud", str(file), "--listen", f"{HOST}:{port}", "--dir", str(federation.state)]
        federation.start(*federation.names[1:])
        for number in (signal.SIGTERM,) if quick else (signal.SIGTERM, signal.SIGINT):
            with _started(command, folder / "cloud.log", folder) as process:
                _wait_for_versions(process, federation.state, folder / "cloud.log")
                took_s.append(_stop(process, number, whole_group=False))
            found.expect(
                took_s[-1] < SOON_S, f"{took_s[-1]:.1f} s from {number.name} to the end of hiflash cloud"
            )
            found.expect(
                process.returncode == PAUSED, f"{number.name}: hiflash cloud ended with {process.returncode}"
            )
            found.expect(is_free(port), f"{number.name}: port {port} is still in use")
            found.expect(not list(federation.state.glob(".*.tmp")), f"{number.name}: temporary files left")
        with _started(command, folder / "cloud.log", folder) as process:
            result = federation.finish()
            process.wait(30)
        lost = federation.lost()
    found.ports = [*federation.ports]
    said = (folder / "cloud.log").read_text()
    found.expect(result["digest"] == undisturbed, "resumed to another digest")
    found.expect(not lost, f"acknowledged and lost: {lost[:3]}")
    found.expect(
        "Traceback" not in said and "never retrieved" not in said, f"hiflash cloud said {said[-500:]}"
    )
    found.line = (
        f"hiflash cloud ends {max(took_s):.1f} s after a signal at most, and goes on to the same digest"
    )
    found.figures = {"chaos_cloud_stopped_s": max(took_s)}
    return found


def _write_config(folder: Path, config: Config) -> Path:
    file = folder / "config.toml"
    file.write_text(config.to_toml())
    return file


@contextmanager
def _started(words: list[str], log: Path, temporary: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command in a session of its own; it is gone afterwards."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "hiflash", *words],
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "TMPDIR": str(temporary)},
        )
    try:
        yield process
    finally:
        for pid in [process.pid, *_members(process.pid, 0.0)]:
            _kill(pid)
        process.wait(10)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _wait_for_versions(process: subprocess.Popen[bytes], state: Path, log: Path) -> None:
    """Wait until a run goes on: its model changes."""

    def version() -> int:
        if process.poll() is not None:
            raise RuntimeError(f"the command ended with {process.returncode}: {log.read_text()[-2000:]}")
        try:
            return int(json.loads((state / "status.json").read_bytes())["version"])
        except (OSError, ValueError, KeyError):
            return 0

    wait_until(lambda: version() > 0, 60.0, "the first update")
    first = version()
    wait_until(lambda: version() > first, 60.0, "another update")


def _stop(process: subprocess.Popen[bytes], number: signal.Signals, *, whole_group: bool) -> float:
    """Send a signal, as a terminal does to a whole group; return the seconds until the command ended."""
    begun = time.monotonic()
    if whole_group:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    process.wait(60)
    return time.monotonic() - begun


def _killed(folder: Path, command: list[str]) -> list[int]:
    """Kill `hiflash up` itself and return the processes that live on."""
    temporary = folder / "tmp-killed"
    temporary.mkdir()
    with _started([*command, str(folder / "state-killed")], folder / "up.log", temporary) as process:
        _wait_for_versions(process, folder / "state-killed", folder / "up.log")
        process.kill()
        process.wait(10)
        return _members(process.pid, SOON_S)


def _members(session: int, seconds: float = TREE_S) -> list[int]:
    """Return the processes of a session that still live after a while."""
    until = time.monotonic() + seconds
    while True:
        left = [pid for pid in _all() if _session_of(pid) == session]
        if not left or time.monotonic() >= until:
            return left
        time.sleep(0.02)


def _all() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _session_of(pid: int) -> int | None:
    """Return the session of a living process; one that has ended and waits for its parent has none."""
    try:
        words: list[Any] = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if words[0] == "Z" else int(words[3])
