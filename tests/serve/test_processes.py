"""A short smoke of `make chaos`: real processes are killed, frozen, replayed and run out of disk."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason='needs pip install "hiflash[serve]"')

ROOT = Path(__file__).parents[2]


def chaos(*words: str) -> subprocess.CompletedProcess[str]:
    paths = [str(ROOT / "tests"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, "-m", "chaos", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="needs prctl and /proc")
@pytest.mark.parametrize(
    "rows",
    [
        ("kills of the cloud", "crash points", "disk full"),
        ("doubled uploads", "replayed bytes", "killed edge", "frozen edge"),
    ],
)
def test_a_federation_survives(rows):
    done = chaos("--quick", "--json", *rows)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["chaos_ok"]
    assert found["chaos_failed"] == {}


def test_an_unknown_row_is_an_error_that_lists_the_known():
    done = chaos("kill everything")
    assert done.returncode == 2
    assert "there are kills of the cloud, crash points" in done.stderr
