"""The command line: one module per command, which parses, then calls.

May import everything, but nothing heavy before it is used: `hiflash --help` answers at once.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from hiflash import __version__
from hiflash.cli import (
    associate,
    calibrate,
    compare,
    data,
    evaluate_agent,
    methods,
    run,
    sweep,
    train_agent,
)
from hiflash.cli.common import PAUSED
from hiflash.cli.words import split
from hiflash.errors import HiFlashError, Paused

__all__ = ["main"]

# Each has `add`, which gives the command its options and what it calls.
COMMANDS = (run, compare, sweep, associate, calibrate, train_agent, evaluate_agent, methods, data)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 2 for bad input, 130 for an interruption."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    parser, commands = _parser()
    try:
        settings: dict[str, Any] = {}
        chosen = commands.get(words[0]) if words else None
        takes_settings = chosen is not None and chosen.get_default("takes_settings")
        if chosen is not None and takes_settings:
            words, settings = split(words, chosen)
        options = parser.parse_args(words)
        if chosen is not None and takes_settings and options.help_keys:
            _print_help(chosen)
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


def _parser() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """Return the parser, and those of the commands by name."""
    parser = argparse.ArgumentParser(
        prog="hiflash", description="Hierarchical federated learning with asynchronous tiers."
    )
    parser.add_argument("--version", action="version", version=f"hiflash {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add(commands)
    return parser, commands.choices


def _print_help(command: argparse.ArgumentParser) -> None:
    """Print the options of a command and every setting with its default."""
    from hiflash.config.tree import describe_keys

    print(command.format_help())
    print("settings (in the TOML file, or here):")
    for key, allowed, default, about in describe_keys():
        print(f"  --{key:<30} {about}")
        print(f"    {'':<30} {allowed}; default {json.dumps(default)}")
