"""`hiflash methods`: every method and its parts."""

from __future__ import annotations

import argparse
import json
from typing import Any

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser("methods", help="list the methods and their parts")
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(call=_methods)


def _methods(options: argparse.Namespace) -> int:
    from hiflash.config.describe import describe_method
    from hiflash.methods.recipes import METHODS
    from hiflash.methods.registry import THRESHOLDS

    rows: dict[str, Any] = {
        name: {"about": recipe.about, "parts": describe_method(name), "settings": recipe.settings}
        for name, recipe in METHODS.items()
    }
    if options.json:
        print(json.dumps(rows))
        return 0
    from rich.console import Console
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for name, row in rows.items():
        parts = ", ".join(f"[dim]{part}[/] {value}" for part, value in row["parts"].items())
        table.add_row(f"[bold]{name}[/]", f"{row['about']}\n{parts}\n")
    console = Console(highlight=False)
    console.print(table)
    console.print("thresholds: hiflash run --cloud.threshold NAME, or a number")
    names = Table.grid(padding=(0, 2))
    for part in THRESHOLDS.values():
        names.add_row(f"[bold]{part.name}[/]", part.about.replace("`", ""))
    console.print(names)
    console.print(
        "\nAny part may be replaced: hiflash run --method fedat --cloud.mixing delta", soft_wrap=True
    )
    return 0
