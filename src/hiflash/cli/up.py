"""`hiflash up`: a whole federation on this machine, for a first look."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from hiflash.cli.common import check_installed, pause_on_signal, print_run
from hiflash.cli.nodes import PACKAGES
from hiflash.cli.words import plugin_option

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser(
        "up", help="run cloud, edges and clients on this machine, over the network", add_help=False
    )
    command.set_defaults(takes_settings=True, call=_up)
    command.add_argument("config", nargs="?", help="a TOML file with settings")
    command.add_argument("-h", "--help", action="store_true", dest="help_keys", help="show this help")
    command.add_argument("--edges", type=int, default=3, help="how many edges (3)")
    command.add_argument("--clients", type=int, default=4, help="clients of each edge (4)")
    command.add_argument("--dir", metavar="STATE", help="keep the state here; without, nothing is left")
    command.add_argument("--json", action="store_true", help="print the result as JSON and nothing else")
    plugin_option(command)


def _up(options: argparse.Namespace) -> int:
    from hiflash.report.deployment import DeploymentView
    from hiflash.study.up import up, up_config

    check_installed("up", *PACKAGES)
    began = time.monotonic()
    config = up_config(options.config, options.edges, options.clients, options.settings)
    path = None if options.dir is None else Path(options.dir)
    if path is not None:
        options.then = f"give the same command again to go on with {path}"
    units = config.federation
    tiers = f"{units.clients} clients" if units.flat else f"{units.edges} edges and {units.clients} clients"
    with DeploymentView(f"a cloud, {tiers}", began) as view:
        result = up(
            config,
            edges=options.edges,
            clients=options.clients,
            directory=path,
            progress=view.show,
            pause=pause_on_signal(),
        )
    print_run(result, path, as_json=options.json)
    return 0
