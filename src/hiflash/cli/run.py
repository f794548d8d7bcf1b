"""`hiflash run`: start or resume one run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hiflash.cli.common import pause_on_signal, print_run, resumable, shown_in, track_option, trackers
from hiflash.cli.words import agent_setting, settings_options
from hiflash.errors import ConfigError, RunError

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser("run", help="run one method", add_help=False)
    settings_options(command)
    command.add_argument(
        "--agent", metavar="FILE", help="let this agent decide thresholds (cloud.threshold = agent)"
    )
    command.add_argument("--resume", metavar="RUN", help="go on with an interrupted run, e.g. runs/NAME")
    track_option(command)
    command.set_defaults(call=_run)


def _run(options: argparse.Namespace) -> int:
    from hiflash.config import Config
    from hiflash.report.live import LiveView
    from hiflash.store.files import check_writable
    from hiflash.store.run_directory import check_name
    from hiflash.study.run import resume, run

    options.settings = agent_setting(options, {"cloud.threshold": "agent"})
    if options.resume:
        extra = sorted(set(options.settings) - {"workers", "executor", "ray.address"})
        if extra or options.config:
            raise ConfigError(
                f"--resume keeps the settings of the run; leave out {', '.join(extra) or options.config}"
            )
        path = Path(options.resume)
        name = path.name
    else:
        config = Config.load(options.config, options.settings)
        name = check_name(options.name or _free_name(Path(options.runs), config))
        path = Path(options.runs) / name
        check_writable(path)
    options.then = f"go on with: hiflash run --resume {path}"
    with resumable(path), LiveView([name]) as view:
        common: dict[str, Any] = {
            "observers": [shown_in(view), *trackers(options)],
            "pause": pause_on_signal(),
        }
        if options.resume:
            where = {key.replace(".", "_"): value for key, value in options.settings.items()}
            result = resume(path, **where, **common)
        else:
            result = run(config, directory=path, **common)
    print_run(result, path, as_json=options.json)
    return 0


def _free_name(runs: Path, config: Any) -> str:
    """Return a free name with the method, data, partition and seed of a run."""
    parts = [config.method, config.data.name, f"s{config.seed}"]
    if config.method != "centralized":
        parts.insert(2, config.data.partition)
    base = name = "-".join(parts)
    for number in range(2, 10_000):
        if not (runs / name).exists():
            return name
        name = f"{base}-{number}"
    raise RunError(f"{runs} is full of runs called {base}-N; use --name")
