"""`hiflash cloud`, `edge` and `client`: the nodes of a deployed federation, each a process of its own."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from hiflash.cli.common import check_installed, print_run
from hiflash.cli.words import plugin_option
from hiflash.errors import ConfigError

__all__ = ["add"]

PACKAGES = ("grpc", "google.protobuf", "cryptography", "Crypto")
CLOUD = "127.0.0.1:7600"


def add(commands: Any) -> None:
    """Add the commands."""
    cloud = commands.add_parser("cloud", help="serve a federation over a network", add_help=False)
    _settings(cloud)
    cloud.add_argument("--dir", metavar="STATE", help="state folder; one that exists goes on")
    cloud.add_argument("--listen", default=CLOUD, metavar="HOST:PORT", help=f"where to listen ({CLOUD})")
    cloud.add_argument("--json", action="store_true", help="print the result as JSON and nothing else")
    cloud.set_defaults(call=_cloud)
    edge = commands.add_parser("edge", help="work as an edge of a federation", add_help=False)
    _settings(edge)
    _calls(edge, "edge/3")
    edge.add_argument(
        "--listen",
        default="127.0.0.1:0",
        metavar="HOST:PORT",
        help="where to listen (127.0.0.1, a free port)",
    )
    edge.add_argument("--address", default="", metavar="HOST:PORT", help="what clients call (--listen)")
    edge.add_argument("--dir", default=".", metavar="FOLDER", help="keeps the privacy ledger of dp.unit (.)")
    edge.set_defaults(call=_edge)
    client = commands.add_parser("client", help="work as a client of a federation", add_help=False)
    _settings(client)
    _calls(client, "client/17; several clients in one process are allowed")
    client.add_argument("--dir", default=".", metavar="FOLDER", help="keeps steps and states of clients (.)")
    client.add_argument(
        "--data", metavar="FOLDER_OR_FUNCTION", help="own samples: npz files, or package.module:function"
    )
    client.set_defaults(call=_client)
    for command in (cloud, edge, client):
        command.add_argument("--certs", metavar="DIR", help="folder with certificates (hiflash certs)")
        command.add_argument(
            "--insecure", action="store_true", help="allow calls beyond this machine without certificates"
        )


def _settings(command: argparse.ArgumentParser) -> None:
    command.set_defaults(takes_settings=True)
    command.add_argument("config", nargs="?", help="a TOML file with settings, the same for all nodes")
    command.add_argument("-h", "--help", action="store_true", dest="help_keys", help="show this help")
    plugin_option(command)


def _calls(command: argparse.ArgumentParser, example: str) -> None:
    command.add_argument("--cloud", default=CLOUD, metavar="HOST:PORT", help=f"the cloud ({CLOUD})")
    command.add_argument(
        "--node", action="append", default=[], metavar="NODE", help=f"who this is, like {example}"
    )


def _cloud(options: argparse.Namespace) -> int:
    from hiflash.config import Config
    from hiflash.study.deploy import serve_cloud

    check_installed("cloud", *PACKAGES)
    if options.dir is None:
        raise ConfigError("hiflash cloud needs --dir STATE, the folder that it keeps its state in")
    path = Path(options.dir)
    given = options.config is not None or options.settings
    if not given and not (path / "config.toml").is_file():
        raise ConfigError(
            f"{path} does not exist yet; give a configuration: hiflash cloud CONFIG --dir {path}"
        )
    options.then = f"go on with: hiflash cloud --dir {path}"
    result = serve_cloud(
        Config.load(options.config, options.settings) if given else None,
        path,
        listen=options.listen,
        ready=lambda address: _say(f"cloud: listening on {address}, state in {path}"),
        **_security(options),
    )
    print_run(result, path, as_json=options.json)
    return 0


def _edge(options: argparse.Namespace) -> int:
    from hiflash.config import Config
    from hiflash.study.deploy import serve_edge

    check_installed("edge", *PACKAGES)
    if len(options.node) > 1:
        raise ConfigError("an edge is one process; start another for another --node")
    serve_edge(
        Config.load(options.config, options.settings),
        cloud=options.cloud,
        node=_label(options.node[0], "edge") if options.node else "edge",
        listen=options.listen,
        address=options.address,
        directory=options.dir,
        ready=lambda address: _say(f"edge: listening on {address}, working for {options.cloud}"),
        **_security(options),
    )
    _say("edge: the run is over")
    return 0


def _client(options: argparse.Namespace) -> int:
    from hiflash.config import Config
    from hiflash.study.deploy import serve_client

    check_installed("client", *PACKAGES)
    nodes = [_label(node, "client") for node in options.node] or ["client"]
    serve_client(
        Config.load(options.config, options.settings),
        cloud=options.cloud,
        nodes=nodes,
        directory=options.dir,
        data=options.data,
        ready=lambda _: _say(f"client: working for {options.cloud}"),
        **_security(options),
    )
    _say("client: the run is over")
    return 0


def _label(node: str, role: str) -> str:
    """Return a node's label; its number alone will do."""
    return f"{role}/{node}" if node.isdecimal() else node


def _security(options: argparse.Namespace) -> dict[str, Any]:
    return {"certs": options.certs, "insecure": options.insecure}


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
