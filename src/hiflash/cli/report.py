"""`hiflash report`: one page about finished runs."""

from __future__ import annotations

import argparse
import json
from typing import Any

from hiflash.cli.common import print_paths

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser(
        "report", help="make one HTML page (and Markdown) about runs, comparisons and sweeps"
    )
    command.add_argument(
        "runs", nargs="+", metavar="RUNS", help="folders of runs, or folders that hold some, e.g. runs/demo"
    )
    command.add_argument("--out", metavar="FOLDER", default="report", help="where it is written (report)")
    command.add_argument("--title", metavar="TEXT", help="the title of the page (HiFlash report)")
    command.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    command.set_defaults(call=_report)


def _report(options: argparse.Namespace) -> int:
    from rich.console import Console

    from hiflash.study.make_report import make_report

    with Console(stderr=True).status("drawing"):
        report = make_report(options.runs, out=options.out, title=options.title)
    if options.json:
        print(json.dumps(report.to_dict()))
        return 0
    console = Console()
    for line in report.left_out:
        console.print(f"left out: {line}", markup=False, highlight=False, soft_wrap=True)
    console.print(report.page.about, highlight=False)
    print_paths(console, report.files[:2])
    return 0
