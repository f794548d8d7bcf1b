"""Runs the rows one after the other and prints a figure for each: `python -m chaos [--quick] [--json]`."""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from chaos.cloud_rows import crash_points, sigkills
from chaos.edge_rows import edge_frozen, edge_killed, end_missed
from chaos.fault_rows import bad_networks
from chaos.load_rows import flood, schedules
from chaos.network_rows import doubled_uploads, replayed_bytes, replayed_calls
from chaos.processes import adopt_orphans, children_left, in_child
from chaos.rows import Found, Row
from chaos.signal_rows import disk_full, signals

ROWS = (
    Row("kills", "25 SIGKILLs, the undisturbed digest", sigkills, 240),
    Row("points", "every crash point, nothing acknowledged is lost", crash_points, 240),
    Row("doubled", "30 % of uploads twice, 0 applied twice", doubled_uploads, 120),
    Row("bytes", "all bytes again, 0 applied twice", replayed_bytes, 120),
    Row("calls", "all calls again, also after a restart, 0 applied twice", replayed_calls, 120),
    Row("networks", "20 % lost, delayed, doubled, reordered on 20 seeds: every run ends", bad_networks, 300),
    Row("edge", "a killed edge works again in under 10 s", edge_killed, 120),
    Row("frozen", "a frozen edge loses its lease within lease_s + 2 s", edge_frozen, 120),
    Row("end", "an edge that missed the end hears of it in under 10 s", end_missed, 120),
    Row("signals", "Ctrl-C and SIGTERM within 5 s, nothing left, the same digest", signals, 180),
    Row("disk", "no room: one clear error, nothing acknowledged is lost", disk_full, 120),
    Row("flood", "p99 below 200 ms, less than 50 MB", flood, 60),
    Row("schedules", "3,000 schedules hold, 3 bugs found within 500", schedules, 300),
)
SMOKE = ("kills", "points", "calls", "edge")


def main() -> int:
    """Run rows and return 1 if one of them missed its bar."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("rows", nargs="*", choices=[[], *(row.name for row in ROWS)], help="which rows (all)")
    parser.add_argument("--quick", action="store_true", help="a smoke of some rows")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--list", action="store_true", help="name the rows and their bars")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{row.name:<10} {row.bar}" for row in ROWS))
        return 0
    torch.set_num_threads(1)  # the nodes are forked from here
    adopt_orphans()
    wanted = options.rows or (SMOKE if options.quick else [row.name for row in ROWS])
    began, figures, failed, ports = time.monotonic(), dict[str, Any](), list[str](), set[int]()
    for row in ROWS:
        if row.name in wanted:
            found, took_s = _run(row, quick=options.quick)
            figures |= found.figures
            ports |= set(found.ports)
            failed += [f"{row.name}: {what}" for what in found.missed]
            if not options.json:
                state = "FAILED" if found.missed else "ok"
                print(
                    f"{row.name:<10} {state:<7} {took_s:5.0f} s  {found.line}\n{'':<26}bar: {row.bar}",
                    flush=True,
                )
                for what in found.missed:
                    print(f"{'':<26}missed: {what}", flush=True)
    failed += [f"left running: {pid}" for pid in children_left()]
    failed += [f"port {port} is still in use" for port in sorted(ports) if _in_use(port)]
    figures |= {"chaos_s": time.monotonic() - began, "chaos_failed": failed}
    if options.json:
        print(json.dumps(figures))
    else:
        print(
            f"{'all rows hold' if not failed else f'{len(failed)} missed'} after {figures['chaos_s']:.0f} s"
        )
    return 1 if failed else 0


def _run(row: Row, *, quick: bool) -> tuple[Found, float]:
    """Return what a row has found, in a process of its own that is ended if it takes too long."""
    folder, begun = Path(tempfile.mkdtemp(prefix="hiflash-chaos-")), time.monotonic()
    try:
        found = Found(**in_child(lambda: asdict(row.run(folder, quick)), row.seconds))
    except (RuntimeError, TimeoutError) as error:
        found = Found("it did not come to an end", {}, [str(error)[-1500:]])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found, time.monotonic() - begun


def _in_use(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


if __name__ == "__main__":
    sys.exit(main())
