"""`hiflash methods`: every method and its parts."""

from __future__ import annotations

import argparse
import json
from typing import Any

from hiflash.cli.words import plugin_option

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser("methods", help="list the methods, and the parts of which they are made")
    command.add_argument("--json", action="store_true", help="print one JSON object")
    plugin_option(command)
    command.set_defaults(call=_methods)


def _methods(options: argparse.Namespace) -> int:
    from hiflash.study.catalogue import list_methods, list_parts

    rows, kinds = list_methods(), list_parts()
    if options.json:
        print(json.dumps({"methods": rows, "parts": kinds}))
        return 0
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for name, row in rows.items():
        parts = ", ".join(f"[dim]{part}[/] {escape(value)}" for part, value in row["parts"].items())
        table.add_row(f"[bold]{name}[/]", f"{escape(row['about'])}\n{parts}\n")
    console = Console(highlight=False)
    console.print(table)
    for word, kind in kinds.items():
        keys = " or ".join(f"--{key} NAME" for key in kind["keys"])
        console.print(f"{word}: {keys}{' (or a number)' if word == 'threshold' else ''}", soft_wrap=True)
        names = Table.grid(padding=(0, 2))
        for name, part in kind["parts"].items():
            declared = "".join(f"\n[dim]--{key}[/]" for key in part["keys"])
            names.add_row(f"  [bold]{name}[/]", escape(part["about"].replace("`", "")) + declared)
        console.print(names)
        console.print()
    console.print("Any part may be replaced: hiflash run --method fedat --cloud.mixing delta", soft_wrap=True)
    return 0
