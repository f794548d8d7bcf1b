"""`hiflash certs`: keys and certificates of a federation: its CA, requests of nodes, approvals, denials."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hiflash.cli.common import check_installed

if TYPE_CHECKING:
    from hiflash.serve.approvals import Approval

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser("certs", help="keys and certificates of a federation over a network")
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")
    init = actions.add_parser("init", help="make the CA of a new federation, and the cloud's certificate")
    init.add_argument("folder", metavar="DIR", help="a new folder; keep it on one safe machine")
    init.add_argument("--name", required=True, metavar="FEDERATION", help="the federation's name")
    _hosts(init, "names and addresses of the cloud (loopback)")
    request = actions.add_parser("request", help="make the key and the request of a node, on its machine")
    request.add_argument("node", metavar="ROLE/NUMBER", help="edge/3 or client/17")
    request.add_argument("--name", required=True, metavar="FEDERATION", help="the federation's name")
    request.add_argument("--out", required=True, metavar="DIR", help="folder for key and request")
    _hosts(request, "names and addresses of an edge (loopback)")
    approve = actions.add_parser("approve", help="sign the request of a node, where the CA is")
    approve.add_argument("folder", metavar="DIR", help="the folder of the CA")
    approve.add_argument("request", metavar="REQUEST.csr", help="the request; the certificate goes beside it")
    approve.add_argument("--days", type=int, default=90, help="how long the certificate is valid (90)")
    approve.add_argument("--key", metavar="FINGERPRINT", help="sign only if the request is for this key")
    approve.add_argument("--renew", action="store_true", help="the node was approved before")
    _hosts(approve, "sign these names and addresses instead of the requested ones")
    deny = actions.add_parser("deny", help="put the certificates of a node on the denylist")
    deny.add_argument("folder", metavar="DIR", help="the folder of the CA")
    deny.add_argument("node", metavar="ROLE/NUMBER", help="edge/3 or client/17")
    listed = actions.add_parser("list", help="list the approved certificates")
    listed.add_argument("folder", metavar="DIR", help="the folder of the CA")
    calls = {init: _init, request: _request, approve: _approve, deny: _deny, listed: _list}
    for action, call in calls.items():
        action.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
        action.set_defaults(call=_checked, action_call=call)


def _hosts(action: argparse.ArgumentParser, about: str) -> None:
    action.add_argument(
        "--host", nargs="+", action="extend", default=[], metavar="NAME_OR_IP", dest="hosts", help=about
    )


def _checked(options: argparse.Namespace) -> int:
    check_installed("certs", "cryptography")
    options.action_call(options)
    return 0


def _init(options: argparse.Namespace) -> None:
    from hiflash.serve.authority import create_federation

    folder = Path(options.folder)
    cloud, ca = create_federation(folder, options.name, options.hosts)
    if options.json:
        print(json.dumps({"ca_fingerprint": ca, "folder": str(folder), **cloud.to_json()}))
        return
    print(f"made the CA of federation {options.name} in {folder}")
    _rows(
        {
            "CA fingerprint": ca,
            "cloud": ", ".join(cloud.hosts),
            "cloud valid until": f"{cloud.not_after:%Y-%m-%d}",
        }
    )
    print(f"Keep {folder / 'ca.key'} here: whoever has it can let anybody in.")
    print(
        f"Next: copy {folder / 'cloud'} to the machine of the cloud. On the machine of an edge or client run"
    )
    print(f"  hiflash certs request edge/0 --name {options.name} --host EDGE_HOST --out certs")
    print(f"  hiflash certs request client/0 --name {options.name} --out certs")


def _request(options: argparse.Namespace) -> None:
    from hiflash.serve.authority import make_request
    from hiflash.serve.identity import parse_label

    folder, identity = Path(options.out), parse_label(options.node, options.name)
    key = make_request(folder, identity, options.hosts)
    path = folder / f"{identity.stem}.csr"
    if options.json:
        print(json.dumps({"identity": identity.uri, "key": key, "request": str(path)}))
        return
    print(f"made a key and a request for {identity.label} in {folder}")
    _rows({"identity": identity.uri, "key fingerprint": key})
    print(f"The key {folder / identity.stem}.key stays here.")
    print(f"Next: copy {path} to the machine of the CA, and run there")
    print(f"  hiflash certs approve CA_FOLDER {path.name} --key {key}")


def _approve(options: argparse.Namespace) -> None:
    from hiflash.serve.authority import opened
    from hiflash.serve.certificates import key_fingerprint
    from hiflash.serve.credentials import CA_FILE

    path = Path(options.request)
    with opened(Path(options.folder)) as ca:
        proposal = ca.examine(
            path, hosts=options.hosts, days=options.days, renew=options.renew, key=options.key
        )
        asked = proposal.asked
        if not options.json:
            print(f"signing for federation {ca.federation}:")
            _rows(
                {
                    "identity": asked.identity.uri,
                    "hosts": ", ".join(asked.hosts) or "none",
                    "key fingerprint": key_fingerprint(asked.public_key),
                }
            )
        approval = ca.sign(proposal)
    certificate = path.parent / f"{approval.identity.stem}.crt"
    if options.json:
        print(json.dumps({**approval.to_json(), "certificate": str(certificate)}))
        return
    print(f"wrote {certificate}, valid until {approval.not_after:%Y-%m-%d}")
    if options.key is None:
        print("Compare the key fingerprint with what the node printed before you give it the certificate.")
    if (path.parent / f"{approval.identity.stem}.key").exists():
        print(f"{path.parent} has all that {approval.identity.label} needs.")
    else:
        print(f"Next: copy {certificate} and {path.parent / CA_FILE} to the folder with the key of the node.")


def _deny(options: argparse.Namespace) -> None:
    from hiflash.serve.approvals import DENYLIST
    from hiflash.serve.authority import opened

    folder = Path(options.folder)
    with opened(folder) as ca:
        new = ca.deny(options.node)
    if options.json:
        print(json.dumps({"denied": [approval.to_json() for approval in new]}))
        return
    number = f"{len(new)} certificate{'' if len(new) == 1 else 's'}"
    print(f"denied {number} of {options.node}" if new else f"{options.node} was denied already")
    print(f"Next: copy {folder / DENYLIST} to the certificates of the cloud and of every edge.")


def _list(options: argparse.Namespace) -> None:
    from hiflash.serve.approvals import read_approvals, read_denylist
    from hiflash.serve.certificates import utc_now

    folder, now = Path(options.folder), utc_now()
    denied = read_denylist(folder)
    rows = [
        (approval, "denied" if approval.fingerprint in denied else _state(approval, now))
        for approval in read_approvals(folder)
    ]
    if options.json:
        print(json.dumps({"certificates": [{**a.to_json(), "state": state} for a, state in rows]}))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("node", "hosts", "valid until", "state", "fingerprint")
    for a, state in rows:
        hosts = ", ".join(a.hosts) or "-"
        table.add_row(a.identity.label, hosts, f"{a.not_after:%Y-%m-%d}", state, a.fingerprint[:16])
    Console().print(table)


def _state(approval: Approval, now: Any) -> str:
    return "valid" if now <= approval.not_after else "expired"


def _rows(rows: Mapping[str, str]) -> None:
    width = max(map(len, rows))
    for name, value in rows.items():
        print(f"  {name:<{width}}  {value}")
