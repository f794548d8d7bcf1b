"""A federation of real processes in one folder, its nodes started and killed one by one."""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from chaos.processes import Child, fork, wait_until
from chaos.wires import Acknowledged, Tap, Tapped
from hiflash.config import Config
from hiflash.serve.assemble import Deployment, deploy
from hiflash.serve.authority import make_throwaway_federation
from hiflash.serve.channels import open_channels
from hiflash.serve.journal import SqliteJournal
from hiflash.serve.kernel import replay
from hiflash.serve.live import LiveCloud
from hiflash.serve.nodes import Place, run_client, run_cloud, run_edge
from hiflash.serve.state import JOURNAL, StateFolder
from hiflash.store.checkpoint import load_checkpoint
from hiflash.store.run_directory import is_finished
from hiflash.study.deploy import run_until_stopped
from hiflash.weights import digest

__all__ = ["ENDS_S", "HOST", "Federation", "configuration", "simulated_digest"]

HOST = "127.0.0.1"
ENDS_S = 120.0
EDGES, CLIENTS = 2, 4
BASE = {
    "data.name": "mnist5k",
    "federation.edges": EDGES,
    "federation.clients": CLIENTS,
    "client.local_steps": 1,
    "stop.target": "none",
    # A busy machine must not look like a dead node, where a row is about something else.
    "serve.lease_s": 60.0,
    "serve.client_s": 60.0,
    "serve.snapshot_rows": 20,
}


def configuration(method: str, communications: int, **settings: Any) -> Config:
    """Return the configuration of a small federation; `serve__lease_s=3` sets `serve.lease_s`."""
    own = {key.replace("__", "."): value for key, value in settings.items()}
    small = {"edge.clients_per_round": CLIENTS // EDGES} if method == "hierfavg" else {}
    sizes = {"method": method, "stop.communications": communications}
    return Config().with_settings({**BASE, **small, **sizes, **own})


def simulated_digest(config: Config) -> str:
    """Return the digest of the simulator's model; this may start threads, so call it in a child."""
    import hiflash

    return hiflash.run(config.with_settings({"workers": 1})).digest


class Federation:
    """Starts and ends nodes by name: `cloud`, `edge-0` and `clients-0`, the clients of edge 0.

    `tap` is put on the ways of edges and clients, with the name of the node. What the cloud acknowledges to
    edges is written down beneath it, as it comes from the wire.
    """

    def __init__(
        self,
        folder: Path,
        config: Config,
        *,
        secure: bool = True,
        tap: Callable[[str], Tap] | None = None,
        via: str = "",
    ) -> None:
        self.folder, self.config, self.tap = folder, config, tap
        self.deployment: Deployment = deploy(config)
        self.certs = folder / "certs" if secure else None
        self.via = via  # where edges call the cloud, if not where it listens
        self.state = folder / "state"
        self.nodes: dict[str, Child] = {}
        self.ports: set[int] = set()
        for name in ("acknowledged", "logs", "memory", "addresses"):
            (folder / name).mkdir(parents=True)
        if self.certs is not None:
            make_throwaway_federation(self.certs, "chaos", EDGES, CLIENTS)

    def __enter__(self) -> Federation:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.nodes.values():
            child.kill()
        self._note_ports()
        self.deployment.federation.close()

    # Nodes.

    @property
    def names(self) -> list[str]:
        edges = range(self.config.federation.edges)
        return ["cloud", *(f"edge-{n}" for n in edges), *(f"clients-{n}" for n in edges)]

    def start(self, *names: str, environment: Mapping[str, str] | None = None) -> None:
        """Start nodes, all if none is named."""
        for name in names or self.names:
            log = self.folder / "logs" / f"{name}.log"
            self.nodes[name] = fork(name, partial(self._work, name), log, environment=environment)

    def kill(self, *names: str) -> None:
        """Kill nodes with SIGKILL."""
        for name in names:
            self.nodes.pop(name).kill()

    def finish(self, seconds: float = ENDS_S) -> dict[str, Any]:
        """Wait until the run is over and all nodes have ended by themselves; return the result."""
        wait_until(lambda: self.check_alive() or is_finished(self.state), seconds, "the end of the run")
        for name, child in self.nodes.items():
            if child.wait(30.0):
                raise RuntimeError(f"{name} ended with {child.code}: {child.said()[-2000:]}")
        self._note_ports()
        found: dict[str, Any] = json.loads((self.state / "result.json").read_bytes())
        return found

    def check_alive(self) -> None:
        """Raise if a node has failed; some hear of the end before the result is written."""
        for name, child in self.nodes.items():
            if not child.alive and child.code:
                raise RuntimeError(f"{name} ended with {child.code}: {child.said()[-2000:]}")

    def wait_for_rows(self, number: int, seconds: float = ENDS_S) -> None:
        """Wait until the journal has so many rows, or the run is over."""
        wait_until(lambda: self.rows() >= number or is_finished(self.state), seconds, f"{number} rows")

    def address(self, name: str = "cloud") -> str:
        """Return where a node listens; wait until it has said so."""
        file = self.folder / "addresses" / name
        wait_until(file.exists, 60.0, f"{name} to listen")
        return file.read_text()

    def wait_for_listening(self) -> None:
        """Wait until the cloud answers connections at its address, after a restart."""
        host, _, port = self.address().rpartition(":")

        def listens() -> bool:
            self.check_alive()
            with suppress(OSError), socket.create_connection((host, int(port)), timeout=1.0):
                return True
            return False

        wait_until(listens, 20.0, "the cloud to listen again")

    # What the journal and the edges say.

    def rows(self) -> int:
        """Return the number of the last row in the journal, 0 if there is none yet."""
        return int(self.query("SELECT MAX(number) FROM input")[0][0] or 0)

    def query(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return what the journal says while its cloud writes to it."""
        file = self.state / JOURNAL
        try:
            base = sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=5.0)
            try:
                return base.execute(sql, values).fetchall()
            finally:
                base.close()
        except sqlite3.OperationalError:  # there is no file or no table yet
            return [(None,)]

    def replayed(self) -> LiveCloud:
        """Return the cloud that the journal leads to."""
        live = self.deployment.live(lambda now, kind, row: None)
        journal, after = SqliteJournal(self.state / JOURNAL), 0
        try:
            if journal.first > 1:
                saved = load_checkpoint(self.state / "checkpoint.safetensors")
                live.restore(saved["live"])
                after = saved["number"]
            replay(live, journal.rows(after))
        finally:
            journal.close()
        return live

    def replayed_digest(self) -> str:
        """Return the digest of the model that the journal leads to."""
        return digest(self.replayed().weights)

    def acknowledged(self, kind: str = "verdict") -> list[dict[str, Any]]:
        """Return what edges were told, in each edge's order."""
        files = sorted((self.folder / "acknowledged").iterdir())
        lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        return [line for line in lines if line["kind"] == kind]

    def lost(self) -> list[str]:
        """Return what was acknowledged and is not in the journal."""
        live = self.replayed()
        found = []
        for told in self.acknowledged():
            kept = live.cloud.verdicts.get(told["lease"])
            said = None if kept is None else [kept.status, kept.staleness, kept.version, kept.reason]
            if said != told["verdict"]:
                found.append(
                    f"edge {told['edge']} was told {told['verdict']} of lease {told['lease']}, kept {said}"
                )
        known = live.cloud.leases.keys() | live.cloud.verdicts.keys()
        return found + [
            f"lease {told['lease']}" for told in self.acknowledged("grant") if told["lease"] not in known
        ]

    def applied_twice(self) -> int:
        """Return how many leases changed the model more than once; versions count what was applied."""
        live = self.replayed()
        applied = sum(verdict.status == "applied" for verdict in live.cloud.verdicts.values())
        return abs(live.version - applied)

    def next_applied(self, edge: int, after: float) -> float | None:
        """Return when an edge was told that an upload was applied, the first after a time."""
        times = [
            told["t"]
            for told in self.acknowledged()
            if told["edge"] == edge and told["t"] > after and told["verdict"][0] in ("applied", "buffered")
        ]
        return min(times, default=None)

    # The work of a node, in its process.

    def _work(self, name: str) -> None:
        role, _, number = name.partition("-")
        {"cloud": self._cloud, "edge": self._edge, "clients": self._clients}[role](int(number or 0))

    def _cloud(self, _: int) -> None:
        known = self.folder / "addresses" / "cloud"
        listen = known.read_text() if known.exists() else f"{HOST}:0"
        store = StateFolder.open(self.state, self.config.to_toml(), self.config.serve.keep)
        place = Place(self._channels("cloud"), listen, ready=partial(_write, known))
        try:
            run_until_stopped(
                lambda stop: run_cloud(self.deployment, store, place, stop, lambda result: None)
            )
        finally:
            store.close()

    def _edge(self, number: int) -> None:
        ready = partial(_write, self.folder / "addresses" / f"edge-{number}")
        ways = Tapped(self._channels(f"edge/{number}"), partial(self._watched, number))
        place = Place(ways, f"{HOST}:0", self.via or self.address(), ready=ready)  # type: ignore[arg-type]
        run_until_stopped(lambda stop: run_edge(self.deployment, number, place, stop))

    def _clients(self, edge: int) -> None:
        cluster: Iterable[int] = self.deployment.federation.population.clusters[edge]
        address = self.address()
        tap = self.tap(f"clients-{edge}") if self.tap else _untouched

        async def all_of_them(stop: asyncio.Event) -> None:
            works = []
            for number in cluster:
                place = Place(Tapped(self._channels(f"client/{number}"), tap), cloud=address)  # type: ignore[arg-type]
                memory = self.folder / "memory"
                works.append(run_client(self.deployment, number, place, stop, memory=memory))
            await asyncio.gather(*works)

        run_until_stopped(all_of_them)

    def _channels(self, who: str) -> Any:
        return open_channels(self.certs, who, [f"{HOST}:0"], insecure=False)

    def _watched(self, edge: int, caller: Any, role: str) -> Any:
        file = self.folder / "acknowledged" / f"edge-{edge}.jsonl"
        watched = Acknowledged(caller, edge, file)
        return self.tap(f"edge-{edge}")(watched, role) if self.tap else watched

    def _note_ports(self) -> None:
        for file in (self.folder / "addresses").glob("[!.]*"):
            self.ports.add(int(file.read_text().rpartition(":")[2]))


def _untouched(caller: Any, role: str) -> Any:
    return caller


def _write(path: Path, address: str) -> None:
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(address)
    temporary.replace(path)
