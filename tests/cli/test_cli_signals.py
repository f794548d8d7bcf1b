"""Commands that get a signal at some moment: they end soon, with one line and code 130."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

SOON_S = 5.0
NOISE_S = 5.0  # for a machine that has other things to do
CROWD = ["--trainer=none", "--data.name=none", "--federation.clients=2000000", "--federation.edges=1000"]
CELLS = ["--trainer=none", "--data.name=none", "--federation.clients=100000", "--federation.edges=100"]
LONG = [
    "--stop.target=none",
    "--stop.communications=10000000",
    "--stop.client_steps=none",
    "--checkpoint_s=0.5",
]


def start(*words: str, cwd: Path) -> subprocess.Popen[str]:
    """Return a command whose first lines have run: before them, only Python itself can answer a signal."""
    process = subprocess.Popen(
        [sys.executable, "-m", "hiflash", *words],
        cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not _handles_sigterm(process.pid) and time.monotonic() < deadline:
        time.sleep(0.002)
    return process


def _handles_sigterm(pid: int) -> bool:
    caught = re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    return caught is not None and bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)


def stop(process: subprocess.Popen[str], number: signal.Signals, *, terminal: bool = False) -> str:
    """Send a signal, as a terminal does to all processes, check that it is answered, and return stderr."""
    assert process.poll() is None, process.communicate()
    asked = time.monotonic()
    os.killpg(process.pid, number) if terminal else process.send_signal(number)
    try:
        _, err = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert time.monotonic() - asked < SOON_S + NOISE_S
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "ignored" not in err
    return err


def wait_for(path: Path, pattern: str) -> None:
    deadline = time.monotonic() + 120
    while not list(path.glob(pattern)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert list(path.glob(pattern))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("delay_s", [0.0, 0.05, 0.3, 1.0, 2.5, 4.0])
def test_imports_and_set_up_of_two_million_clients(
    delay_s: float, number: signal.Signals, tmp_path: Path
) -> None:
    process = start("run", *CROWD, cwd=tmp_path)
    time.sleep(delay_s)
    err = stop(process, number)
    assert err == "stopped\n" or "resume with: hiflash run --resume runs/" in err
    assert not list(tmp_path.glob("runs/*/result.json"))


def test_a_run_that_is_stopped_before_its_first_checkpoint_can_be_resumed(tmp_path: Path) -> None:
    process = start("run", *CELLS, *LONG, "--name=big", cwd=tmp_path)
    wait_for(tmp_path, "runs/big/events.jsonl")
    time.sleep(0.05)
    assert "resume with: hiflash run --resume runs/big" in stop(process, signal.SIGTERM)
    process = start("run", "--resume", "runs/big", cwd=tmp_path)
    wait_for(tmp_path, "runs/big/checkpoint.safetensors")
    assert "resume with: hiflash run --resume runs/big" in stop(process, signal.SIGINT)


@pytest.mark.parametrize("delay_s", [0.3, 1.5, 3.0, 5.0])
def test_a_ctrl_c_on_a_terminal_ends_a_comparison_and_its_processes(delay_s: float, tmp_path: Path) -> None:
    process = start("compare", *CELLS, *LONG, "--methods=hifl,hierfavg", "--seeds=1", cwd=tmp_path)
    time.sleep(delay_s)
    lines = stop(process, signal.SIGINT, terminal=True).splitlines()
    said = [line for line in lines if "started" not in line]
    assert said in (["stopped"], ["paused; give the same command again to go on with runs/compare-none"])


def test_a_sweep_that_runs(tmp_path: Path) -> None:
    process = start("sweep", *CELLS, *LONG, "--set=cloud.alpha=0.5,0.7", "--name=s", cwd=tmp_path)
    wait_for(tmp_path, "runs/s/*/checkpoint.safetensors")
    assert "give the same command again" in stop(process, signal.SIGTERM)


@pytest.mark.parametrize(
    ("words", "delay_s"),
    [
        (["associate", "--federation.clients=2000", "--federation.edges=200", "--sweep=0,1,...,900"], 0.5),
        pytest.param(
            ["associate", "--federation.clients=2000", "--federation.edges=200", "--sweep=0,1,...,900"],
            6.0,
            marks=pytest.mark.slow,
        ),
        (["paper", "run", "bounds"], 1.5),
        (["calibrate"], 0.5),
        pytest.param(["calibrate"], 8.0, marks=pytest.mark.slow),
        (["train-agent"], 1.0),
        pytest.param(["train-agent"], 8.0, marks=pytest.mark.slow),
        (["evaluate-agent", "--data.name=mnist5k"], 1.0),
        pytest.param(["evaluate-agent", "--data.name=mnist5k"], 8.0, marks=pytest.mark.slow),
    ],
)
def test_other_commands(words: list[str], delay_s: float, tmp_path: Path) -> None:
    process = start(*words, cwd=tmp_path)
    time.sleep(delay_s)
    stop(process, signal.SIGINT, terminal=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_download_from_a_server_that_says_nothing(number: signal.Signals, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        mirror = f"http://127.0.0.1:{server.getsockname()[1]}/"
        process = start("data", "fetch", "mnist", "--mirror", mirror, "--data.dir=d", cwd=tmp_path)
        with server.accept()[0]:
            assert stop(process, number) == "stopped\n"


def test_a_step_that_takes_long_is_not_waited_for(tmp_path: Path) -> None:
    """The samples are few and the steps many: one edge round would take minutes."""
    slow = ["--client.local_steps=200000", "--federation.clients=4", "--federation.edges=2", "--workers=1"]
    process = start("run", *slow, "--name=slow", cwd=tmp_path)
    wait_for(tmp_path, "runs/slow/checkpoint.safetensors")
    time.sleep(1)
    assert "resume with: hiflash run --resume runs/slow" in stop(process, signal.SIGTERM)
