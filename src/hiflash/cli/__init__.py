"""The command line: one module for each command, with its options and its call.

May import everything, but imports heavy modules only where it uses them: `hiflash --help` answers at once.
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
    certs,
    compare,
    data,
    evaluate_agent,
    federation,
    forecast,
    histogram,
    methods,
    nodes,
    paper,
    report,
    run,
    states,
    sweep,
    theory,
    train_agent,
    up,
)
from hiflash.cli.common import PAUSED, answering_signals
from hiflash.cli.words import split
from hiflash.errors import HiFlashError, Paused, StorageError

__all__ = ["main"]

SAME = "give the same command again"

# Every module has `add`: it declares the options of the command and the function to call.
COMMANDS = (
    run, compare, sweep, forecast, associate, theory, paper, calibrate, train_agent, evaluate_agent, report,
    methods, data, federation, up, nodes, states, certs, histogram,
)  # fmt: skip


@answering_signals
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 2 for bad input, 130 for an interruption."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if sys.stdout is None:  # closed: `hiflash run >&-`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # open until the end
    options = argparse.Namespace(then=SAME)  # the way out after an error; a command may replace it
    try:
        code = _call(words, options)
    except SystemExit as ended:  # from --help and --version; their output may go to a full disk too
        if not _flush_stdout(options.then):
            return 2
        if ended.code == 1:  # rich exits with 1 when the reader of a pipe is gone
            return 0
        raise
    return code if _flush_stdout(options.then) else code or 2


def _call(words: list[str], options: argparse.Namespace) -> int:
    """Call the command and return its exit code; print errors of the user or the disk as one line."""
    parser, commands = _parser()
    try:
        settings: dict[str, Any] = {}
        chosen = commands.get(words[0]) if words else None
        takes_settings = chosen is not None and chosen.get_default("takes_settings")
        if chosen is not None and takes_settings:
            words, settings = split(words, chosen)
        parser.parse_args(words, options)
        if getattr(options, "plugin", None):
            from hiflash.config.settings import merged

            settings = merged(settings, {"plugins": options.plugin})
        if chosen is not None and takes_settings and options.help_keys:
            _print_help(chosen)
            return 0
        options.settings = settings
        return int(options.call(options))
    except StorageError as error:
        _say(f"{error.what}, then {error.then or options.then}")
        return 2
    except HiFlashError as error:
        _say(str(error))
        return 2
    except Paused as paused:
        print(paused, file=sys.stderr)
        return PAUSED
    except BrokenPipeError:  # the reader of a pipe is gone: `hiflash data list | head -1`
        _drop_stdout()
        return 0
    except OSError as error:
        from hiflash.store.files import remedy

        if remedy(error) is None:
            raise
        if error.filename is None:  # not an error of a file, so of the standard output
            _lost_stdout(error, options.then)
        else:
            _say(f"{error.filename}: {error.strerror}; {remedy(error)}, then {options.then}")
        return 2


def _say(text: str) -> None:
    for line in text.splitlines():
        print(f"error: {line}", file=sys.stderr)


def _flush_stdout(then: str) -> bool:
    """Flush the standard output and return whether that worked; at exit an error would come too late."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_stdout()
    except OSError as error:
        _lost_stdout(error, then)
        return False
    return True


def _lost_stdout(error: OSError, then: str) -> None:
    _drop_stdout()
    _say(f"the standard output cannot be written: {error.strerror}; send it elsewhere, then {then}")


def _drop_stdout() -> None:
    """Send all further output to the null device, so that flushing it cannot fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """Return the parser, and the parsers of the commands by name."""
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
