"""`hiflash calibrate`: fit a surrogate to real runs and report its errors."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from hiflash.cli.common import pause_on_signal, print_paths, print_tables, processes_option, run_with_view
from hiflash.cli.words import settings_options
from hiflash.errors import ConfigError, Paused

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser(
        "calibrate", help="fit a surrogate, which replaces training while an agent learns", add_help=False
    )
    settings_options(command)
    command.add_argument("--fit-seeds", help="seeds of the runs to fit to, with commas (200 to 207)")
    command.add_argument("--check-seeds", help="seeds of the runs to check on, with commas (100,101,102)")
    command.add_argument(
        "--check-policies", help="policies to check, with commas (random,fixed-0,fixed-1,...,fixed-16,skip-5)"
    )
    processes_option(command)
    command.set_defaults(call=_calibrate)


def _calibrate(options: argparse.Namespace) -> int:
    from hiflash.study.calibrate import CHECK_SEEDS, FIT_SEEDS, calibration_cells, finish
    from hiflash.study.cells import saved

    cells = calibration_cells(
        options.config,
        fit_seeds=FIT_SEEDS if options.fit_seeds is None else _seeds("--fit-seeds", options.fit_seeds),
        check_seeds=CHECK_SEEDS
        if options.check_seeds is None
        else _seeds("--check-seeds", options.check_seeds),
        check_policies=options.check_policies,
        settings=options.settings,
    )
    config = cells[0].config
    usual = f"calibrate-{config.data.name}-{config.federation.association}"
    folder = Path(options.runs) / (options.name or usual)
    results = run_with_view(cells, folder, options)
    from rich.console import Console

    paused = pause_on_signal()
    with Console(stderr=True).status("fitting") as status:

        def told(what: str) -> None:
            status.update(what)
            if paused():
                raise Paused(None, f"paused; give the same command again to go on with {folder}")

        calibration = saved(finish(cells, results, told), folder)
    if options.json:
        print(json.dumps(calibration.numbers()))
        return 0
    from hiflash.report.calibration import calibration_tables

    console = Console()
    print_tables(console, calibration_tables(calibration.report(), console.width))
    print_paths(console, calibration.files)
    return 0


def _seeds(option: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"{option} must be a list of seeds like 100,101,102, got {text}") from None
