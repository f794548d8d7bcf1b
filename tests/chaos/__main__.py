"""`python -m chaos [ROW ...] [--json] [--quick] [--list]`: break a federation on purpose, row by row."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from chaos.cloud_rows import crash_points, sigkills
from chaos.command_rows import cloud_stopped, up_stopped
from chaos.disk_rows import disk_full
from chaos.edge_rows import edge_frozen, edge_killed, end_missed
from chaos.fault_rows import bad_networks
from chaos.load_rows import bugs_put_in, flood, schedules
from chaos.network_rows import doubled_uploads, replayed_bytes, replayed_calls
from chaos.ports import is_free
from chaos.processes import adopt_orphans, children_left, in_child
from chaos.rows import Found, Row

ROOT = Path(__file__).parents[2]
MOST_S = 840.0  # for all rows: `make chaos` ends within 15 minutes

ROWS = (
    Row("kills of the cloud", "25 kills, the digest of an undisturbed and of a simulated run", sigkills, 180),
    Row("crash points", "all points, nothing acknowledged is lost, the same digest", crash_points, 180),
    Row("doubled uploads", "30 % sent twice, 0 applied twice", doubled_uploads, 90),
    Row("replayed bytes", "all bytes again under TLS, now and after a restart: no row", replayed_bytes, 90),
    Row(
        "replayed calls",
        "all calls again by a stranger, now and after a restart: no change",
        replayed_calls,
        90,
    ),
    Row(
        "lost, delayed, reordered",
        "20 % of calls each, or bad connections: 20 runs end and replay",
        bad_networks,
        300,
    ),
    Row("killed edge", "works again within 10 s", edge_killed, 90),
    Row("frozen edge", "loses its lease within lease_s + 2 s, works again within 10 s", edge_frozen, 90),
    Row("missed end", "an edge that missed the end hears of it within 10 s", end_missed, 120),
    Row("signals to up", "ends within 5 s, no process or file left, goes on to its end", up_stopped, 150),
    Row("signals to the cloud", "ends within 5 s, no port or file left, the same digest", cloud_stopped, 150),
    Row("disk full", "one error, nothing acknowledged is lost, goes on to the same digest", disk_full, 150),
    Row("flood", "p99 below 200 ms, less than 50 MB more", flood, 120),
    Row("bugs put in", "three, each found within 500 schedules", bugs_put_in, 120),
    Row("schedules", "10,000 or 4 minutes, 3,000 at least, all hold", schedules, 300),
)


def main() -> int:
    """Run rows one after the other, each in a process of its own, and look at what is left of it."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="names of rows; all if none is given")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--quick", action="store_true", help="a smoke: fewer kills, seeds and schedules")
    parser.add_argument("--list", action="store_true", help="print the rows and their bars")
    options = parser.parse_args()
    known = {row.name: row for row in ROWS}
    unknown = [name for name in options.rows if name not in known]
    if unknown:
        print(f"error: unknown row {unknown[0]!r}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    if options.list:
        print("\n".join(f"{row.name:<26}{row.bar}" for row in ROWS))
        return 0
    found = _run([known[name] for name in options.rows or known], options.quick, quiet=options.json)
    if options.json:
        print(json.dumps(found))
    return 0 if found["chaos_ok"] else 1


def _run(rows: list[Row], quick: bool, *, quiet: bool) -> dict[str, object]:
    """Return the figures of all rows; print a line for each as it comes."""
    import torch

    torch.set_num_threads(1)  # a forked process would wait for its threads for ever
    adopt_orphans()
    os.environ.pop("HIFLASH_CRASH", None)
    begun, there = time.monotonic(), _files()
    figures: dict[str, object] = {}
    failed: dict[str, list[str]] = {}
    base = Path(tempfile.mkdtemp(prefix="hiflash-chaos-"))
    try:
        for row in rows:
            started = time.monotonic()
            found = _one(row, base, quick, min(row.seconds, begun + MOST_S - started))
            figures |= found.figures
            if found.missed:
                failed[row.name] = found.missed
            if not quiet:
                _print(row, found, time.monotonic() - started)
    finally:
        shutil.rmtree(base)
    if new := sorted(_files() - there):
        failed["files"] = [f"left in the repository: {new}"]
    took_s = time.monotonic() - begun
    if not quiet:
        said = "all rows hold" if not failed else f"failed: {', '.join(failed)}"
        print(
            f"{said}; {took_s:.0f} s, no process, port or file left"
            if not failed
            else f"{said}; {took_s:.0f} s"
        )
    return {**figures, "chaos_seconds": took_s, "chaos_failed": failed, "chaos_ok": not failed}


def _one(row: Row, base: Path, quick: bool, seconds: float) -> Found:
    """Run a row in a process of its own, and add what it left behind to what it missed."""
    folder, temporary = base / row.name.replace(" ", "-").replace(",", ""), base / "tmp"
    for path in (folder, temporary):
        path.mkdir()
    os.environ["TMPDIR"], tempfile.tempdir = str(temporary), None
    try:
        found = Found(**in_child(lambda: dataclasses.asdict(row.run(folder, quick)), max(1.0, seconds)))
    except (RuntimeError, TimeoutError) as error:
        found = Found("no figure", {}, [_last_line(error)])
    for pid in children_left():
        found.missed.append(f"process {pid} was left: {_command(pid)}")
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    children_left()
    found.expect(not (busy := [port for port in found.ports if not is_free(port)]), f"ports in use: {busy}")
    found.expect(not (left := os.listdir(temporary)), f"temporary files left: {left}")
    for path in (folder, temporary):
        shutil.rmtree(path)
    return found


def _print(row: Row, found: Found, took_s: float) -> None:
    print(f"{row.name:<26}{'FAILED' if found.missed else 'ok':<8}{took_s:4.0f} s  {found.line}")
    print(f"{'':<26}{'bar':<8}        {row.bar}", flush=True)
    for missed in found.missed:
        print(f"{'':<26}{'missed':<8}        {missed}", flush=True)


def _files() -> set[str]:
    """Return what lies at the top of the repository, but for caches."""
    return {name for name in os.listdir(ROOT) if not name.startswith((".", "__"))}


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200]
    return "it has ended since"


def _last_line(error: Exception) -> str:
    return str(error).strip().splitlines()[-1][:500]


if __name__ == "__main__":
    sys.exit(main())
