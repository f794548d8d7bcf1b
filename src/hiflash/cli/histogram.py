"""`hiflash histogram`: writes the label histogram of a client, with noise, for whoever associates."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from hiflash.cli.words import plugin_option
from hiflash.errors import ConfigError

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser(
        "histogram", help="write a client's label histogram, with noise", add_help=False
    )
    command.set_defaults(takes_settings=True)
    command.add_argument("config", nargs="?", help="a TOML file with settings, the same for all nodes")
    command.add_argument("-h", "--help", action="store_true", dest="help_keys", help="show this help")
    command.add_argument("--node", metavar="NODE", help="who this is, like client/17")
    command.add_argument(
        "--data", metavar="FOLDER_OR_FUNCTION", help="own samples: npz files, or package.module:function"
    )
    command.add_argument("--out", metavar="FILE", help="a new file, to be sent to whoever associates")
    plugin_option(command)
    command.set_defaults(call=_histogram)


def _histogram(options: argparse.Namespace) -> int:
    from hiflash.config import Config
    from hiflash.study.histograms import write_histogram

    for name in ("node", "data", "out"):
        if getattr(options, name) is None:
            raise ConfigError(f"hiflash histogram needs --{name}")
    number = options.node.removeprefix("client/")
    if not number.isdecimal():
        raise ConfigError(f"--node must be a client like client/17, got {options.node}")
    config = Config.load(options.config, options.settings)
    release = write_histogram(config, int(number), options.data, options.out)
    if release is None:
        told = 'the exact histogram (privacy.epsilon = "off")'
    else:
        delta = f", delta {release['delta']:g}" if release["delta"] else ""
        hidden = "any one sample" if release["unit"] == "sample" else "the whole histogram"
        told = f"histogram with {release['noise']} noise that hides {hidden}, "
        told += f"epsilon {release['epsilon']:g}{delta}"
    print(f"client {number}: {told}", file=sys.stderr)
    print(options.out)
    return 0
