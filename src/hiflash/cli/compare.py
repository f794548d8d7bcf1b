"""`hiflash compare`: several methods with several seeds."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from hiflash.cli.common import PAUSED, pause_on_signal, print_paths
from hiflash.cli.words import names, seeds, settings_options
from hiflash.errors import Paused

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser("compare", help="run several methods with several seeds", add_help=False)
    settings_options(command)
    command.add_argument("--methods", default="fedavg,hierfavg,hifl", help="names with commas")
    command.add_argument("--seeds", default="2", help="how many, or a list with commas")
    command.add_argument("--processes", type=int, default=0, help="runs at the same time; 0 is one per core")
    command.set_defaults(call=_compare)


def _compare(options: argparse.Namespace) -> int:
    from hiflash.comparison import compare, plan
    from hiflash.report.live import LiveView

    methods, numbers = names(options.methods), seeds(options.seeds)
    cells = plan(options.config, methods, numbers, options.settings)
    name = options.name or f"compare-{cells[0].config.data.name}-{cells[0].config.data.partition}"
    folder = Path(options.runs) / name
    processes = options.processes or min(len(cells), os.cpu_count() or 1)
    try:
        with LiveView([cell.name for cell in cells]) as view:
            comparison = compare(
                options.config,
                methods=methods,
                seeds=numbers,
                directory=folder,
                processes=max(2, processes) if options.processes != 1 else 1,
                watcher=view,  # type: ignore[arg-type]  # has the methods of a Watcher
                pause=pause_on_signal(),
                **options.settings,
            )
    except Paused:
        print(f"paused; give the same command again to go on with {folder}", file=sys.stderr)
        return PAUSED
    comparison.save(folder)
    rows = [result.to_dict() for result in comparison.results]
    if options.json:
        print(json.dumps({"cells": rows, "rows": comparison.rows()}))
        return 0
    from rich.console import Console

    from hiflash.report.tables import compare_table

    console = Console()
    console.print(compare_table(rows))
    print_paths(console, folder, "compare.csv", "compare.png", "compare.pdf")
    return 0
