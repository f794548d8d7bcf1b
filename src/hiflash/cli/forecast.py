"""`hiflash forecast`: what methods will need, without training."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hiflash.cli.common import print_paths, print_tables
from hiflash.cli.words import agent_setting, methods_options, seeds, settings_options, variants
from hiflash.errors import ConfigError

if TYPE_CHECKING:
    from hiflash.study.forecast import Forecast

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser(
        "forecast", help="say what methods will need to reach a target, without training", add_help=False
    )
    settings_options(command)
    methods_options(command)
    command.add_argument(
        "--seeds", help="how many federations, or a list with commas (3; 1 from 10,000 clients)"
    )
    command.add_argument("--rounds", metavar="S", help="FedAvg's rounds to the target")
    command.add_argument(
        "--from",
        action="append",
        dest="measured",
        metavar="FOLDER",
        help="a finished run of FedAvg, or a comparison with some, to take the rounds from",
    )
    command.set_defaults(call=_forecast)


def _forecast(options: argparse.Namespace) -> int:
    from rich.console import Console

    from hiflash.store.run_directory import check_name
    from hiflash.study.forecast import forecast

    folder = None if options.name is None else Path(options.runs) / check_name(options.name)
    with Console(stderr=True).status("forecasting") as status:
        found = forecast(
            options.config,
            methods=options.methods,
            variants=None if options.variant is None else variants(options.variant),
            partitions=options.partitions,
            seeds=None if options.seeds is None else seeds(options.seeds),
            rounds=None if options.rounds is None else _number(options.rounds),
            measured=options.measured,
            directory=folder,
            progress=status.update,
            **agent_setting(options),
        )
    if options.json:
        print(json.dumps(found.to_dict()))
        return 0
    _print(found)
    return 0


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"--rounds must be FedAvg's rounds to the target, like 252, got {text}") from None


def _print(found: Forecast) -> None:
    from rich.console import Console

    from hiflash.report.forecast_tables import forecast_remarks, forecast_tables

    console, told = Console(), found.to_dict()
    print_tables(console, forecast_tables(told["rows"], console.width))
    for line in forecast_remarks(told):
        console.print(line, markup=False, highlight=False)
    print_paths(console, found.files)
