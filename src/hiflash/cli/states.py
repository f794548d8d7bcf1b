"""`hiflash status` and `replay`: look at the state folder of a deployed cloud."""

from __future__ import annotations

import argparse
import json
from typing import Any

from hiflash.cli.common import check_installed
from hiflash.cli.nodes import PACKAGES

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the commands."""
    status = commands.add_parser("status", help="look at a deployed run")
    replay = commands.add_parser("replay", help="replay the journal of a deployed run and check its model")
    for command, call in ((status, _status), (replay, _replay)):
        command.add_argument("state", metavar="STATE", help="the state folder of a cloud")
        command.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
        command.set_defaults(call=call)


def _status(options: argparse.Namespace) -> int:
    from hiflash.study.deploy import status

    found = status(options.state)
    if options.json:
        print(json.dumps(found))
        return 0
    from rich.console import Console

    from hiflash.report.deployment import nodes_table, status_lines

    console = Console()
    for line in status_lines(found):
        console.print(line, highlight=False)
    if found.get("nodes"):
        console.print(nodes_table(found))
    return 0


def _replay(options: argparse.Namespace) -> int:
    from hiflash.study.deploy import replay

    check_installed("replay", *PACKAGES)
    found = replay(options.state)
    if options.json:
        print(json.dumps(found))
        return 0
    print(f"replayed {found['rows'] - found['replayed_from']:,} inputs of {options.state}")
    print(f"version {found['version']:,}, {found['communications']:,} communications")
    print("the same model as result.json" if found["matches_result"] else "the run is not finished")
    print(f"digest {found['digest']}")
    return 0
