"""Rows of load and of many schedules: a flood of calls, the simulated network, bugs put in on purpose."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from chaos.processes import fork
from chaos.rows import Found
from network.bugs import BUGS, SOON, schedules_to_find
from network.federation import Plan, run_plan

__all__ = ["bugs_put_in", "flood", "schedules"]

ROOT = Path(__file__).parents[2]
SCHEDULES = 10_000
LEAST = 3_000
PROCESSES = 2
MOST_S = 240.0
P99_MS, GROWTH_MB = 200.0, 50.0


def flood(folder: Path, quick: bool) -> Found:
    """Send 1,000 check-ins a second beside honest edges: the benchmark of the same name."""
    del folder, quick
    command = [sys.executable, "-m", "benchmarks", "serve_flood_p99_ms", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    figures = json.loads(done.stdout)
    p99_ms, growth_mb = figures["serve_flood_p99_ms"], figures["serve_flood_growth_mb"]
    found = Found(
        f"{figures['serve_flood_calls_s']:.0f} check-ins/s beside {figures['serve_flood_updates_s']:.0f} "
        f"honest updates/s: p99 {p99_ms:.0f} ms, {growth_mb:.0f} MB more",
        figures,
    )
    found.expect(p99_ms < P99_MS, f"honest uploads took {p99_ms:.0f} ms")
    found.expect(growth_mb < GROWTH_MB, f"the cloud grew by {growth_mb:.0f} MB")
    found.expect(figures["serve_flood_updates_s"] > 0, "honest edges made no progress")
    return found


def schedules(folder: Path, quick: bool) -> Found:
    """Run schedules of the simulated network on two processes, as many as there is time for."""
    wanted, begun = 100 if quick else SCHEDULES, time.monotonic()
    children = []
    for part in range(PROCESSES):
        work = partial(
            _run_schedules, range(part, wanted, PROCESSES), folder / f"held-{part}", begun + MOST_S
        )
        children.append(fork(f"schedules {part}", work, folder / f"log-{part}"))
    codes = [child.wait(MOST_S + 60.0) for child in children]
    took_s = time.monotonic() - begun
    held = sum(int((folder / f"held-{part}").read_text()) for part in range(PROCESSES))
    found = Found(
        f"{held} schedules held, {60 * held / took_s:.0f} a minute",
        {"chaos_schedules": held, "chaos_schedules_min": 60 * held / took_s},
    )
    for child, code in zip(children, codes, strict=True):
        found.expect(code == 0, f"{child.name} ended with {code}: {child.said()[-1000:]}")
    found.expect(held >= min(wanted, LEAST), f"{held} schedules in {took_s:.0f} s")
    return found


def bugs_put_in(folder: Path, quick: bool) -> Found:
    """Look for three clouds that are broken on purpose."""
    del folder, quick
    found, after = Found("", {}), {}
    for broken in BUGS:
        noticed = schedules_to_find(broken)
        after[broken.__name__] = 0 if noticed is None else noticed[0]
        found.expect(noticed is not None, f"{SOON} schedules did not notice {broken.__name__}")
    found.line = (
        "found after " + ", ".join(f"{number} ({name})" for name, number in after.items()) + " schedules"
    )
    found.figures = {f"chaos_found_{name}": number for name, number in after.items()}
    return found


def _run_schedules(seeds: Sequence[int], file: Path, until: float) -> None:
    """Run schedules until a time, and write down how many held; the first that does not hold ends it."""
    held = 0
    try:
        for seed in seeds:
            if time.monotonic() > until:
                return
            try:
                run_plan(Plan.drawn(seed))
            except Exception as error:
                raise AssertionError(f"seed {seed}: {error!r}") from error
            held += 1
    finally:
        file.write_text(str(held))
