"""`hiflash theory`: checks the paper's convergence analysis on logistic regression."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from hiflash.cli.common import PAUSED, print_paths, print_tables
from hiflash.cli.words import settings_options, values
from hiflash.errors import ConfigError

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser(
        "theory", help="check the paper's convergence analysis on real digits", add_help=False
    )
    settings_options(command)
    command.add_argument("--taus", metavar="NUMBERS", help="largest staleness of a run (0,1,2,4,8)")
    command.add_argument("--associations", metavar="NAMES", help="names with commas (edge-iid,edge-noniid)")
    command.add_argument("--updates", type=int, metavar="T", help="updates of the cloud in a run (200)")
    command.add_argument(
        "--calculate",
        metavar="NUMBERS",
        help="run nothing: bounds from given constants, e.g. eta=0.1,beta=2,... (docs/theory.md)",
    )
    command.set_defaults(call=_theory)


def _theory(options: argparse.Namespace) -> int:
    from rich.console import Console

    if options.calculate is not None:
        return _calculate(options)
    from hiflash.report.theory import theory_tables
    from hiflash.store.files import check_writable
    from hiflash.store.run_directory import check_name
    from hiflash.study.cells import saved
    from hiflash.study.theory.plan import theory_plan

    plan = theory_plan(
        options.config,
        taus=None if options.taus is None else values(options.taus),
        associations=options.associations,
        updates=options.updates,
        settings=options.settings,
    )
    name = check_name(options.name or f"theory-{plan.config.data.name}-{plan.config.data.partition}")
    folder = Path(options.runs) / name
    check_writable(folder)
    try:
        study = saved(_checked(plan), folder)
    except KeyboardInterrupt:
        print("stopped; nothing was written", file=sys.stderr)
        return PAUSED
    if options.json:
        print(json.dumps(study.to_json()))
        return 0
    console = Console()
    print_tables(console, theory_tables(study))
    print_paths(console, study.files)
    return 0


def _checked(plan: Any) -> Any:
    """Return the study of a plan, with a progress bar over all its runs."""
    from rich.console import Console
    from rich.progress import Progress, TimeElapsedColumn

    from hiflash.study.theory.study import check_theory

    runs = len(plan.taus) * len(plan.configs)
    with Progress(
        *Progress.get_default_columns(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bars:
        bar = bars.add_task("constants and optimum", total=runs * plan.updates)
        finished = 0

        def told(what: str, done: int, total: int) -> None:
            nonlocal finished
            finished += done > 0  # every call after the first is one update more
            bars.update(bar, description=what, completed=finished)

        return check_theory(plan, progress=told)


def _calculate(options: argparse.Namespace) -> int:
    from rich.console import Console

    from hiflash.report.theory import calculation_table
    from hiflash.study.theory.calculate import parse_numbers, theory_bounds

    others = {
        "a file": options.config,
        "settings": options.settings,
        "--taus": options.taus,
        "--associations": options.associations,
        "--updates": options.updates,
    }
    for name, given in others.items():
        if given not in (None, {}):
            raise ConfigError(f"--calculate runs nothing, and {name} would do nothing; leave one of them out")
    numbers = theory_bounds(**parse_numbers(options.calculate))
    if options.json:
        print(json.dumps(numbers))
        return 0
    Console().print(calculation_table(numbers))
    return 0
