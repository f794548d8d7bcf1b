"""Whole runs of the core with scripted clients: digests that hold on every machine.

Clients do not train: a task gives half the model plus a step of its own, in numbers that binary floating
point holds exactly or rounds alike everywhere. WAN links have no jitter and resources do not fluctuate, so
no exp or log of some C library is in the digests either.
"""

import hashlib
import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from hiflash.core.aggregation import combine_clients
from hiflash.core.association.strategies import random_association
from hiflash.core.async_cloud import AsyncCloud
from hiflash.core.compression import Payloads, Uplink
from hiflash.core.cost import WanLink
from hiflash.core.edge import Edge, EdgeRules, Workload
from hiflash.core.mixing import Buffer, Delta, Interpolate, TierWeighting
from hiflash.core.selection import TierSelection, UniformSelection
from hiflash.core.sync_cloud import SyncCloud
from hiflash.core.thresholds.fixed import FixedThreshold
from hiflash.core.thresholds.heuristics import KeepParallel, LatencyAware, SkipSlowest
from hiflash.core.thresholds.random import RandomThreshold
from hiflash.core.weighting import Exponential
from hiflash.execute.executor import LazyExecutor
from hiflash.seeding import rng
from hiflash.sim.ledger import Ledger, Prices
from hiflash.sim.simulator import Simulator
from hiflash.sim.training import RealTraining
from hiflash.sim.world import World
from hiflash.store.checkpoint import load_checkpoint, save_checkpoint
from hiflash.train.task import TaskResult
from hiflash.weights import digest

CLIENTS, EDGES, SIZE, SEED = 24, 6, 16, 11
SLOT_S = 0.0625
STEPS = 3


class ScriptedTrainer:
    """Pure like a real one: what comes out depends on the task alone, its learning rate included."""

    def __init__(self, poisoned: int | None = None) -> None:
        self.poisoned = poisoned
        self.trained = 0

    def train(self, tasks):
        return [self.result(task) for task in tasks]

    def result(self, task) -> TaskResult:
        self.trained += 1
        ramp = np.arange(SIZE, dtype=np.float32) / np.float32(SIZE)
        step = np.float32(task.lr) * (
            (task.client % 7) * ramp - np.float32(task.first_step % 5) / np.float32(4)
        )
        weights = np.float32(0.5) * task.weights + step
        if task.client == self.poisoned and task.first_step % 2:
            weights[0] = np.nan
        return TaskResult(weights.astype(np.float32), 0.0)


@dataclass
class Run:
    """One simulation and its log."""

    simulator: Simulator
    log: list[str] = field(default_factory=list)

    def until(self, communications: int) -> None:
        while self.simulator.ledger.communications < communications:
            self.simulator.step()

    @property
    def digests(self) -> tuple[str, str]:
        text = "\n".join(self.log)
        return digest(self.simulator.weights)[:16], hashlib.sha256(text.encode()).hexdigest()[:16]


WORKLOADS = [Workload(2 ** (client % 4), STEPS, 0.5, 0.5, 100) for client in range(CLIENTS)]


def edge_of(index: int, cluster: list[int], world: World, options: dict) -> Edge:
    rules = EdgeRules(
        edge_rounds=tuple(options["rounds"]),
        seed=SEED,
        redraw=options.get("redraw", "setup"),
        clients_per_round=options.get("per_round"),
        deadline_s=options.get("edge_deadline_s", math.inf),
        quorum=options.get("edge_quorum", 1.0),
        asks_between_rounds=options.get("enforce") == "cancel",
    )
    estimates = world.estimates(index, rules.clients_per_round)
    return Edge(index, cluster, WORKLOADS, rules, estimates, combine_clients)


def cloud_of(edges: list[Edge], options: dict) -> AsyncCloud | SyncCloud:
    initial = np.zeros(SIZE, dtype=np.float32)
    examples = {edge.edge: edge.examples for edge in edges}
    if "participants" in options:
        selection = UniformSelection(options["participants"], SEED)
        if "tiers" in options:
            tiers = np.array_split(np.arange(len(edges)), options["tiers"])
            shares = np.eye(options["tiers"])
            count = options["participants"]
            selection = TierSelection(tiers, shares, participants=count, interval=3, credits=9, seed=SEED)
        return SyncCloud(
            initial,
            examples,
            selection=selection,
            deadline_s=options.get("deadline_s", math.inf),
            quorum=options.get("quorum", 1.0),
        )
    threshold = options["threshold"]
    return AsyncCloud(
        initial,
        examples,
        mixing=options.get("mixing", lambda: Interpolate(0.5, Exponential(0.5)))(),
        policy=POLICIES[threshold]() if isinstance(threshold, str) else FixedThreshold(threshold),
        seed=SEED,
        enforce=options["enforce"],
        slot_s=SLOT_S,
        slotted=not options.get("flat", False),
        concurrency=options.get("concurrency", math.inf),
    )


def make(**options) -> Run:
    """Return a run that has just started, wired as `federation.py` wires one."""
    flat, synchronous = options.get("flat", False), "participants" in options
    clusters = [[c] for c in range(CLIENTS)] if flat else random_association(CLIENTS, EDGES, rng(SEED, "a"))
    compute_s = (1 + np.arange(CLIENTS) % 5) / 16
    send_s = (1 + np.arange(CLIENTS) % 3) / 32
    payloads = Payloads.of(4 * SIZE)
    world = World(
        compute_s=compute_s,
        send_s=send_s,
        cost_unit_s=(2 * float(compute_s.sum()) / EDGES, 2 * float(send_s.sum()) / EDGES),
        clusters=clusters,
        links=[WanLink((1 + k % 4) / 32, 1024.0, 0.0) for k in range(len(clusters))],
        payloads=payloads,
        seed=SEED,
        fluctuation=options.get("fluctuation"),
    )
    edges = [edge_of(index, cluster, world, options) for index, cluster in enumerate(clusters)]
    prices = Prices(world.cost_unit_s, SLOT_S)
    ledger = Ledger(len(edges), payloads, prices, flat=flat, synchronous=synchronous)
    executor = LazyExecutor(ScriptedTrainer(options.get("poisoned")))
    log: list[str] = []
    simulator = Simulator(
        cloud_of(edges, options),
        edges,
        world,
        ledger,
        RealTraining(executor, WORKLOADS, Uplink()),
        slot_s=None if flat or synchronous else SLOT_S,
        limits={},
        recall=lambda weights: tuple(abs(weights[:3]).tolist()),
        log=lambda now, kind, row: log.append(json.dumps({"t": now, "event": kind, **row})),
    )
    return Run(simulator, log)


POLICIES = {
    "random": lambda: RandomThreshold(4, SEED),
    "parallel": lambda: KeepParallel(3),
    "latency": lambda: LatencyAware(2, 8),
    "skip_slowest": lambda: SkipSlowest(2, 2),
}
HIFL = {"threshold": "random", "rounds": (1, 2, 3)}
SETUPS = {
    "admit": HIFL | {"enforce": "admit"},
    "discard": HIFL | {"enforce": "discard"},
    "cancel": HIFL | {"enforce": "cancel", "redraw": "grant"},
    "delta": HIFL | {"enforce": "discard", "mixing": lambda: Delta(1.0, Exponential(0.5), 0.5)},
    "fixed": HIFL | {"enforce": "admit", "threshold": 1, "redraw": "grant", "per_round": 2},
    "lossy": HIFL
    | {"enforce": "cancel", "threshold": 2, "edge_deadline_s": 0.34375, "edge_quorum": 1.0, "poisoned": 3},
    "fedasync": {"enforce": "discard", "threshold": math.inf, "rounds": (1,), "flat": True},
    "hierfavg": {"participants": 2, "rounds": (2,), "per_round": 3},
    "hierfavg deadline": {"participants": 4, "rounds": (2,), "deadline_s": 0.75, "quorum": 0.5},
    "fedavg": {"participants": 5, "rounds": (1,), "flat": True},
    "tifl": {"participants": 3, "tiers": 3, "rounds": (1,), "flat": True},
    "fedbuff": {"enforce": "admit", "threshold": "random", "rounds": (1,), "flat": True, "concurrency": 4,
                "mixing": lambda: Buffer(1.0, Exponential(0.5), 7)},
    "fedat": HIFL | {"enforce": "admit", "rounds": (1,), "mixing": lambda: TierWeighting(EDGES)},
    "parallel": HIFL | {"enforce": "admit", "threshold": "parallel"},
    "latency": HIFL | {"enforce": "admit", "threshold": "latency"},
    "skip slowest": HIFL | {"enforce": "discard", "threshold": "skip_slowest"},
}  # fmt: skip

# (final weights, event log) after 300 communications
GOLDEN: dict[str, tuple[str, str]] = {
    "admit": ("ab4eaed8c4eabdc2", "5d1c436e7a0f1439"),
    "discard": ("23e368690c1baad5", "62c8c856e3703cc8"),
    "cancel": ("937d8504a48e2d77", "65fbb485b26ae25e"),
    "delta": ("a6903cd4e0868709", "62c8c856e3703cc8"),
    "fixed": ("ccb4c6d9cbac4ba4", "25c70cc01a0d77c2"),
    "lossy": ("bfaa6c75814e91be", "fa38886225f4ced7"),
    "fedasync": ("919c1f33533d8f78", "e11cdd6e59e693b4"),
    "hierfavg": ("82d66399c62eb22e", "72000bf46823dd44"),
    "hierfavg deadline": ("f5a5fd42d16a2030", "06940bbb52abff7e"),
    "fedavg": ("e54773691e78b711", "35ea38ebf2ae5ac4"),
    "tifl": ("2e10e374ebb7c5cb", "6ae5b7fe53d50438"),
    "fedbuff": ("28c83eda247f17a3", "77a7703251948567"),
    "fedat": ("bcef01c3efbd0aa5", "ebed08329d5fab89"),
    "parallel": ("31c08c20a0750b62", "8f52f71297c49891"),
    "latency": ("938f7035725b9bb8", "094397d266dceef9"),
    "skip slowest": ("dec057e9113f22c9", "3b7f18c35bafa25b"),
}


def finished(name: str, communications: int = 300) -> Run:
    run = make(**SETUPS[name])
    run.simulator.start()
    run.until(communications)
    return run


@pytest.mark.parametrize("name", SETUPS)
def test_a_run_gives_the_digests_that_were_committed(name):
    assert finished(name).digests == GOLDEN[name]


def test_every_run_differs_from_the_others():
    assert len(set(GOLDEN.values())) == len(SETUPS)


@pytest.mark.parametrize("name", SETUPS)
def test_a_run_saved_at_any_event_goes_on_to_the_same_digests(name, tmp_path: Path):
    events = 0
    whole = make(**SETUPS[name])
    whole.simulator.start()
    while whole.simulator.ledger.communications < 120:
        whole.simulator.step()
        events += 1
    for cut in sorted(rng(SEED, "cuts", name).choice(events, size=4, replace=False).tolist()):
        first = make(**SETUPS[name])
        first.simulator.start()
        for _ in range(cut):
            first.simulator.step()
        save_checkpoint(tmp_path / "state.safetensors", first.simulator.snapshot())
        second = make(**SETUPS[name])
        second.simulator.restore(load_checkpoint(tmp_path / "state.safetensors"))
        second.until(120)
        assert first.log + second.log == whole.log
        assert second.simulator.weights.tobytes() == whole.simulator.weights.tobytes()
        assert second.simulator.totals() == whole.simulator.totals()
        assert second.simulator.figures() == whole.simulator.figures()


def test_fluctuating_resources_are_saved_too(tmp_path: Path):
    options = SETUPS["admit"] | {"fluctuation": (0.95, 0.3)}
    whole = make(**options)
    whole.simulator.start()
    whole.until(60)
    first = make(**options)
    first.simulator.start()
    first.until(23)
    save_checkpoint(tmp_path / "state.safetensors", first.simulator.snapshot())
    second = make(**options)
    second.simulator.restore(load_checkpoint(tmp_path / "state.safetensors"))
    second.until(60)
    assert first.log + second.log == whole.log
    assert second.digests[0] == whole.digests[0]


@pytest.mark.parametrize("name", SETUPS)
def test_the_books_agree_with_the_log(name):
    run = finished(name)
    rows = [json.loads(line) for line in run.log]
    uploads = [row for row in rows if row["event"] == "upload"]
    ledger = run.simulator.ledger
    assert ledger.communications == len(uploads) == 300
    if "participants" in SETUPS[name]:
        assert run.simulator.version == sum(bool(r["leases"]) for r in rows if r["event"] == "round")
    else:
        assert run.simulator.version == sum(row["status"] == "applied" for row in uploads)
        buffered = sum(row["status"] == "buffered" for row in uploads)
        waiting = buffered and buffered - 6 * run.simulator.version  # six wait for the seventh
        assert len([lease for lease in ledger.open.values() if not lease.in_flight]) == waiting
    assert sum(ledger.applied) == sum(ledger.staleness.values())
    granted = {row["lease"]: float(row["threshold"]) for row in rows if row["event"] == "grant"}
    applied = [row for row in uploads if row["status"] == "applied"]
    assert all(0 <= row["staleness"] <= granted[row["lease"]] for row in applied)
    assert ledger.discarded == sum(row["reason"] == "stale" for row in uploads)
    assert len({row["lease"] for row in uploads}) == len(uploads)
    open_steps = sum(lease.steps_done for lease in ledger.open.values())
    assert 0 <= ledger.wasted_client_steps <= ledger.client_steps - open_steps
    assert len(ledger.open) <= len(run.simulator.edges)  # settled leases are not kept
    assert np.isfinite(run.simulator.weights).all()


@pytest.mark.parametrize("name", ["admit", "discard", "cancel", "lossy", "hierfavg deadline"])
def test_the_setups_exercise_what_they_are_for(name):
    ledger = finished(name).simulator.ledger
    what = {
        "admit": ledger.waited,
        "discard": ledger.discarded,
        "cancel": ledger.cancelled,
        "lossy": ledger.abandoned,
        "hierfavg deadline": ledger.rejected,
    }[name]
    assert what > 0


def test_uploads_known_to_be_refused_are_never_trained():
    run = finished("discard")
    applied_steps = run.simulator.training.executor.trainer.trained * STEPS
    assert run.simulator.ledger.discarded > 0
    assert applied_steps < run.simulator.ledger.client_steps


def test_uploads_of_a_round_below_its_quorum_are_wasted():
    run = make(participants=4, rounds=(1,), deadline_s=0.4375, quorum=1.0)
    run.simulator.start()
    run.until(60)
    ledger = run.simulator.ledger
    rounds = [json.loads(line) for line in run.log if '"event": "round"' in line]
    assert any(not row["leases"] for row in rounds)
    assert ledger.wasted_client_steps > 0
    assert len(ledger.open) <= EDGES


def test_a_flat_asynchronous_run_without_a_wan_does_not_stand_still():
    options = {"enforce": "admit", "threshold": 0, "rounds": (1,), "flat": True}
    run = make(**options)
    run.simulator.world.links = None  # wan = "off": asking again takes no time on the way
    for edge in run.simulator.edges:
        edge.estimates = run.simulator.world.estimates(edge.edge, None)
    run.simulator.start()
    for _ in range(5000):
        run.simulator.step()
    assert run.simulator.now > 1.0
    assert run.simulator.version > 0
