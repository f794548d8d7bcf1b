"""The command line: parses, then calls. Nothing heavy is imported before it is needed."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hiflash.errors import ConfigError, HiFlashError, Paused, RunError

__all__ = ["main"]

FLAGS = ("help", "json")
OPTIONS = ("resume", "name", "runs", "methods", "seeds", "processes", "strategy", "sweep")
PAUSED = 130  # what a shell reports for a command that was interrupted


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 2 for bad input, 130 for an interruption."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    parser = _parser()
    try:
        settings: dict[str, Any] = {}
        if words and words[0] in ("run", "compare", "associate"):
            words, settings = _split(words)
        options = parser.parse_args(words)
        if getattr(options, "help_keys", False):
            _print_help(parser, options.command)
            return 0
        options.settings = settings
        return int(options.call(options))
    except HiFlashError as error:
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
        return 2
    except Paused as paused:
        print(paused, file=sys.stderr)
        return PAUSED
    except BrokenPipeError:  # the reader of a pipe went away: `hiflash data list | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hiflash", description="Hierarchical federated learning with asynchronous tiers."
    )
    from hiflash import __version__

    parser.add_argument("--version", action="version", version=f"hiflash {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run one method", add_help=False)
    run.add_argument("config", nargs="?", help="a TOML file with settings")
    run.add_argument("--resume", metavar="RUN", help="go on with an interrupted run, e.g. runs/NAME")
    run.set_defaults(call=_run)

    compare = commands.add_parser("compare", help="run several methods with several seeds", add_help=False)
    compare.add_argument("config", nargs="?", help="a TOML file with settings")
    compare.add_argument(
        "--methods", required=False, default="fedavg,hierfavg,hifl", help="names with commas"
    )
    compare.add_argument("--seeds", default="2", help="how many, or a list with commas")
    compare.add_argument("--processes", type=int, default=0, help="runs at the same time; 0 is one per core")
    compare.set_defaults(call=_compare)

    associate = commands.add_parser(
        "associate", help="compare strategies of which client belongs to which edge", add_help=False
    )
    associate.add_argument("config", nargs="?", help="a TOML file with settings")
    associate.add_argument(
        "--strategy",
        metavar="NAMES",
        help="names with commas (federation.association if given, or heterogeneity)",
    )
    associate.add_argument("--sweep", metavar="NUMBERS", help="values of lambda, e.g. 0,50,...,1000")
    associate.set_defaults(call=_associate)

    for command in (run, compare, associate):
        command.add_argument("-h", "--help", action="store_true", dest="help_keys", help="show this help")
        command.add_argument("--name", help="name of the folder the run is saved in")
        command.add_argument("--runs", default="runs", metavar="FOLDER", help="where runs are saved (runs)")
        command.add_argument("--json", action="store_true", help="print the result as JSON and nothing else")

    data = commands.add_parser("data", help="list, check or fetch datasets")
    actions = data.add_subparsers(dest="action", required=True, metavar="ACTION")
    for action, about in (
        ("list", "show the datasets and where they are"),
        ("check", "verify a dataset's files"),
        ("fetch", "download a dataset"),
    ):
        one = actions.add_parser(action, help=about)
        if action != "list":
            one.add_argument("name", help="mnist5k, mnist, cifar10 or femnist")
        one.add_argument("--data.dir", dest="directory", metavar="FOLDER", help="where datasets lie")
        if action == "fetch":
            one.add_argument("--mirror", help="base URL to download from")
        one.set_defaults(call=_data)
    return parser


def _split(words: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Return the words that are the command's own, and every other `--key value` as a setting."""
    options: list[str] = []
    settings: dict[str, Any] = {}
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        key, equals, text = word[2:].partition("=")
        if not word.startswith("--") or key in FLAGS:
            options.append(word)
        elif key in OPTIONS:
            options += [word, *waiting[: 0 if equals else 1]]
            del waiting[: 0 if equals else 1]
        else:
            if not equals:
                if not waiting:
                    raise ConfigError(f"--{key} needs a value")
                text = waiting.pop(0)
            settings[key] = _value(text)
    return options, settings


def _value(text: str) -> Any:
    """Return a word of the command line as TOML would read it, with bare words and lists allowed."""
    for attempt in (text, f"[{text}]") if "," in text else (text,):
        try:
            return tomllib.loads(f"value = {attempt}")["value"]
        except (tomllib.TOMLDecodeError, KeyError):
            continue
    return text


def _run(options: argparse.Namespace) -> int:
    from hiflash.config import Config
    from hiflash.experiment import resume, run
    from hiflash.report.live import LiveView
    from hiflash.store.run_directory import check_name

    if options.resume:
        extra = sorted(set(options.settings) - {"workers", "engine", "ray.address"})
        if extra or options.config:
            raise ConfigError(
                f"--resume goes on with the run as it was; leave out {', '.join(extra) or options.config}"
            )
        path = Path(options.resume)
        name = path.name
    else:
        config = Config.load(options.config, options.settings)
        name = check_name(options.name or _free_name(Path(options.runs), config))
        path = Path(options.runs) / name
    with LiveView([name]) as view:
        common: dict[str, Any] = {
            "progress": lambda status: view.progress(name, status),
            "pause": _pause_on_signal(),
        }
        if options.resume:
            where = {key.replace(".", "_"): value for key, value in options.settings.items()}
            result = resume(path, **where, **common)
        else:
            result = run(config, directory=path, **common)
        view.finished(name, result.to_dict())
    if options.json:
        print(json.dumps(result.to_dict()))
        return 0
    from rich.console import Console

    from hiflash.report.tables import run_table

    console = Console()
    console.print(run_table(result.to_dict()))
    _print_paths(
        console, path, "result.json", "events.jsonl", "model.safetensors", "figure.png", "figure.pdf"
    )
    console.print(f"digest {result.digest}", soft_wrap=True, highlight=False)
    return 0


def _compare(options: argparse.Namespace) -> int:
    from hiflash.comparison import compare, plan
    from hiflash.report.live import LiveView

    methods = [method for method in options.methods.split(",") if method]
    seeds = _seeds(options.seeds)
    cells = plan(options.config, methods, seeds, options.settings)
    name = options.name or f"compare-{cells[0].config.data.name}-{cells[0].config.data.partition}"
    folder = Path(options.runs) / name
    processes = options.processes or min(len(cells), os.cpu_count() or 1)
    try:
        with LiveView([cell.name for cell in cells]) as view:
            comparison = compare(
                options.config,
                methods=methods,
                seeds=seeds,
                directory=folder,
                processes=max(2, processes) if options.processes != 1 else 1,
                watcher=view,  # type: ignore[arg-type]  # has the methods of a Watcher
                pause=_pause_on_signal(),
                **options.settings,
            )
    except Paused:
        print(f"paused; give the same command again to go on with {folder}", file=sys.stderr)
        return PAUSED
    comparison.save(folder)
    numbers = [result.to_dict() for result in comparison.results]
    if options.json:
        print(json.dumps({"cells": numbers, "rows": comparison.rows()}))
        return 0
    from rich.console import Console

    from hiflash.report.tables import compare_table

    console = Console()
    console.print(compare_table(numbers))
    _print_paths(console, folder, "compare.csv", "compare.png", "compare.pdf")
    return 0


def _associate(options: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.progress import Progress, TimeElapsedColumn

    from hiflash.association import SWEPT, associate, parse_sweep
    from hiflash.config import Config
    from hiflash.report.association import association_table
    from hiflash.settings import flatten, read_toml
    from hiflash.store.run_directory import check_name

    given = {**(flatten(read_toml(Path(options.config))) if options.config else {}), **options.settings}
    usual = SWEPT if options.sweep else str(given.get("federation.association", SWEPT))
    names = (options.strategy or usual).split(",")
    strategies = list(dict.fromkeys(name for name in names if name)) or [usual]
    config = Config.load(options.config, {**options.settings, "federation.association": strategies[0]})
    sweep = parse_sweep(options.sweep) if options.sweep else ()
    name = check_name(options.name or f"associate-{config.data.name}-{config.data.partition}")
    folder = Path(options.runs) / name
    try:
        with Progress(
            *Progress.get_default_columns()[:3],
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        ) as bars:
            bar = bars.add_task("clients and resources", total=config.federation.clients)
            study = associate(
                config,
                strategies=strategies,
                sweep=sweep,
                progress=lambda what, placed: bars.update(bar, description=what, completed=placed),
            )
    except KeyboardInterrupt:
        print("stopped; nothing was written", file=sys.stderr)
        return PAUSED
    study.save(folder)
    if options.json:
        print(json.dumps(study.to_json()))
        return 0
    console = Console()
    console.print(association_table(study))
    _print_paths(console, folder, "associate.json", "associate.png", "associate.pdf")
    return 0


def _data(options: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.table import Table

    from hiflash.data import datasets

    console = Console()
    if options.action == "list":
        table = Table("dataset", "samples", "classes", "found in", "note")
        for row in datasets.list_datasets(options.directory):
            table.add_row(row.name, row.samples, str(row.classes), str(row.path or "-"), row.note)
        console.print(table)
        return 0
    if options.action == "check":
        rows = datasets.check(options.name, options.directory)
        for check in rows:
            console.print(f"{'ok ' if check.ok else 'BAD'} {check.file}  {check.message}", soft_wrap=True)
        return 0 if all(check.ok for check in rows) else 2
    return _fetch(options, console)


def _fetch(options: argparse.Namespace, console: Any) -> int:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    from hiflash.data.fetch import fetch

    directory = options.directory or os.environ.get("HIFLASH_DATA") or "data"
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=console) as progress:
        tasks: dict[str, Any] = {}

        def report(file: str, done: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = progress.add_task(file, total=total)
            progress.update(tasks[file], completed=done, total=total)

        paths = fetch(options.name, Path(directory), options.mirror, report)
    for path in paths:
        console.print(str(path), soft_wrap=True)
    return 0


def _seeds(text: str) -> int | list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = [-1]
    if min(numbers) < 0 or numbers == [0]:
        raise ConfigError(f"--seeds must be a number of seeds or a list like 0,1,2, got {text}")
    return numbers if "," in text else numbers[0]


def _free_name(runs: Path, config: Any) -> str:
    """Return a name that says what runs and is not taken yet."""
    parts = [config.method, config.data.name, f"s{config.seed}"]
    if config.method != "centralized":
        parts.insert(2, config.data.partition)
    base = name = "-".join(parts)
    for number in range(2, 10_000):
        if not (runs / name).exists():
            return name
        name = f"{base}-{number}"
    raise RunError(f"{runs} is full of runs called {base}-N; use --name")


def _pause_on_signal() -> Callable[[], bool]:
    """Return whether somebody asked to stop: Ctrl-C or SIGTERM; a second Ctrl-C does not wait."""
    asked = False

    def ask(number: int, _frame: object) -> None:
        nonlocal asked
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked = True

    signal.signal(signal.SIGINT, ask)
    signal.signal(signal.SIGTERM, ask)
    return lambda: asked


def _print_paths(console: Any, folder: Path, *names: str) -> None:
    for path in (folder / name for name in names):
        if path.exists():  # a run that trains nothing has neither model nor figure
            console.print(str(path), soft_wrap=True, highlight=False)


def _print_help(parser: argparse.ArgumentParser, command: str) -> None:
    """Print the options of a command and every setting with its default."""
    from hiflash.config import describe_keys

    actions = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    print(actions.choices[command].format_help())
    print("settings (in the TOML file, or here):")
    for key, allowed, default, about in describe_keys():
        print(f"  --{key:<30} {about}")
        print(f"    {'':<30} {allowed}; default {json.dumps(default)}")
