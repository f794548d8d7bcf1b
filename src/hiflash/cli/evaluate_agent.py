"""`hiflash evaluate-agent`: learned thresholds against random and fixed ones and simple rules."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hiflash.cli.common import cells_options, pause_on_signal, print_paths, print_tables, run_with_view
from hiflash.cli.words import seeds, settings_options
from hiflash.errors import DataError, Paused, RunError

if TYPE_CHECKING:
    from hiflash.sim.result import Result
    from hiflash.study.cells import Cell
    from hiflash.study.policies import Evaluation, Plan

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
    from hiflash.store.files import check_writable
    from hiflash.study.policies import plan
    from hiflash.study.run_cells import read_cells

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
    check_writable(folder)
    if options.finished:
        cells = [cell for cell in wanted.cells if (folder / cell.name / "result.json").is_file()]
        if not cells:
            raise RunError(
                f"{folder} has no finished run of this evaluation; leave out --finished to make them"
            )
        results = read_cells(cells, folder)
    else:
        cells = wanted.cells
        _check_data(cells[0])
        results = run_with_view(cells, folder, options)
    evaluation = _measured(wanted, cells, results)
    paths = evaluation.save(folder)
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
    print_paths(console, paths)
    return 0


def _list_of_seeds(text: str) -> list[int]:
    """Return the listed seeds; a single number is a seed, not a count."""
    if text == "none":
        return []
    listed = seeds(text)
    return [listed] if isinstance(listed, int) else listed


def _check_data(cell: Cell) -> None:
    """Report missing data once, before any run starts."""
    from hiflash.methods.registry import make

    try:
        make("dataset", cell.config)
    except DataError as error:
        raise DataError(f"{error}\nOr use --data.name mnist5k, which comes with the package.") from None


def _measured(plan: Plan, cells: list[Cell], results: list[Result]) -> Evaluation:
    """Return the evaluation; the first time, measuring the edges takes about half a second per run."""
    from rich.console import Console
    from rich.progress import Progress

    from hiflash.study.policies import Evaluation

    paused = pause_on_signal()
    with Progress(console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task("accuracy of edges", total=len(cells))

        def progress(done: int) -> None:
            bars.update(bar, completed=done)
            if paused():
                raise Paused(None, "paused; give the same command again to go on")

        return Evaluation.of(plan, cells, results, progress)
