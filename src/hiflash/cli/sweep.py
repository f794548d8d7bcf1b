"""`hiflash sweep`: one method over a grid of settings and seeds."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from hiflash.cli.common import cells_options, print_paths, print_tables, run_with_view, track_option
from hiflash.cli.words import seeds, settings_options, values
from hiflash.errors import ConfigError

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser("sweep", help="run one method over a grid of settings", add_help=False)
    settings_options(command)
    command.add_argument(
        "--set",
        action="append",
        metavar="KEY=VALUE,VALUE,...",
        help="a setting and its values; may be given several times; a list is one value: [1,2]",
    )
    command.add_argument("--by", help="sort key of the table (communications; best_accuracy, ...)")
    cells_options(command)
    track_option(command)
    command.set_defaults(call=_sweep)


def _sweep(options: argparse.Namespace) -> int:
    from hiflash.study.cells import saved
    from hiflash.study.sweep import Sweep, chosen_metric, sweep_cells

    cells = sweep_cells(
        options.config,
        grid=None if options.set is None else _grid(options.set),
        seeds=None if options.seeds is None else seeds(options.seeds),
        settings=options.settings,
    )
    by = chosen_metric(options.config, options.by, cells)
    config = cells[0].config
    name = options.name or f"sweep-{config.method}-{config.data.name}"
    folder = Path(options.runs) / name
    sweep = saved(Sweep(cells, run_with_view(cells, folder, options), by), folder)
    if options.json:
        print(json.dumps({"by": by, "cells": sweep.numbers(), "rows": sweep.rows()}))
        return 0
    from rich.console import Console

    from hiflash.report.alerts import sweep_alerts
    from hiflash.report.sweep import sweep_tables

    console = Console()
    numbers = sweep.numbers()
    print_tables(console, sweep_tables(numbers, by, console.width))
    for line in sweep_alerts(numbers):
        console.print(line)
    print_paths(console, sweep.files)
    return 0


def _grid(texts: list[str]) -> dict[str, list[Any]]:
    """Return the values of every key: `cloud.alpha=0.5,0.7`, `edge.edge_rounds=[1],[1,2]`."""
    grid: dict[str, list[Any]] = {}
    for text in texts:
        key, equals, rest = (part.strip() for part in text.partition("="))
        if not equals or not key:
            raise ConfigError(f"--set must be like cloud.alpha=0.5,0.7,0.9, got {text!r}")
        if key in grid:
            raise ConfigError(f"--set {key} is given twice; give all its values at once")
        grid[key] = values(rest)
    return grid
