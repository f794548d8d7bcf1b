"""A smoke of `make chaos`: real processes are killed, and the same calls are made again."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason='needs pip install "hiflash[serve]"')

ROOT = Path(__file__).parents[2]


def test_a_short_chaos_holds_and_leaves_nothing():
    """In one process of its own: a worker of pytest has threads, and these must not be forked."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        [sys.executable, "-m", "chaos", "--quick", "--json"],
        capture_output=True,
        text=True,
        timeout=280,
        cwd=ROOT / "tests",
        env={**os.environ, "PYTHONPATH": paths},
    )
    figures = json.loads(ended.stdout or "{}")
    assert figures.get("chaos_failed") == [], (figures, ended.stderr[-2000:])
    assert ended.returncode == 0
    assert figures["chaos_kills"] == 3
    assert figures["chaos_crash_points"] == 2
