"""`hiflash paper`: the paper's figures and tables, our numbers beside its own."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hiflash.cli.common import cells_options, pause_on_signal, print_paths, run_with_view
from hiflash.cli.words import seeds
from hiflash.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hiflash.sim.result import Result
    from hiflash.study.cells import Cell
    from hiflash.study.paper.study import Reproduction

__all__ = ["add"]

ACTIONS = ("list", "run", "all")


def add(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser(
        "paper", help="reproduce the paper, one item per figure or table", add_help=False
    )
    command.set_defaults(takes_settings=True, call=_paper)
    command.add_argument("action", nargs="?", help="list, run ITEM, or all")
    command.add_argument("item", nargs="?", help="one of the names that `hiflash paper list` shows")
    command.add_argument("-h", "--help", action="store_true", dest="help_keys", help="show this help")
    command.add_argument("--scale", help="small (minutes, the default) or full (the paper's size)")
    cells_options(command)
    command.add_argument("--name", help="name of the folder in runs/paper/ITEM (the scale)")
    command.add_argument("--runs", default="runs", metavar="FOLDER", help="where runs are saved (runs)")
    command.add_argument("--json", action="store_true", help="print the result as JSON and nothing else")


def _paper(options: argparse.Namespace) -> int:
    if options.action not in ACTIONS:
        raise ConfigError(f"paper needs list, run ITEM or all, got {options.action or 'nothing'}")
    if (options.action == "run") != (options.item is not None):
        raise ConfigError(
            "paper run needs an item; `hiflash paper list` shows them"
            if options.action == "run"
            else f"paper {options.action} takes no item, got {options.item}; use paper run {options.item}"
        )
    if options.action != "run" and options.settings:
        raise ConfigError(
            f"paper {options.action} takes no settings, got {next(iter(options.settings))}; "
            "use paper run ITEM"
        )
    if options.action == "list":
        for name in ("scale", "seeds", "name"):
            if getattr(options, name) is not None:
                raise ConfigError(f"paper list runs nothing; leave out --{name}")
    options.scale = options.scale or "small"
    return {"list": _list, "run": _run, "all": _all}[options.action](options)


def _list(options: argparse.Namespace) -> int:
    from rich.console import Console

    from hiflash.report.grid import new_table
    from hiflash.study.paper.items import NAMES, load_item

    if options.json:
        print(json.dumps(list(NAMES)))
        return 0
    table = new_table("hiflash paper run ITEM")
    for head in ("item", "in the paper", "what"):
        table.add_column(head, no_wrap=head == "item")
    for name in NAMES:
        item = load_item(name)
        table.add_row(item.name, item.source, item.title)
    Console().print(table)
    return 0


def _run(options: argparse.Namespace) -> int:
    found = _reproduced(options, options.item, None if options.seeds is None else seeds(options.seeds))
    if options.json:
        print(json.dumps(found.to_json()))
        return 0
    _print(found)
    return 0


def _all(options: argparse.Namespace) -> int:
    """Run every item; `--seeds` is for those that have seeds. Items without data are named at the end."""
    from hiflash.study.cells import seed_numbers
    from hiflash.study.paper.items import NAMES, load_item

    # All of it before the first item runs.
    number = None if options.seeds is None else seed_numbers(seeds(options.seeds))
    with_seeds = [name for name in NAMES if load_item(name).has_seeds(options.scale)]
    told, missing = [], {}
    for name in NAMES:
        try:
            found = _reproduced(options, name, number if name in with_seeds else None)
        except DataError as error:
            missing[name] = str(error)
            continue
        told.append(found.to_json())
        if not options.json:
            _print(found)
    if options.json:
        print(json.dumps(told))
    if missing:
        first = next(iter(missing.values()))
        raise DataError(
            f"no data for {', '.join(missing)}; all other items are done. The first error:\n{first}"
        )
    return 0


def _reproduced(options: argparse.Namespace, item: str, number: int | Sequence[int] | None) -> Reproduction:
    from hiflash.study.paper.study import reproduced

    def run(cells: Sequence[Cell], folder: Path) -> list[Result]:
        return run_with_view(cells, folder, options)

    with _bar() as progress:
        return reproduced(
            item,
            Path(options.runs) / "paper",
            options.scale,
            run,
            name=options.name,
            seeds=number,
            progress=progress,
            pause=pause_on_signal(),
            settings=options.settings,
        )


@contextmanager
def _bar() -> Iterator[Callable[[str, int, int], None]]:
    """Give a function that shows progress; the bar appears at its first call."""
    from rich.console import Console
    from rich.progress import Progress, TimeElapsedColumn

    bars = Progress(
        *Progress.get_default_columns(), TimeElapsedColumn(), console=Console(stderr=True), transient=True
    )
    tasks: list[Any] = []

    def told(what: str, done: int, total: int) -> None:
        if not tasks:
            bars.start()
            tasks.append(bars.add_task(what, total=total))
        bars.update(tasks[0], description=what, completed=done, total=total)

    try:
        yield told
    finally:
        if tasks:
            bars.stop()


def _print(found: Reproduction) -> None:
    from rich.console import Console

    from hiflash.report.paper import item_table

    console = Console()
    console.print(item_table(found.to_json()))
    print_paths(console, found.files)
