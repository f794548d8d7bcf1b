"""A deployed federation: run one of its nodes, look at its state, replay its journal."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hiflash.config import Config
from hiflash.errors import ConfigError, DamageError, Paused, RunError, first_error
from hiflash.store.run_directory import check_name, is_finished, read_result_file
from hiflash.study.saved import read_result

if TYPE_CHECKING:
    from hiflash.serve.assemble import Deployment
    from hiflash.sim.result import Result

__all__ = [
    "CLOUD_ADDRESS",
    "config_of",
    "replay",
    "run_until_stopped",
    "serve_client",
    "serve_cloud",
    "serve_edge",
    "status",
]

CLOUD_ADDRESS = "127.0.0.1:7600"
LATELY_S = 60.0
STATUS_OLD_S = 5.0  # a running cloud writes its status twice a second
Ready = Callable[[str], None]


def serve_cloud(
    config: Config | str | Path | None,
    directory: str | Path,
    *,
    listen: str = CLOUD_ADDRESS,
    certs: str | Path | None = None,
    insecure: bool = False,
    ready: Ready | None = None,
) -> Result:
    """Serve a federation as its cloud until the run is over, and return the result.

    `directory` is the state folder; one that exists goes on where it stopped, and needs no configuration.
    `certs` holds the cloud's certificate. SIGTERM and Ctrl-C save the state and raise `Paused`.
    """
    path = Path(directory)
    chosen = config_of(config, path)
    if is_finished(path) and not _finished_lately(path):
        return read_result(path)
    from hiflash.serve.assemble import deploy
    from hiflash.serve.channels import open_channels

    channels = open_channels(_path(certs), "cloud", [listen], insecure=insecure)
    return run_cloud_node(deploy(chosen), path, channels, listen, ready)


def run_cloud_node(
    deployment: Deployment, path: Path, channels: Any, listen: str, ready: Ready | None = None
) -> Result:
    """Run the cloud of a deployment in its state folder."""
    from hiflash.serve.nodes import Place, run_cloud
    from hiflash.serve.state import StateFolder
    from hiflash.study.run import draw_result

    serve, new = deployment.config.serve, not path.exists()
    store = StateFolder.open(path, deployment.config.to_toml(), serve.keep)
    path.chmod(0o700)  # it holds the models of edges
    result: Result | None
    try:
        place = Place(channels, listen, ready=ready or _quiet)
        result = run_until_stopped(
            lambda stop: run_cloud(deployment, store, place, stop, lambda result: draw_result(result, path))
        )
    except ConfigError:
        if new:  # nothing has happened yet
            shutil.rmtree(path)
        raise
    finally:
        store.close()
    if result is None:
        raise Paused(
            None, f"stopped; go on with: hiflash cloud --dir {path} and the same --listen and --certs"
        )
    return result


def serve_edge(
    config: Config | str | Path | None,
    *,
    cloud: str = CLOUD_ADDRESS,
    node: str = "edge",
    listen: str = "127.0.0.1:0",
    address: str = "",
    directory: str | Path = ".",
    certs: str | Path | None = None,
    insecure: bool = False,
    ready: Ready | None = None,
) -> None:
    """Work as an edge, such as `edge/3`, until the run is over.

    Clients reach it at `address`, which is `listen` unless given. `directory` is where it keeps its privacy
    ledger, with `dp.unit`.
    """
    from hiflash.serve.assemble import deploy
    from hiflash.serve.channels import open_channels, split_address
    from hiflash.serve.nodes import Place, run_edge

    if not address and split_address(listen)[0] in ("0.0.0.0", "::"):  # noqa: S104  # refused here
        raise ConfigError(f"--listen {listen} is no address that clients can call; give --address HOST:PORT")
    called = [cloud, listen, *([address] if address else [])]
    channels = open_channels(_path(certs), node, called, insecure=insecure)
    chosen = _config(config)
    number = _numbered(channels.identity.number, chosen.federation.edges, "edge", "federation.edges")
    if chosen.federation.flat:
        raise ConfigError(f"{chosen.method} has no edges (federation.flat); start cloud and clients only")
    place = Place(channels, listen, cloud, address, ready or _quiet)
    deployment = deploy(chosen)
    folder = Path(directory)
    if not run_until_stopped(lambda stop: run_edge(deployment, number, place, stop, folder=folder)):
        raise Paused(None, f"edge {number} stopped")


def serve_client(
    config: Config | str | Path | None,
    *,
    cloud: str = CLOUD_ADDRESS,
    nodes: Sequence[str] = ("client",),
    directory: str | Path = ".",
    data: str | None = None,
    certs: str | Path | None = None,
    insecure: bool = False,
    ready: Ready | None = None,
) -> None:
    """Work as one client, such as `client/17`, or as several in one process, until the run is over.

    `directory` is where clients keep their steps and states. `data` is a folder of npz files, or a function
    "package.module:name" that returns the samples of a client by its number (`serve.data = "own"`).
    """
    from hiflash.serve.assemble import deploy
    from hiflash.serve.channels import open_channels
    from hiflash.serve.nodes import Place, run_client
    from hiflash.serve.samples import read_samples
    from hiflash.sim.federation import build_client

    chosen = _config(config)
    if (data is not None) != (chosen.serve.data == "own"):
        wanted = "serve.data is own: give --data" if data is None else '--data needs serve.data = "own"'
        raise ConfigError(f"{wanted} (a folder of npz files, or a function), or change the configuration")
    ways = [open_channels(_path(certs), node, [cloud], insecure=insecure) for node in nodes]
    numbers = [
        _numbered(way.identity.number, chosen.federation.clients, "client", "federation.clients")
        for way in ways
    ]
    deployment = deploy(chosen)
    own = chosen.with_settings({"workers": 1})
    brought = {
        number: build_client(own, number, *read_samples(data, number)) if data is not None else None
        for number in numbers
    }

    async def all_of_them(stop: asyncio.Event) -> bool:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(
                    run_client(
                        deployment,
                        number,
                        Place(way, cloud=cloud, ready=ready or _quiet),
                        stop,
                        memory=Path(directory),
                        federation=brought[number],
                    )
                )
                for number, way in zip(numbers, ways, strict=True)
            ]
        return all(task.result() for task in tasks)

    if not run_until_stopped(all_of_them):
        raise Paused(None, f"client {', '.join(map(str, numbers))} stopped")


def status(directory: str | Path) -> dict[str, Any]:
    """Return the state of a deployed run from its folder: progress, nodes, refused calls.

    `running` says whether a cloud has written its status lately.
    """
    path = Path(directory)
    found = _state_file(path, "status.json")
    try:
        known = json.loads(found.read_bytes()) if found.exists() else {}
    except ValueError as error:
        raise DamageError(f"{found} is damaged ({error}); a running cloud writes it anew") from None
    # Not by the folder's lock: asking for it could keep a cloud from starting.
    alive = found.exists() and time.time() - found.stat().st_mtime < STATUS_OLD_S
    running = bool(known.get("running")) and alive
    return {**known, "running": running, "complete": is_finished(path)}


def replay(directory: str | Path) -> dict[str, Any]:
    """Replay the journal of a deployed run and return what it leads to: digest, version, communications.

    It raises if a finished run ended with another model, or if the journal is damaged.
    """
    from hiflash.serve.assemble import deploy
    from hiflash.serve.journal import SqliteJournal
    from hiflash.serve.kernel import replay as replay_rows
    from hiflash.serve.state import JOURNAL
    from hiflash.store.checkpoint import load_checkpoint
    from hiflash.weights import digest

    path = Path(directory)
    _state_file(path, JOURNAL)
    live = deploy(_saved_config(path)).live(lambda now, kind, row: None)
    journal, snapshot = SqliteJournal(path / JOURNAL), path / "checkpoint.safetensors"
    try:
        begins_at = 0
        if journal.first > 1 and snapshot.exists():  # what came before was forgotten
            state = load_checkpoint(snapshot)
            live.restore(state["live"])
            begins_at = state["number"]
        last = replay_rows(live, journal.rows(begins_at))
    finally:
        journal.close()
    made = digest(live.weights)
    if is_finished(path) and read_result_file(path)["digest"] != made:
        kept = read_result_file(path)["digest"]
        raise DamageError(f"the journal of {path} leads to digest {made}, and result.json has {kept}")
    record = live.record
    return {
        "digest": made,
        "version": live.version,
        "communications": live.ledger.communications,
        "client_steps": live.ledger.client_steps,
        "virtual_s": live.now,
        "accuracy": None if record is None else record.latest,
        "finished": live.finished,
        "rows": begins_at if last is None else last.number,
        "replayed_from": begins_at,
        "matches_result": is_finished(path) or None,
    }


def run_until_stopped(work: Callable[[asyncio.Event], Coroutine[Any, Any, Any]]) -> Any:
    """Run some work on an event loop of its own; SIGTERM and Ctrl-C set its event."""

    async def main() -> Any:
        stop = asyncio.Event()
        with _stopped_by_signals(stop):
            return await work(stop)

    try:
        return asyncio.run(main())
    except BaseExceptionGroup as group:
        raise first_error(group) from None


@contextmanager
def _stopped_by_signals(stop: asyncio.Event) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    both = (signal.SIGINT, signal.SIGTERM)
    # A node of `hiflash up` ignores Ctrl-C, which reaches the whole group: its parent decides.
    before = {number: held for number in both if (held := signal.getsignal(number)) != signal.SIG_IGN}
    for number in before:
        loop.add_signal_handler(number, stop.set)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            with suppress(TypeError, ValueError):
                signal.signal(number, handler)


def config_of(config: Config | str | Path | None, path: Path) -> Config:
    """Return the configuration of a state folder: a new one's is given, that of another is in it."""
    check_name(path.name)
    if not (path / "config.toml").is_file():
        return _config(config)
    saved = _saved_config(path)
    if config is not None and _config(config).digest() != saved.digest():
        raise RunError(
            f"{path} was begun with another configuration; give the same one, or choose another --dir"
        )
    return saved


def _finished_lately(path: Path) -> bool:
    """Return whether nodes may still wait to hear of the end: then a cloud is there for them once more."""
    return time.time() - (path / "result.json").stat().st_mtime < LATELY_S


def _saved_config(path: Path) -> Config:
    return Config.load(_state_file(path, "config.toml"))


def _config(config: Config | str | Path | None) -> Config:
    return config if isinstance(config, Config) else Config.load(config)


def _state_file(path: Path, name: str) -> Path:
    if not (path / "journal.sqlite").is_file():
        raise RunError(f"{path} is not the state of a deployed cloud: it has no journal.sqlite")
    return path / name


def _numbered(number: int, most: int, role: str, key: str) -> int:
    if number < most:
        return number
    raise ConfigError(f"{role}/{number} is not in this federation: {key} is {most}; use 0 to {most - 1}")


def _path(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path)


def _quiet(address: str) -> None:
    """Do nothing."""
