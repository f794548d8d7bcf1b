"""Runs the nodes of a deployment to their end: the cloud with its state folder, an edge, clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hiflash.errors import RunError, StorageError, first_error
from hiflash.serve.assemble import Deployment
from hiflash.serve.calls import CallError
from hiflash.serve.channels import Channels, split_address
from hiflash.serve.charges import open_charges
from hiflash.serve.client import ClientAgent
from hiflash.serve.cloud import CloudService
from hiflash.serve.grpc_transport import start_server
from hiflash.serve.keys import client_sums, edge_sums
from hiflash.serve.memory import Memories, MemoryFile
from hiflash.serve.state import StateFolder
from hiflash.serve.training import LocalTraining
from hiflash.serve.ways import Inside, PlacedByCloud
from hiflash.serve.wire import Malformed
from hiflash.sim.federation import Federation
from hiflash.sim.made_by import makers
from hiflash.sim.outcome import result_of
from hiflash.sim.result import Result
from hiflash.weights import to_bytes

__all__ = ["Place", "run_client", "run_cloud", "run_edge", "stop_at_once"]

STATUS_S = 0.5
LINGER_S = 10.0  # how long an ended cloud waits for nodes that do not know yet
SAME = "give all nodes the same configuration and the same version of HiFlash"
GRACE_S = 2.0  # for calls under way when a node stops
UNWIND_S = 0.05  # for calls that are cut off


@dataclass(frozen=True)
class Place:
    """Where a node listens or calls, and as whom. `ready` is told the address when it serves."""

    channels: Channels
    listen: str = ""
    cloud: str = ""
    address: str = ""
    ready: Callable[[str], None] = lambda address: None


async def run_cloud(
    deployment: Deployment,
    store: StateFolder,
    place: Place,
    stop: asyncio.Event,
    finish: Callable[[Result], None],
) -> Result | None:
    """Serve until the run is over and return its result, or None if `stop` was set first.

    A finished run is told to the nodes that come back, for a while.
    """
    live = deployment.live(store.folder.log)
    service = deployment.cloud(live, store)
    service.kernel.resume(*store.load())
    server, port = await start_server(
        service,
        place.listen,
        place.channels.credentials,
        deployment.wire.most_bytes,
        denied=place.channels.denied,
    )
    running = asyncio.create_task(service.run())
    reporting = asyncio.create_task(_report(service, store, time.time()))
    host, _ = split_address(place.listen)
    place.ready(_joined(host, port))
    result = None
    try:
        if await _first(running, stop.wait(), service.complete.wait()) == 2:
            result = _result(deployment, service, store)
            finish(result)
            await store.finish(result.to_dict(), to_bytes(live.weights, deployment.federation.start.spec))
            await _first(running, stop.wait(), _all_told(service))
        service.drain()
        await server.stop(GRACE_S)
        await running
        if result is None:
            await service.kernel.save()
        return result
    finally:
        reporting.cancel()
        running.cancel()
        await asyncio.gather(running, reporting, return_exceptions=True)  # what ended them is known by now
        await stop_at_once(server)
        with suppress(StorageError):  # nor may it hide that
            store.write_status({**service.status(), "running": False})


async def run_edge(
    deployment: Deployment, number: int, place: Place, stop: asyncio.Event, *, folder: Path = Path()
) -> bool:
    """Work as an edge until the run is over; return False if `stop` was set first.

    The edge keeps its privacy ledger in the `folder`, if it has one.
    """
    most = deployment.wire.most_bytes
    cluster = deployment.federation.population.clusters[number]
    charges = open_charges(deployment.plan, number, cluster, folder)
    cloud = place.channels.to(place.cloud, "cloud", 0, most)
    sums = edge_sums(deployment, place.channels, charges)
    agent = deployment.edge(number, cloud, charges=charges, sums=sums)
    server, port = await start_server(
        agent.cluster, place.listen, place.channels.credentials, most, denied=place.channels.denied
    )
    address = place.address or _joined(split_address(place.listen)[0], port)
    agent.address = address
    place.ready(address)
    try:
        over = await _work(f"edge {number}", agent.run(), stop)
        if over:
            await agent.cluster.all_told(2 * GRACE_S)
        return over
    finally:
        await stop_at_once(server)
        await cloud.close()


async def run_client(
    deployment: Deployment,
    number: int,
    place: Place,
    stop: asyncio.Event,
    *,
    memory: Path,
    federation: Federation | None = None,
) -> bool:
    """Work as a client until the run is over; return False if `stop` was set first.

    `federation` has the client's own samples; without it they are its part of the configuration's dataset.
    """
    held = federation or deployment.federation
    examples = len(held.population.split.indices[number])
    most = deployment.wire.most_bytes
    cloud = place.channels.to(place.cloud, "cloud", 0, most)
    memory.mkdir(mode=0o700, parents=True, exist_ok=True)
    memories = MemoryFile(memory / f"client-{number}.safetensors")
    training = LocalTraining(held)
    place.ready("")
    try:
        if deployment.config.federation.flat:
            return await _flat(deployment, number, cloud, examples, training, memories, stop)
        callers: dict[tuple[int, str], Any] = {}
        gone: list[Any] = []

        def connect(edge: int, address: str) -> Any:
            if (edge, address) not in callers:
                while callers:  # the edge has moved
                    gone.append(callers.popitem()[1])
                callers[edge, address] = place.channels.to(address, "edge", edge, most)
            return callers[edge, address]

        patience = deployment.patience("client", number)
        way = PlacedByCloud(number, deployment.wire, cloud, connect, patience)
        sums = client_sums(deployment, place.channels)
        agent = deployment.client(number, examples, training, way, memories, sums)
        try:
            return await _work(f"client {number}", agent.run(), stop)
        finally:
            for caller in (*callers.values(), *gone):
                await caller.close()
    finally:
        await cloud.close()


async def stop_at_once(server: Any) -> None:
    """Stop a server. Calls under way are cut off, and end here: gRPC complains if they outlive the loop."""
    await server.stop(None)
    await asyncio.sleep(UNWIND_S)


async def _flat(
    deployment: Deployment,
    number: int,
    cloud: Any,
    examples: int,
    training: LocalTraining,
    memories: Memories,
    stop: asyncio.Event,
) -> bool:
    """Work as a client without an edge: it is its own edge."""
    edge, patience = deployment.edge(number, cloud), deployment.patience("client", number)
    way = Inside(number, edge.cluster, PlacedByCloud(number, deployment.wire, cloud, _nowhere, patience))
    agent: ClientAgent = deployment.client(number, examples, training, way, memories)

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(agent.run())
            await edge.run()
            serving.cancel()

    return await _work(f"client {number}", both(), stop)


async def _work(who: str, work: Any, stop: asyncio.Event) -> bool:
    """Return whether some work ended by itself; refusals of the other side become errors for people."""
    task = asyncio.create_task(work)
    try:
        return await _first(task, stop.wait()) == 0
    except (CallError, Malformed, BaseExceptionGroup) as error:
        first = first_error(error)
        if isinstance(first, CallError):
            raise RunError(f"{who} was refused ({first}); {_way_out(first)}") from None
        if isinstance(first, Malformed):
            raise RunError(f"{who} got an answer that it cannot read ({first}); {SAME}") from None
        raise first from None
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, CallError, Malformed, BaseExceptionGroup):
            await task


def _nowhere(edge: int, address: str) -> Any:
    """Return no way: a flat method's client has no edge elsewhere."""


def _way_out(error: CallError) -> str:
    if error.code in ("mismatch", "invalid"):
        return SAME
    return "see that its certificate and its number are those of this federation"


async def _first(task: asyncio.Task[Any], *others: Any) -> int:
    """Wait for a task or for others, and return the place of the first that is done; raise its error."""
    waiting = [task, *(asyncio.ensure_future(other) for other in others)]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        place = next(place for place, each in enumerate(waiting) if each.done())
        waiting[place].result()
        return place
    finally:
        for each in waiting[1:]:
            each.cancel()


async def _all_told(service: CloudService) -> None:
    """Wait until all nodes that took part know of the end, but not for ever.

    A cloud that was restarted at the end has not seen them yet, and they wait for it.
    """
    until = asyncio.get_running_loop().time() + LINGER_S
    took_part = {node for node, grants in enumerate(service.live.ledger.grants) if grants}
    while (took_part | set(service.seen)) - service.told and asyncio.get_running_loop().time() < until:
        await asyncio.sleep(0.05)


async def _report(service: CloudService, store: StateFolder, began: float) -> None:
    """Write the state of the run for people to look at, again and again."""
    while True:
        with suppress(StorageError):  # the journal is what must be written
            store.write_status({**service.status(), "running": True, "began": began})
        await asyncio.sleep(STATUS_S)


def _result(deployment: Deployment, service: CloudService, store: StateFolder) -> Result:
    live = service.live
    if live.record is None:
        raise RunError("a cloud without a record has no result")
    return result_of(
        deployment.federation,
        live,
        live.record,
        name=store.folder.path.name,
        reason=live.finished,
        wall_s=live.now,
        path=store.folder.path,
        made_by=makers([]),
    )


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
