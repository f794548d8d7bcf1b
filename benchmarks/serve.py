"""The speed of the deployed cloud: durable updates over mutual TLS, group commit, replay, schedules."""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hiflash.core.async_cloud import AsyncCloud
from hiflash.core.compression import Payloads
from hiflash.core.mixing import Interpolate
from hiflash.core.thresholds.fixed import FixedThreshold
from hiflash.core.weighting import Exponential
from hiflash.messages import CheckIn, EdgeCosts, Upload
from hiflash.sim.ledger import Ledger, Prices

__all__ = [
    "serve_dst_seeds_min",
    "serve_flood_p99_ms",
    "serve_group_commit_ratio",
    "serve_replay_events_s",
    "serve_updates_large_s",
    "serve_updates_s",
]

EDGES = 8
LENET, RESNET = 21_840, 3_504_554
COSTS = EdgeCosts(1.0, 1.0, 0.1, 0.1, 0.1)
SLOW_S = 0.01  # added to every commit to tell what grouping is worth
ROOT = Path(__file__).parents[1]


def serve_updates_s(seconds: float = 6.0) -> float:
    """Return the durable cloud updates per second of eight edges, with a model of 22k parameters."""
    return _updates_s(LENET, seconds)["updates_s"]


def serve_updates_large_s(seconds: float = 8.0) -> float:
    """Return the same with a model of 3.5 million parameters."""
    return _updates_s(RESNET, seconds)["updates_s"]


def serve_group_commit_ratio(seconds: float = 4.0) -> float:
    """Return updates per second with group commit over those with single commits, on a slowed disk."""
    grouped = _updates_s(1_000, seconds, slow_s=SLOW_S)["updates_s"]
    single = _updates_s(1_000, seconds, slow_s=SLOW_S, batch=1)["updates_s"]
    return float(grouped / single)


def serve_flood_p99_ms(seconds: float = 10.0) -> dict[str, float]:
    """Return the 99th percentile of honest uploads while one edge sends 1,000 check-ins a second."""
    found = _updates_s(LENET, seconds, flood=1_000)
    return {
        "serve_flood_p99_ms": found["p99_ms"],
        "serve_flood_updates_s": found["updates_s"],
        "serve_flood_growth_mb": found["growth_mb"],
        "serve_flood_calls_s": found["flood_s"],
    }


def serve_replay_events_s(events: int = 4_000) -> float:
    """Return how many inputs of a journal are replayed per second."""
    from hiflash.serve.journal import SqliteJournal
    from hiflash.serve.kernel import replay

    folder = Path(tempfile.mkdtemp())
    try:
        journal = SqliteJournal(folder / "journal.sqlite")
        _fill(journal, events)
        live, begun = _live(LENET, lambda *_: None), time.perf_counter()
        replay(live, journal.rows())
        took_s = time.perf_counter() - begun
        journal.close()
        return events / took_s
    finally:
        shutil.rmtree(folder)


def serve_dst_seeds_min(seeds: int = 400) -> float:
    """Return the schedules of the simulated network per minute, on two processes."""
    context = multiprocessing.get_context("spawn")
    begun = time.perf_counter()
    with context.Pool(2) as pool:
        pool.map(_schedules, [range(0, seeds, 2), range(1, seeds, 2)])
    return 60 * seeds / (time.perf_counter() - begun)


def _schedules(seeds: Sequence[int]) -> None:
    sys.path.insert(0, str(ROOT / "tests"))
    from network.federation import Plan, run_plan

    for seed in seeds:
        run_plan(Plan.drawn(seed))


def _live(size: int, log: Any) -> Any:
    from hiflash.serve.books import Books
    from hiflash.serve.live import LiveCloud
    from hiflash.serve.models import CloudModels
    from hiflash.serve.wire import Wire
    from hiflash.weights import Spec

    cloud = AsyncCloud(
        np.zeros(size, np.float32),
        dict.fromkeys(range(EDGES + 1), 10),
        mixing=Interpolate(0.7, Exponential(0.99)),
        policy=FixedThreshold(math.inf),
        seed=0,
        enforce="discard",
        slot_s=0.05,
        slotted=False,
    )
    prices = Prices((1.0, 1.0), 0.05)
    ledger = Ledger(EDGES + 1, Payloads.of(4 * size, None, None), prices, flat=False, synchronous=False)
    clusters = [[edge] for edge in range(EDGES + 1)]
    models = CloudModels(Spec((("w", (size,)),)))
    return LiveCloud(cloud, Books(ledger, log), Wire(size), models, limits={}, clusters=clusters)


def _fill(journal: Any, events: int) -> None:
    """Write the inputs of one edge that uploads again and again."""
    from hiflash.serve.journal import START, Input, chained
    from hiflash.serve.models import model_bytes
    from hiflash.serve.wire import Asking, Wire

    wire, weights, model = Wire(LENET), np.ones(LENET, np.float32), model_bytes(np.ones(LENET, np.float32))
    rows, chain = [], START
    for number in range(1, events + 1):
        given = Input("check_in", 0, wire.ask(CheckIn(0, 1, COSTS, 0.0), Asking(1), 0.0))
        if number > 1:
            last = Upload(0, number - 1, weights, 10, CheckIn(0, number, COSTS, 0.0), 0.0)
            given = Input("upload", 0, wire.work(last, model, [], Asking(1)))
        row = chained(chain, number, float(number), given)
        rows.append(row)
        chain = row.chain
    for start in range(0, events, 100):
        journal.commit(rows[start : start + 100])


def _updates_s(
    size: int, seconds: float, *, slow_s: float = 0.0, batch: int | None = None, flood: int = 0
) -> dict[str, float]:
    """Return figures of a cloud in a process of its own, and edges in another, on loopback."""
    from hiflash.serve.authority import make_throwaway_federation

    context = multiprocessing.get_context("spawn")
    folder = Path(tempfile.mkdtemp())
    try:
        make_throwaway_federation(folder / "certs", "bench", EDGES + 1, 0)
        here, there = context.Pipe()
        cloud = context.Process(target=_cloud, args=(folder, size, slow_s, batch, there))
        cloud.start()
        port = here.recv()
        results = context.Queue()
        edges = context.Process(target=_edges, args=(folder / "certs", size, port, seconds, flood, results))
        edges.start()
        found = results.get(timeout=seconds + 60)
        edges.join()
        here.send("stop")
        found["growth_mb"] = here.recv()
        cloud.join()
        return dict(found)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _cloud(folder: Path, size: int, slow_s: float, batch: int | None, pipe: Any) -> None:
    asyncio.run(_serve(folder, size, slow_s, batch, pipe))


async def _serve(folder: Path, size: int, slow_s: float, batch: int | None, pipe: Any) -> None:
    from hiflash.serve import kernel
    from hiflash.serve.cloud import CloudService, Terms
    from hiflash.serve.credentials import Credentials
    from hiflash.serve.grpc_transport import start_server
    from hiflash.serve.state import StateFolder

    if batch is not None:
        kernel.MOST_IN_A_BATCH = batch
    store = StateFolder.open(folder / "state", "seed = 0\n", "snapshot")
    commit = store.commit

    async def slowed(rows: Any) -> None:
        await asyncio.sleep(slow_s)
        await commit(rows)

    if slow_s:
        store.commit = slowed  # type: ignore[method-assign]
    live = _live(size, store.folder.log)
    terms = Terms("c", "s", lease_s=60.0, start_edges=1, snapshot_rows=2_000)
    service = CloudService(live, live.wire, terms, store)
    credentials = Credentials.load(folder / "certs", "cloud")
    server, port = await start_server(service, "127.0.0.1:0", credentials, live.wire.most_bytes)
    running = asyncio.create_task(service.run())
    pipe.send(port)
    await asyncio.sleep(1.5)  # the edges have begun
    before = _resident_mb()
    await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
    pipe.send(_resident_mb() - before)
    running.cancel()
    await server.stop(0)
    store.close()


def _edges(certs: Path, size: int, port: int, seconds: float, flood: int, results: Any) -> None:
    results.put(asyncio.run(_work(certs, size, port, seconds, flood)))


async def _work(certs: Path, size: int, port: int, seconds: float, flood: int) -> dict[str, float]:
    times: list[float] = []
    end = time.monotonic() + seconds
    honest = [_upload(certs, size, port, edge, end, times) for edge in range(EDGES)]
    flooding = asyncio.create_task(_flood(certs, size, port, end, flood)) if flood else None
    await asyncio.gather(*honest)
    sent = 0 if flooding is None else await flooding
    ranked = sorted(times)
    return {
        "updates_s": len(times) / seconds,
        "p99_ms": 1e3 * ranked[int(0.99 * len(ranked))],
        "median_ms": 1e3 * statistics.median(ranked),
        "flood_s": sent / seconds,
    }


def _caller(certs: Path, size: int, port: int, edge: int) -> tuple[Any, Any]:
    from hiflash.serve.credentials import Credentials
    from hiflash.serve.grpc_transport import GrpcCaller
    from hiflash.serve.identity import Identity
    from hiflash.serve.wire import Wire

    wire = Wire(size)
    me, cloud = Credentials.load(certs, f"edge/{edge}"), Identity("bench", "cloud", 0)
    return GrpcCaller(f"127.0.0.1:{port}", me, cloud, wire.most_bytes), wire


async def _upload(certs: Path, size: int, port: int, edge: int, end: float, times: list[float]) -> None:
    from hiflash.serve import wire_pb2 as pb
    from hiflash.serve.models import model_bytes
    from hiflash.serve.patience import Patience
    from hiflash.serve.wire import Asking

    caller, wire = _caller(certs, size, port, edge)
    patience = Patience(np.random.default_rng(edge), first_s=0.01)
    weights, request = np.ones(size, np.float32), 1
    asked = wire.ask(CheckIn(edge, request, COSTS, 0.0), Asking(1), 5.0)
    told = pb.Answer.FromString(await patience.call(caller, "CheckIn", asked, hold_s=5.0))
    while (begun := time.monotonic()) < end:
        request += 1
        last = Upload(edge, told.grant.lease_id, weights, 10, CheckIn(edge, request, COSTS, 0.0), 0.0)
        body = wire.work(last, model_bytes(weights), [], Asking(1))
        told = pb.Answer.FromString(await patience.call(caller, "Upload", body))
        if told.verdict.status != "applied":
            raise RuntimeError(f"the cloud did not apply an upload: {told.verdict}")
        times.append(time.monotonic() - begun)
    await caller.close()


async def _flood(certs: Path, size: int, port: int, end: float, rate: int) -> int:
    """Send check-ins at a rate, whatever becomes of them, and return how many were sent."""
    from hiflash.serve.calls import CallError
    from hiflash.serve.wire import Asking

    caller, wire = _caller(certs, size, port, EDGES)
    sent, begun, waiting = 0, time.monotonic(), set()

    async def one(request: int) -> None:
        try:
            asked = wire.ask(CheckIn(EDGES, request, COSTS, 0.0), Asking(1), 0.0)
            await caller.call("CheckIn", asked, timeout_s=5.0)
        except CallError:
            return

    while time.monotonic() < end:
        due = int((time.monotonic() - begun) * rate)
        while sent < due:
            sent += 1
            task = asyncio.create_task(one(sent))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
        await asyncio.sleep(0.005)
    await asyncio.gather(*waiting)
    await caller.close()
    return sent


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6
