"""`hiflash federation`: make an example of the files of a federation, or check one's own."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hiflash.cli.common import print_paths

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser("federation", help="make or check the files of a federation")
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")
    example = actions.add_parser("example", help="write the files of a made-up federation")
    example.add_argument("--out", required=True, metavar="FOLDER", help="a new folder")
    example.add_argument("--clients", type=int, default=100, help="number of clients (100)")
    example.add_argument("--edges", type=int, default=10, help="number of edges (10)")
    example.add_argument("--seed", type=int, default=0, help="another seed, another federation (0)")
    example.add_argument(
        "--format", default="auto", choices=("auto", "csv", "npz"), help="csv up to a million pairs (auto)"
    )
    example.set_defaults(call=_example)
    check = actions.add_parser("check", help="read the files of a federation and say what they give")
    check.add_argument("folder", metavar="FOLDER", help="the folder for federation.files")
    check.set_defaults(call=_check)


def _example(options: argparse.Namespace) -> int:
    from rich.console import Console

    from hiflash.data.federation.example import make_example
    from hiflash.errors import ConfigError
    from hiflash.study.federation import write_federation

    if options.seed < 0:
        raise ConfigError(f"--seed must be a whole number >= 0, got {options.seed}")
    federation = make_example(options.clients, options.edges, options.seed)
    print_paths(Console(), write_federation(federation, Path(options.out), options.format))
    return 0


def _check(options: argparse.Namespace) -> int:
    from rich.console import Console

    from hiflash.data.federation import read_federation
    from hiflash.report.grid import new_table
    from hiflash.study.federation import describe

    federation = read_federation(options.folder)
    if federation.clients is not None and federation.edges is not None:
        federation.check(federation.clients, federation.edges)
    table = new_table(options.folder)
    table.show_header = False
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in describe(federation):
        table.add_row(name, text)
    Console().print(table)
    return 0
