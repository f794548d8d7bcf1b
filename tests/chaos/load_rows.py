"""Rows about load and about schedules: a flood of calls, and thousands of simulated networks."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.serve import ROOT, serve_flood_p99_ms

from chaos.rows import Found

__all__ = ["flood", "schedules"]

P99_MS, GROWTH_MB = 200.0, 50.0
SEEDS = 3_000


def flood(folder: Path, quick: bool) -> Found:
    """Send 1,000 check-ins a second beside honest edges."""
    del folder
    figures = serve_flood_p99_ms(2.0 if quick else 10.0)
    p99_ms, growth_mb = figures["serve_flood_p99_ms"], figures["serve_flood_growth_mb"]
    found = Found(
        f"p99 of honest uploads {p99_ms:.0f} ms beside {figures['serve_flood_calls_s']:.0f} calls/s, "
        f"{figures['serve_flood_updates_s']:.0f} updates/s, memory {growth_mb:+.0f} MB",
        figures,
    )
    found.expect(p99_ms < P99_MS, f"p99 {p99_ms:.0f} ms")
    found.expect(growth_mb < GROWTH_MB, f"memory grew by {growth_mb:.0f} MB")
    found.expect(figures["serve_flood_updates_s"] > 0, "honest edges stood still")
    return found


def schedules(folder: Path, quick: bool) -> Found:
    """Run the shipped classes on simulated networks and disks, and clouds with a bug put in on purpose."""
    del folder
    seeds, begun = (100 if quick else SEEDS), time.monotonic()
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        broken = [
            seed for part in pool.map(_broken, [range(0, seeds, 2), range(1, seeds, 2)]) for seed in part
        ]
        bugs = pool.map(_bug, range(3))
    took_s = time.monotonic() - begun
    found = Found(
        f"{seeds} schedules, {len(broken)} broken, {60 * seeds / took_s:.0f} a minute; "
        f"bugs put in on purpose found after {', '.join(map(str, bugs))} schedules",
        {"chaos_schedules": seeds, "chaos_schedules_broken": len(broken), "chaos_bugs_found_after": bugs},
    )
    found.expect(not broken, f"seeds that broke what must hold: {broken[:10]}")
    found.expect(all(bugs), f"bugs not found within 500 schedules: {bugs}")
    return found


def _paths() -> None:
    for path in (ROOT, ROOT / "tests"):
        if str(path) not in sys.path:
            sys.path.insert(0, str(path))


def _broken(seeds: Sequence[int]) -> list[int]:
    """Return the seeds whose schedule breaks what must hold."""
    _paths()
    from network.federation import Plan, run_plan

    found = []
    for seed in seeds:
        try:
            run_plan(Plan.drawn(seed))
        except Exception:  # whatever notices it
            found.append(seed)
    return found


def _bug(place: int) -> int:
    """Return after how many schedules a bug is found, 0 if it is not."""
    _paths()
    from network.bugs import BUGS, schedules_to_find

    return int(schedules_to_find(BUGS[place]) or 0)
