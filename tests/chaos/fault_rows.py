"""A row of bad networks: calls get lost, late, doubled and reordered, connections are cut and go silent."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from chaos.federation import CLIENTS, EDGES, HOST, configuration, simulated_digest
from chaos.processes import Child, fork, in_child
from chaos.proxy import Proxy, Rough
from chaos.rows import Found
from chaos.wires import Faulty, Shares, Tapped
from hiflash.config import Config
from hiflash.serve.assemble import Deployment, deploy
from hiflash.serve.authority import make_throwaway_federation
from hiflash.serve.channels import open_channels
from hiflash.serve.nodes import Place, run_client, run_cloud, run_edge
from hiflash.serve.state import StateFolder
from hiflash.study.deploy import replay

__all__ = ["bad_networks"]

SEEDS = 20
AT_ONCE = 4
COMMUNICATIONS = 12
SHARE = 0.2
ENDS_S = 120.0
HEARS_S = 2.0  # for nodes to hear of the end, over the same network
METHODS = ("hierfavg", "hifl")
LEVELS = ("calls", "connections")


def bad_networks(folder: Path, quick: bool) -> Found:
    """Run federations over networks that are bad in their own way for every seed.

    Seeds take turns: calls fail (each fault hits 20 % of them), or the TCP connections beneath them do;
    HierFAVG, whose model must not change, and HiFL.
    """
    seeds = list(range(4 if quick else SEEDS))
    simulated = in_child(lambda: simulated_digest(_config("hierfavg")), ENDS_S)
    works = [partial(_one, folder / str(seed), seed) for seed in seeds]
    outcomes = [json.loads(text) for text in _run_all(works, folder)]
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        counts.update(outcome["counts"])
    ended = sum(outcome["ended"] for outcome in outcomes)
    slowest = max(outcome["seconds"] for outcome in outcomes)
    told = {name: counts[name] for name in ("lost", "delayed", "doubled", "reordered", "cut", "swallowed")}
    faults = ", ".join(f"{counts[name] / max(1, counts['calls']):.0%} {name}" for name in list(told)[:4])
    found = Found(
        f"{ended} of {len(seeds)} runs ended, the slowest after {slowest:.0f} s; {counts['calls']} calls: "
        f"{faults}; {counts['connections']} connections: {told['cut']} cut, {told['swallowed']} silenced; "
        f"{counts['unheard']} of {len(seeds) * (EDGES + CLIENTS)} nodes did not hear of the end",
        {"chaos_bad_networks": ended, "chaos_bad_network_slowest_s": slowest}
        | {"chaos_end_unheard": counts["unheard"]}
        | {f"chaos_{name}": number for name, number in told.items()},
        ports=[outcome["port"] for outcome in outcomes],
    )
    for seed, outcome in zip(seeds, outcomes, strict=True):
        _expect(found, seed, outcome, simulated)
    missing = [name for name, number in told.items() if not number and name != "swallowed"]
    found.expect(not missing, f"no call or connection was {missing}")
    return found


def _expect(found: Found, seed: int, outcome: dict[str, Any], simulated: str) -> None:
    """Hold one seed's outcome against what must be."""
    found.expect(outcome["ended"], f"seed {seed}: {outcome['error']}")
    if not outcome["ended"]:
        return
    found.expect(outcome["digest"] == outcome["replayed"], f"seed {seed}: the journal gives another digest")
    if outcome["method"] == "hierfavg":
        found.expect(outcome["digest"] == simulated, f"seed {seed}: another digest than undisturbed")
    else:
        found.expect(outcome["applied"] == outcome["version"], f"seed {seed}: applied twice")


def _config(method: str) -> Config:
    return configuration(method, COMMUNICATIONS)


def _run_all(works: list[Callable[[], Any]], folder: Path) -> list[str]:
    """Run pieces of work in processes, a few at once, and return what each has written."""
    running: dict[int, Child] = {}
    waiting = list(enumerate(works))
    answers = [folder / f"answer-{at}.json" for at in range(len(works))]
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            at, work = waiting.pop(0)
            running[at] = fork(f"seed {at}", partial(_answer, work, answers[at]), folder / f"log-{at}")
        for at, child in list(running.items()):
            if not child.alive:
                del running[at]
                if child.code:
                    raise RuntimeError(f"seed {at} ended with {child.code}: {child.said()[-2000:]}")
        time.sleep(0.02)
    return [answer.read_text() for answer in answers]


def _answer(work: Callable[[], Any], file: Path) -> None:
    file.write_text(json.dumps(work()))


def _one(folder: Path, seed: int) -> dict[str, Any]:
    """Run one seed in this process, all of its nodes over gRPC with TLS; return what came of it."""
    method = METHODS[seed % 2]
    network = _Network(folder, seed, LEVELS[seed // 2 % 2])
    begun, error, result = time.monotonic(), "", None
    try:
        result = asyncio.run(asyncio.wait_for(network.run(_config(method)), ENDS_S))
    except TimeoutError:
        error = f"{method} on bad {network.level} had not ended after {ENDS_S:g} s"
    told: dict[str, Any] = {
        "method": method,
        "ended": result is not None,
        "error": error,
        "seconds": time.monotonic() - begun,
        "counts": dict(network.counts),
        "port": int(network.listens.result().rpartition(":")[2]),
    }
    if result is not None:
        applied = sum(result.applied_per_edge)
        told |= {"digest": result.digest, "version": result.version, "applied": applied}
        told |= {"replayed": replay(folder / "state")["digest"]}
    return told


class _Network:
    """A cloud, edges and clients in one process, and what is bad between them."""

    def __init__(self, folder: Path, seed: int, level: str) -> None:
        self.folder, self.seed, self.level = folder, seed, level
        self.counts: Counter[str] = Counter()
        self.stream = np.random.default_rng([4, seed])
        folder.mkdir()
        (folder / "memory").mkdir()
        make_throwaway_federation(folder / "certs", "chaos", EDGES, CLIENTS)

    async def run(self, config: Config) -> Any:
        """Run to the end and return the result."""
        deployment, stop = deploy(config), asyncio.Event()
        self.listens: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        store = StateFolder.open(self.folder / "state", config.to_toml(), "all")
        place = Place(self._channels("cloud"), f"{HOST}:0", ready=self.listens.set_result)
        cloud = asyncio.create_task(run_cloud(deployment, store, place, stop, lambda result: None))
        proxy, others = Proxy(await self.listens, rough=self._rough()), []
        try:
            async with proxy as carried:
                address = carried if self.level == "connections" else await self.listens
                others = [asyncio.create_task(work) for work in self._others(deployment, address, stop)]
                result = await _first_failing(cloud, others)
                _, pending = await asyncio.wait(others, timeout=HEARS_S)
                self.counts["unheard"] = len(pending)  # what the cloud and the edges told them last got lost
                stop.set()
                await asyncio.gather(*others)
                return result
        finally:
            for task in (cloud, *others):
                task.cancel()
            await asyncio.gather(cloud, *others, return_exceptions=True)
            self.counts.update(proxy.counts)
            store.close()
            deployment.federation.close()

    def _others(self, deployment: Deployment, cloud: str, stop: asyncio.Event) -> Iterator[Any]:
        """Yield the work of edges and clients."""
        for edge in range(EDGES):
            yield run_edge(deployment, edge, Place(self._ways(f"edge/{edge}"), f"{HOST}:0", cloud), stop)
        memory = self.folder / "memory"
        for client in range(CLIENTS):
            place = Place(self._ways(f"client/{client}"), cloud=cloud)
            yield run_client(deployment, client, place, stop, memory=memory)

    def _rough(self) -> Rough:
        # It takes seconds until silence is noticed: once in a run, in every other one of them.
        swallow = 0.02 if self.seed % 4 == 2 else 0.0
        return Rough(self.stream, (0.0, 0.05), cut=0.05, swallow=swallow)

    def _channels(self, who: str) -> Any:
        return open_channels(self.folder / "certs", who, [], insecure=False)

    def _ways(self, who: str) -> Any:
        shares = Shares(SHARE, SHARE, SHARE, SHARE) if self.level == "calls" else Shares()
        stream = np.random.default_rng([4, self.seed, sum(who.encode())])
        return Tapped(self._channels(who), lambda caller, role: Faulty(caller, stream, shares, self.counts))


async def _first_failing(cloud: asyncio.Task[Any], others: list[asyncio.Task[Any]]) -> Any:
    """Return the cloud's result; raise at once if another node fails."""
    waiting = {cloud, *others}
    while not cloud.done():
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    return cloud.result()
