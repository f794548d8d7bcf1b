"""Rows that stop a federation as people do, and rows that fill its disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from chaos.federation import ENDS_S, Federation, configuration, simulated_digest
from chaos.processes import in_child, wait_until
from chaos.rows import Found

__all__ = ["disk_full", "signals"]

SOON_S = 5.0
UP = ("--edges", "2", "--clients", "2", "--method", "hierfavg", "--edge.clients_per_round", "2")
LIMIT_BYTES = 1_500_000  # of a file that the cloud may write: about eight uploads


def signals(folder: Path, quick: bool) -> Found:
    """Stop `hiflash up` by Ctrl-C and a cloud by SIGTERM, and let both go on."""
    config = configuration("hierfavg", 24 if quick else 60)
    simulated = in_child(lambda: simulated_digest(config), ENDS_S)
    interrupted_s, left, resumed = _interrupt_up(folder, config)
    with Federation(folder / "federation", config) as federation:
        federation.start()
        federation.wait_for_rows(10)
        begun = time.monotonic()
        federation.nodes["cloud"].signal(signal.SIGTERM)
        code = federation.nodes["cloud"].wait(30.0)
        stopped_s = time.monotonic() - begun
        federation.start("cloud")
        digest, lost = federation.finish()["digest"], federation.lost()
    found = Found(
        f"Ctrl-C ends `hiflash up` after {interrupted_s:.1f} s, SIGTERM a cloud after {stopped_s:.1f} s",
        {"chaos_interrupt_s": interrupted_s, "chaos_sigterm_s": stopped_s, "chaos_signals_left": len(left)},
        ports=list(federation.ports),
    )
    found.expect(max(interrupted_s, stopped_s) < SOON_S, f"{max(interrupted_s, stopped_s):.1f} s to stop")
    found.expect(code == 0, f"the cloud ended with {code}")
    found.expect(not left, f"left behind: {left[:3]}")
    found.expect(resumed == simulated, "`hiflash up` went on to another digest")
    found.expect(digest == simulated, "the cloud went on to another digest")
    found.expect(not lost, f"acknowledged and lost: {lost[:3]}")
    return found


def _interrupt_up(folder: Path, config: Any) -> tuple[float, list[str], str]:
    """Return the seconds until `hiflash up` ended, what it left, and the digest that it went on to."""
    state, temporary = folder / "state", folder / "tmp"
    temporary.mkdir()
    file = folder / "up.toml"
    file.write_text(config.to_toml())
    words = [sys.executable, "-m", "hiflash", "up", str(file), *UP, "--dir", str(state), "--json"]
    words += ["--stop.communications", str(config.stop.communications)]
    process = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(temporary)},
        start_new_session=True,
    )
    wait_until(lambda: (state / "status.json").exists() or process.poll() is not None, 60.0, "hiflash up")
    time.sleep(0.7)
    begun = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=30)
    took_s = time.monotonic() - begun
    left = [path.name for path in temporary.iterdir()]
    again = subprocess.run(words, capture_output=True, timeout=ENDS_S, check=True)
    return took_s, left, json.loads(again.stdout)["digest"]


def disk_full(folder: Path, quick: bool) -> Found:
    """Let the cloud run out of room for its journal, make room, and go on."""
    config = configuration("hierfavg", 24 if quick else 48)
    simulated = in_child(lambda: simulated_digest(config), ENDS_S)
    with Federation(folder / "federation", config) as federation:
        federation.start("cloud", environment={"CHAOS_FILE_BYTES": str(LIMIT_BYTES)})
        federation.start(*federation.names[1:])
        code = federation.nodes["cloud"].wait(ENDS_S)
        said = federation.nodes["cloud"].said()
        before = federation.rows()
        federation.start("cloud")
        digest, lost = federation.finish()["digest"], federation.lost()
    found = Found(
        f"the cloud ended at row {before} for want of room, and went on to row {federation.rows()}",
        {"chaos_disk_rows": before, "chaos_disk_lost": len(lost)},
        ports=list(federation.ports),
    )
    found.expect(code not in (0, None), f"the cloud ended with {code}")
    found.expect("cannot be written" in said, "the cloud did not say that it cannot write")
    found.expect(digest == simulated, "the run went on to another digest")
    found.expect(not lost, f"acknowledged and lost: {lost[:3]}")
    return found
