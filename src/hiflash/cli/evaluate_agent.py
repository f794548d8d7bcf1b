"""`hiflash evaluate-agent`: learned thresholds against random and fixed ones and simple rules."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hiflash.cli.common import cells_options, pause_on_signal, print_paths, print_tables, run_with_view
from hiflash.cli.words import seeds, settings_options
from hiflash.errors import Paused

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser(
        "evaluate-agent", help="compare learned thresholds with others in real runs", add_help=False
    )
    settings_options(command)
    command.add_argument(
        "--agent",
        metavar="AGENT",
        help="a name or file (auto: the shipped one), or one per condition: aware=FILE,noniid-discard=FILE",
    )
    command.add_argument(
        "--quick", action="store_true", help="one seed and few policies in the main condition"
    )
    command.add_argument("--policies", help="random, fixed-K, parallel, latency, skip-K, agent, with commas")
    command.add_argument("--associations", help="aware, noniid or both with a comma")
    command.add_argument("--enforce", help="admit, discard, cancel or several with commas (admit,discard)")
    command.add_argument("--dynamics", help="static, fluctuating or both with a comma")
    command.add_argument(
        "--choice-seeds",
        help="seeds to choose the best fixed threshold on (100,101,102); none: the reported seeds",
    )
    command.add_argument("--finished", action="store_true", help="run nothing, report the finished runs")
    cells_options(command)
    command.set_defaults(call=_evaluate)


def _evaluate(options: argparse.Namespace) -> int:
    from hiflash.study.evaluate_agent import evaluate_plan
    from hiflash.study.policies import plan

    wanted = plan(
        options.config,
        quick=options.quick,
        settings=options.settings,
        agent=options.agent,
        policies=options.policies,
        associations=options.associations,
        enforce=options.enforce,
        dynamics=options.dynamics,
        seeds=None if options.seeds is None else seeds(options.seeds),
        choice_seeds=None if options.choice_seeds is None else _list_of_seeds(options.choice_seeds),
    )
    folder = Path(options.runs) / (options.name or f"evaluate-{wanted.cells[0].config.data.name}")
    with _edges_bar(len(wanted.cells)) as progress:
        evaluation = evaluate_plan(
            wanted,
            folder,
            None if options.finished else lambda cells: run_with_view(cells, folder, options),
            progress,
        )
    if options.json:
        print(json.dumps(evaluation.to_json()))
        return 0
    from rich.console import Console

    from hiflash.report.evaluation import evaluation_tables, verdicts

    console, told = Console(), evaluation.to_json()
    print_tables(console, evaluation_tables(told, console.width))
    for title, lines in verdicts(told).items():
        console.print(title, style="bold", highlight=False)
        for line in lines:
            console.print(f"  {line}", highlight=False)
    if told["missing"]:
        console.print(f"{told['missing']} runs are missing", highlight=False)
    print_paths(console, evaluation.files)
    return 0


def _list_of_seeds(text: str) -> list[int]:
    """Return the listed seeds; a single number is a seed, not a count."""
    if text == "none":
        return []
    listed = seeds(text)
    return [listed] if isinstance(listed, int) else listed


@contextmanager
def _edges_bar(runs: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that shows how many runs have their edges measured, from its first call on."""
    from rich.console import Console
    from rich.progress import Progress

    bars = Progress(console=Console(stderr=True), transient=True)
    bar = bars.add_task("accuracy of edges", total=runs)

    paused = None

    def progress(done: int) -> None:
        nonlocal paused
        if paused is None:
            paused = pause_on_signal()
            bars.start()
        bars.update(bar, completed=done)
        if paused():
            raise Paused(None, "paused; give the same command again to go on")

    try:
        yield progress
    finally:
        if paused is not None:  # stopping a bar that never began prints an empty line
            bars.stop()
