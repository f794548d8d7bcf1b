"""A whole federation on this machine: a cloud, edges and clients in processes of their own."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from hiflash.config import Config
from hiflash.config.settings import flatten
from hiflash.errors import ConfigError, Paused, RunError
from hiflash.store.run_directory import check_name, is_finished
from hiflash.study.deploy import config_of
from hiflash.study.nursery import Nursery, Work
from hiflash.study.saved import read_result

if TYPE_CHECKING:
    from hiflash.config.typed import AllSettings
    from hiflash.serve.assemble import Deployment
    from hiflash.sim.result import Result

__all__ = ["up", "up_config"]

FEDERATION = "up"
HOST = "127.0.0.1"
WAIT_S = 0.02
LOOK_S = 0.1
STOPPED = 3  # exit code of a node that was told to stop before the run was over
START_S = 60.0  # for the cloud to say where it listens


def up_config(
    config: Config | str | Path | None, edges: int, clients: int, settings: Mapping[str, Any]
) -> Config:
    """Return the configuration of a federation with so many edges, and so many clients at each."""
    for key in ("federation.edges", "federation.clients"):
        if key in settings:
            raise ConfigError(f"{key} is --edges, or --edges times --clients, here; leave it out")
    sizes = {"federation.edges": edges, "federation.clients": edges * clients}
    chosen = config if isinstance(config, Config) else Config.load(config)
    chosen = chosen.with_settings({**settings, **sizes})
    if chosen.serve.data == "own":
        raise ConfigError(
            'hiflash up deals out the dataset of the configuration; leave out serve.data = "own"'
        )
    return chosen


def up(
    config: Config | str | Path | None = None,
    *,
    edges: int = 3,
    clients: int = 4,
    directory: str | Path | None = None,
    progress: Callable[[Mapping[str, Any]], None] | None = None,
    pause: Callable[[], bool] | None = None,
    **settings: Unpack[AllSettings],
) -> Result:
    """Run a deployed federation on this machine to its end, and return its result.

    It has `edges` with so many `clients` each; a method without edges has as many clients in all. Every node
    is a process, with a certificate of its own; one that dies is started again. With a `directory` the state
    is kept there, and goes on where it stopped. Without, nothing is left behind. `progress` is told
    the status of the cloud several times a second. `pause` is asked meanwhile: true ends it with `Paused`.
    """
    from hiflash.serve.assemble import deploy
    from hiflash.serve.authority import make_throwaway_federation

    config = up_config(config, edges, clients, flatten(dict(settings)))
    path = None if directory is None else Path(directory)
    if path is not None:
        check_name(path.name)
        config_of(config, path)  # a state that was begun with another configuration is refused
        if is_finished(path):
            return read_result(path)
    _one_thread()
    deployment = deploy(config)
    home = Path(tempfile.mkdtemp(prefix="hiflash-up-"))
    try:
        units = config.federation
        make_throwaway_federation(home / "certs", FEDERATION, 0 if units.flat else units.edges, units.clients)
        state = path or home / "state"
        nursery = Nursery(_nodes(deployment, home, state), home)
        nursery.start()
        try:
            _follow(nursery, state, progress, pause or bool)
        finally:
            nursery.stop()
            if path is not None and path.is_dir():
                shutil.copytree(nursery.logs, path / "logs", dirs_exist_ok=True)
        if not is_finished(state):
            raise Paused(None, "stopped" if path is None else f"stopped; go on with the same --dir {path}")
        result = read_result(state)
    finally:
        shutil.rmtree(home, ignore_errors=True)
        deployment.federation.close()
    return result


def _one_thread() -> None:
    """Keep torch from starting threads: a forked process would wait for them for ever."""
    import torch

    torch.set_num_threads(1)


def _nodes(deployment: Deployment, home: Path, state: Path) -> dict[str, Work]:
    """Return the work of every node by name."""
    units = deployment.config.federation
    keeps = home if state.parent == home else state
    nodes: dict[str, Work] = {"cloud": partial(_cloud, deployment, home, state)}
    if not units.flat:
        nodes |= {
            f"edge-{n}": partial(_edge, deployment, home, n, keeps / "edges") for n in range(units.edges)
        }
    return nodes | {
        f"client-{n}": partial(_client, deployment, home, n, keeps / "clients") for n in range(units.clients)
    }


def _cloud(deployment: Deployment, home: Path, state: Path) -> None:
    from hiflash.study.deploy import run_cloud_node

    known = home / "address"
    # After a restart at the same port: the other nodes know it.
    listen = known.read_text() if known.exists() else f"{HOST}:0"
    run_cloud_node(deployment, state, _channels(home, "cloud"), listen, partial(_write, known))


def _edge(deployment: Deployment, home: Path, number: int, folder: Path) -> None:
    from hiflash.serve.nodes import Place, run_edge
    from hiflash.study.deploy import run_until_stopped

    place = Place(_channels(home, f"edge/{number}"), f"{HOST}:0", _address(home))
    _to_its_end(run_until_stopped(lambda stop: run_edge(deployment, number, place, stop, folder=folder)))


def _client(deployment: Deployment, home: Path, number: int, memory: Path) -> None:
    from hiflash.serve.nodes import Place, run_client
    from hiflash.study.deploy import run_until_stopped

    address = _address(home)
    place = Place(_channels(home, f"client/{number}"), cloud=address)
    _to_its_end(run_until_stopped(lambda stop: run_client(deployment, number, place, stop, memory=memory)))


def _to_its_end(over: bool) -> None:
    """Leave with an error if a signal ended a node: then the nursery starts it again."""
    if not over:
        raise SystemExit(STOPPED)


def _channels(home: Path, who: str) -> Any:
    from hiflash.serve.channels import open_channels

    return open_channels(home / "certs", who, [], insecure=False)


def _write(path: Path, address: str) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(address)
    temporary.replace(path)


def _address(home: Path) -> str:
    """Wait until the cloud has said where it listens."""
    until = time.monotonic() + START_S
    while not (home / "address").exists():
        if time.monotonic() > until:
            raise RunError("the cloud did not start")
        time.sleep(WAIT_S)
    return (home / "address").read_text()


def _follow(
    nursery: Nursery,
    state: Path,
    progress: Callable[[Mapping[str, Any]], None] | None,
    pause: Callable[[], bool],
) -> None:
    """Look after the run until it is over, somebody stops it, or a node cannot be kept alive."""
    from hiflash.study.deploy import status

    while not is_finished(state) and not pause():
        failure = nursery.failure()
        if failure or not nursery.alive:
            raise RunError(failure or "the processes of the federation have died")
        if progress is not None and (state / "status.json").exists():
            progress(status(state))
        time.sleep(LOOK_S)
