"""`python -m benchmarks [NAME ...] [--json]`: run the named benchmarks, or all, and print the results."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hiflash.errors import HiFlashError

BARS = {
    "trainer_lenet_vs_loop": ("x", "at least 4.0"),
    "trainer_femnist_vs_loop": ("x", "at least 1.5"),
    "trainer_cnn_vs_loop": ("x", "-"),
    "simulation_vs_loop": ("x", "at least 6"),
    "flower_epochs_ratio": ("x", "at least 4, 5 wanted"),
    "flower_steps_ratio": ("x", "at least 10"),
    "scaling_2_workers": ("x", "-"),
    "overhead_share": ("", "below 0.10"),
    "control_plane_1m_s": ("s", "below 120, and 4 GiB"),
    "memory_growth_mb": ("MB", "flat"),
    "association_100k_s": ("s", "below 60, and 4 GiB"),
    "association_gap": ("", "-"),
    "forecast_error": ("", "median at most 0.10, worst 0.25, rank at least 0.95"),
    "forecast_100k_s": ("s", "below 120"),
    "cartpole_return": ("", "at least 450"),
    "environment_steps_s": ("/s", "at least 5,000"),
    "serve_updates_s": ("/s", "at least 200, 500 wanted"),
    "serve_updates_large_s": ("/s", "at least 4"),
    "serve_group_commit_ratio": ("x", "at least 2.5"),
    "serve_replay_events_s": ("/s", "at least 2,000"),
    "serve_dst_seeds_min": ("/min", "at least 1,000"),
    "serve_flood_p99_ms": ("ms", "below 200, and 50 MB"),
    "secagg_round_ratio": ("x", "at most 3, 2 wanted"),
    "secagg_sum_large_s": ("s", "-"),
}


PARTS = {
    "forecast_error_median": ("", "at most 0.10"),
    "forecast_error_worst": ("", "at most 0.25"),
    "forecast_rank": ("", "at least 0.95"),
}
"""Bars of the numbers that one benchmark gives together."""


def main() -> int:
    """Run the benchmarks one after the other: at the same time they would slow each other."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BARS))
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--save", type=Path, help="also write the JSON to this file")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BARS]
    if unknown:
        print(f"error: unknown benchmark {unknown[0]}; there are {', '.join(BARS)}", file=sys.stderr)
        return 2
    found: dict[str, Any] = {}
    for name in options.names or BARS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            gave = _function(name)()
        except HiFlashError as error:  # such as data that are not here
            print(f"error: {error}", file=sys.stderr)
            return 2
        found.update(gave if isinstance(gave, dict) else {name: gave})
    text = json.dumps(found)
    if options.save:
        options.save.parent.mkdir(parents=True, exist_ok=True)
        options.save.write_text(text + "\n")
    print(text if options.json else _table(found))
    return 0


def _function(name: str) -> Callable[[], Any]:
    from benchmarks import (
        association,
        cartpole,
        environment,
        forecast_error,
        peers,
        secure_sums,
        serve,
        simulation,
        trainers,
    )

    modules = (
        trainers, simulation, peers, association, forecast_error, cartpole, environment, serve, secure_sums,
    )  # fmt: skip
    return next(getattr(module, name) for module in modules if hasattr(module, name))


def _table(found: dict[str, Any]) -> str:
    lines = [f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores", ""]
    for name, value in found.items():
        unit, bar = {**BARS, **PARTS}.get(name, ("", "-"))
        shown = f"{value:.2f} {unit}" if isinstance(value, float) else str(value)
        lines.append(f"{name:<28} {shown:>28}   {bar}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
