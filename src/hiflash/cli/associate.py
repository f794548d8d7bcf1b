"""`hiflash associate`: compares strategies that assign clients to edges."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from hiflash.cli.common import PAUSED, print_paths
from hiflash.cli.words import settings_options

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser(
        "associate", help="compare strategies that assign clients to edges", add_help=False
    )
    settings_options(command)
    command.add_argument(
        "--strategy",
        metavar="NAMES",
        help="names with commas (federation.association if given, or heterogeneity)",
    )
    command.add_argument("--sweep", metavar="NUMBERS", help="values of lambda, e.g. 0,50,...,1000")
    command.set_defaults(call=_associate)


def _associate(options: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.progress import Progress, TimeElapsedColumn

    from hiflash.config import Config
    from hiflash.config.settings import given_settings
    from hiflash.report.association import association_table
    from hiflash.store.files import check_writable
    from hiflash.store.run_directory import check_name
    from hiflash.study.associate import SWEPT, associate, parse_sweep
    from hiflash.study.cells import listed

    given = given_settings(options.config, options.settings)
    usual = SWEPT if options.sweep else str(given.get("federation.association", SWEPT))
    strategies = listed("--strategy", options.strategy or usual) or [usual]
    config = Config.load(options.config, {**options.settings, "federation.association": strategies[0]})
    sweep = parse_sweep(options.sweep) if options.sweep else ()
    name = check_name(options.name or f"associate-{config.data.name}-{config.data.partition}")
    folder = Path(options.runs) / name
    check_writable(folder)
    try:
        with Progress(
            *Progress.get_default_columns()[:3],
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        ) as bars:
            bar = bars.add_task("clients and resources", total=config.federation.clients)
            study = associate(
                config,
                strategies=strategies,
                sweep=sweep,
                progress=lambda what, placed: bars.update(bar, description=what, completed=placed),
            )
    except KeyboardInterrupt:
        print("stopped; nothing was written", file=sys.stderr)
        return PAUSED
    study.save(folder)
    if options.json:
        print(json.dumps(study.to_json()))
        return 0
    console = Console()
    console.print(association_table(study))
    print_paths(console, (folder / f"associate.{kind}" for kind in ("json", "png", "pdf")))
    return 0
