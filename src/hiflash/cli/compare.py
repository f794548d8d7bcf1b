"""`hiflash compare`: methods and variants over partitions and seeds."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hiflash.cli.common import cells_options, print_paths, print_tables, run_with_view, track_option
from hiflash.cli.words import agent_setting, methods_options, seeds, settings_options, variants

if TYPE_CHECKING:
    from hiflash.study.cells import Cell

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser(
        "compare", help="run several methods on several partitions with several seeds", add_help=False
    )
    settings_options(command)
    methods_options(command)
    cells_options(command)
    track_option(command)
    command.set_defaults(call=_compare)


def _compare(options: argparse.Namespace) -> int:
    from hiflash.study.cells import saved
    from hiflash.study.compare import Comparison, comparison_cells

    cells = comparison_cells(
        options.config,
        methods=options.methods,
        variants=None if options.variant is None else variants(options.variant),
        partitions=options.partitions,
        seeds=None if options.seeds is None else seeds(options.seeds),
        settings=agent_setting(options),
    )
    folder = Path(options.runs) / (options.name or f"compare-{cells[0].config.data.name}")
    comparison = saved(Comparison(cells, run_with_view(cells, folder, options, _titles(cells))), folder)
    if options.json:
        print(json.dumps({"cells": comparison.numbers(), "rows": comparison.rows()}))
        return 0
    from rich.console import Console

    from hiflash.report.alerts import compare_alerts
    from hiflash.report.compare_tables import compare_tables
    from hiflash.report.work import is_untrained, work_tables

    console = Console()
    numbers = comparison.numbers()
    tables = work_tables if is_untrained(numbers) else compare_tables
    print_tables(console, tables(numbers, console.width))
    for line in compare_alerts(numbers):
        console.print(line)
    print_paths(console, comparison.files)
    return 0


def _titles(cells: Sequence[Cell]) -> dict[str, str]:
    """Return a title for every cell: its label, and its partition and seed if there are several."""
    from hiflash.report.methods import label

    partitions = {cell.config.data.partition for cell in cells if _has_partition(cell)}
    numbers = {cell.config.seed for cell in cells}
    titles = {}
    for cell in cells:
        words = [label(cell.tags["label"])]
        words += [cell.config.data.partition] if len(partitions) > 1 and _has_partition(cell) else []
        words += [f"seed {cell.config.seed}"] if len(numbers) > 1 else []
        titles[cell.name] = ", ".join(words)
    return titles


def _has_partition(cell: Cell) -> bool:
    return cell.config.cloud.schedule != "centralized"
