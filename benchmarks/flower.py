"""Measure Flower's simulation engine: client SGD steps per second on two cores.

Flower gets a virtual environment of its own, and runs in new network and process namespaces: its engine
starts Ray, which listens on all interfaces without authentication, so only loopback exists there, and every
process it starts ends with the namespace. Needs Linux with `unshare` and `ip`; elsewhere the measurement is
skipped and says why.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

__all__ = ["ensure_environment", "measure"]

REQUIREMENTS = ("flwr[simulation]==1.41.0", "torch>=2.10,<2.14")  # the bound keeps pip on torch's CPU build
WORKLOADS = ("epochs", "steps")
WORKERS = 2
WARM_UP = 2  # rounds outside the steady state: Ray starts, and the actors load their data
TIMEOUT = 240.0
INSTALL_TIMEOUT = 1800.0
SCRIPT = Path(__file__).with_name("flower_app.py")


class Unavailable(Exception):  # noqa: N818 - a reason to skip, not an error
    """Flower cannot be measured here; the message says why."""


def ensure_environment(folder: Path) -> Path:
    """Return the Python of the virtual environment in a folder; make the environment if it is missing."""
    python = folder / "bin" / "python"
    marker = folder / "flower-requirements.txt"
    wanted = "\n".join(REQUIREMENTS)
    if python.exists() and marker.is_file() and marker.read_text() == wanted:
        return python
    _run([sys.executable, "-m", "venv", str(folder)], INSTALL_TIMEOUT)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "--only-binary=:all:", *REQUIREMENTS], INSTALL_TIMEOUT)
    marker.write_text(wanted)
    return python


def measure(epochs_or_steps: str, rounds: int, work_dir: Path) -> dict[str, Any]:
    """Run one workload in Flower and return its steps per second.

    Args:
        epochs_or_steps: "epochs" for 3 local epochs (300 steps a round), "steps" for 3 steps (30 a round).
        rounds: how many rounds, at least 3; the first two are left out of the steady state.
        work_dir: where the environment (`venv`) and the log lie; made if it is missing.

    Returns:
        `steps_per_s` (steady state), `steps_per_s_with_startup` (all rounds over the process's whole time),
        `rounds`, `skipped` (a reason, or None), and for reading them: `bare_steps_per_s` and
        `bare_steps_per_s_two`, the plain PyTorch loop on one thread and in two processes at once, run just
        before and just after (means; singly in `bare_before_after`), `round_s` and `client_s`, the mean
        seconds of a steady round and of one client's training in it, `round_seconds` and `total_s`.

    """
    if epochs_or_steps not in WORKLOADS:
        raise ValueError(f"epochs_or_steps must be one of {WORKLOADS}, got {epochs_or_steps!r}")
    if rounds <= WARM_UP:
        raise ValueError(f"rounds must be more than {WARM_UP}, got {rounds}")
    result: dict[str, Any] = {
        "steps_per_s": None,
        "steps_per_s_with_startup": None,
        "rounds": rounds,
        "skipped": None,
    }
    try:
        result |= _measure(epochs_or_steps, rounds, work_dir.resolve())
    except Unavailable as reason:
        result["skipped"] = str(reason)
    return result


def _measure(workload: str, rounds: int, work_dir: Path) -> dict[str, Any]:
    prefix = _isolation()
    work_dir.mkdir(parents=True, exist_ok=True)
    python = ensure_environment(work_dir / "venv")
    log = work_dir / f"flower-{workload}.log"
    log.unlink(missing_ok=True)
    call = [*prefix, str(python), str(SCRIPT)]
    # Not in work_dir: the paths of Ray's sockets may have 107 characters.
    with tempfile.TemporaryDirectory(prefix="flower-", ignore_cleanup_errors=True) as folder:
        output = Path(folder) / "result.json"
        call += ["--output", str(output), "--workers", str(WORKERS)]
        environment = _environment(folder)
        loops: list[dict[str, float]] = []
        _run([*call, "bare"], TIMEOUT, environment, log)
        loops.append(json.loads(output.read_text()))
        begin = time.perf_counter()
        _run([*call, "simulate", workload, "--rounds", str(rounds)], TIMEOUT, environment, log)
        total = time.perf_counter() - begin
        run = json.loads(output.read_text())
        _run([*call, "bare"], TIMEOUT, environment, log)
        loops.append(json.loads(output.read_text()))
    steps = run["steps_per_round"]
    round_s = statistics.fmean(run["round_seconds"][WARM_UP:])
    return {
        "steps_per_s": steps / round_s,
        "steps_per_s_with_startup": steps * rounds / total,
        "bare_steps_per_s": statistics.fmean(loop["one"] for loop in loops),
        "bare_steps_per_s_two": statistics.fmean(loop["all"] for loop in loops),
        "bare_before_after": loops,
        "round_s": round_s,
        "client_s": statistics.fmean(run["client_seconds"][WARM_UP:]),
        "total_s": total,
        "round_seconds": run["round_seconds"],
    }


def _isolation() -> list[str]:
    """Return a command prefix that isolates a command: only loopback, and its own process namespace."""
    tools = {name: shutil.which(name) for name in ("unshare", "ip", "sh")}
    for name, path in tools.items():
        if path is None:
            raise Unavailable(f"no `{name}` here, which keeps Ray's open ports off the network")
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    # With --kill-child the namespace's first process, and with it all the others, ends with unshare.
    spaces = ["--net", "--pid", "--fork", "--kill-child", "--mount-proc", *user]
    shell = f'{tools["ip"]} link set lo up && exec "$@"'
    prefix = [str(tools["unshare"]), *spaces, "--", str(tools["sh"]), "-c", shell, "sh"]
    _run([*prefix, "true"], 10.0)
    return prefix


def _environment(folder: str) -> dict[str, str]:
    """Return the few variables that Flower gets: no telemetry, one thread, all files in one folder."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    if directory := os.environ.get("HIFLASH_DATA"):
        kept["HIFLASH_DATA"] = str(Path(directory).resolve())
    return kept | {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_HOME": f"{folder}/flwr",
        "HOME": folder,
        "OMP_NUM_THREADS": "1",
        "RAY_TMPDIR": folder,
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def _run(
    command: list[str], timeout: float, environment: dict[str, str] | None = None, log: Path | None = None
) -> None:
    """Run a command to its end; append its output to the log, and quote it in an error."""
    try:
        done = subprocess.run(
            command,
            env=environment,
            cwd=None if environment is None else environment["HOME"],  # Ray's workers import from here, too
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            text=True,
            errors="replace",
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"`{' '.join(command)}` took more than {timeout:.0f} s and was ended") from error
    except OSError as error:
        raise Unavailable(f"`{' '.join(command)}` cannot be run ({error})") from error
    if log is not None:
        with log.open("a") as file:
            file.write(done.stdout)
    if done.returncode != 0:
        raise Unavailable(f"`{' '.join(command)}` failed ({done.returncode}): {done.stdout[-600:].strip()}")


def main() -> None:
    """Measure both workloads and print one JSON object for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work-dir", type=Path, default=Path("flower-work"))
    parser.add_argument("--epoch-rounds", type=int, default=8)
    parser.add_argument("--step-rounds", type=int, default=20)
    options = parser.parse_args()
    for workload, rounds in zip(WORKLOADS, (options.epoch_rounds, options.step_rounds), strict=True):
        print(json.dumps({"workload": workload} | measure(workload, rounds, options.work_dir)), flush=True)


if __name__ == "__main__":
    main()
