"""From plain values to the parts of a simulation: world, cloud, edges, ledger."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hiflash.config import Config
from hiflash.core.aggregation import Delta, Interpolate, Mixing
from hiflash.core.asynchronous import AsyncCloud
from hiflash.core.cloud import Cloud
from hiflash.core.compression import Codec, Downlink, Payloads, Uplink, make_codec
from hiflash.core.cost import WanLink, compute_seconds, send_seconds
from hiflash.core.edge import ClientPlan, Edge
from hiflash.core.staleness import FixedThreshold, RandomThreshold, ThresholdPolicy
from hiflash.core.synchronous import SyncCloud
from hiflash.engine.executor import Executor, promise
from hiflash.engine.ledger import Ledger
from hiflash.engine.simulator import Simulator
from hiflash.engine.world import World
from hiflash.messages import Weights
from hiflash.population import Population
from hiflash.seeding import rng
from hiflash.weights import Spec

__all__ = ["client_plan", "simulator"]

Log = Callable[[float, str, Mapping[str, Any]], None]


def simulator(
    config: Config,
    population: Population,
    initial: Weights,
    spec: Spec,
    executor: Executor | None,
    log: Log,
) -> Simulator:
    """Return a simulation at its start, of models of this shape; no executor trains nothing."""
    plans = {examples: client_plan(config, examples) for examples in np.unique(population.examples).tolist()}
    of_clients = [plans[examples] for examples in population.examples.tolist()]
    download, upload = (
        make_codec(name, spec, config.wan.topk) for name in (config.wan.download, config.wan.upload)
    )
    payloads = Payloads.of(4 * spec.size, download, upload)
    world = _world(config, population, of_clients, spec.size, payloads)
    trains = executor is not None
    if not trains:  # there are no models to compress: only their sizes count
        download = upload = None
    edges = [_edge(config, index, world, cluster, of_clients, trains)
             for index, cluster in enumerate(population.clusters)]  # fmt: skip
    synchronous = config.cloud.schedule == "sync"
    # Flat methods have no slots (decision 14), and a synchronous cloud starts its rounds itself.
    slotted = not (synchronous or config.federation.flat)
    ledger = Ledger(
        edges=len(edges),
        flat=config.federation.flat,
        synchronous=synchronous,
        model_bytes=world.model_bytes,
        cost_unit_s=world.cost_unit_s,
        slot_s=config.resources.slot_s,
        compute_weight=config.cost.compute_weight,
        send_weight=config.cost.send_weight,
        payloads=payloads,
    )
    limits = {
        "communications": _number(config.stop.communications),
        "client_steps": _number(config.stop.client_steps),
        "virtual_s": _number(config.stop.virtual_s),
    }
    return Simulator(
        _cloud(config, initial, edges, slotted, download),
        edges,
        world,
        ledger,
        executor,
        slot_s=config.resources.slot_s if slotted else None,
        limits=limits,
        log=log,
        uplink=Uplink(upload, spec),
    )


def client_plan(config: Config, examples: int) -> ClientPlan:
    """Return what a client with so many samples is asked for."""
    settings = config.client
    steps = settings.local_steps
    if settings.local_epochs != "none":
        steps = settings.local_epochs * math.ceil(examples / settings.batch)
    return ClientPlan(examples, steps, settings.lr, settings.lr_decay, settings.lr_decay_steps)


def _cloud(
    config: Config, initial: Weights, edges: Sequence[Edge], slotted: bool, download: Codec | None
) -> Cloud:
    cloud, seed = config.cloud, config.seed
    examples = {edge.edge: edge.examples for edge in edges}
    norm_bound = _number(cloud.norm_bound) or math.inf
    if cloud.schedule == "sync":
        return SyncCloud(
            initial,
            examples,
            participants=cloud.participants,
            seed=seed,
            deadline_s=_number(cloud.deadline_s) or math.inf,
            quorum=cloud.quorum,
            norm_bound=norm_bound,
            download=Downlink(download),
        )
    mixing: Mixing = Interpolate(cloud.alpha, cloud.penalty)
    if cloud.mixing == "delta":
        mixing = Delta(cloud.alpha, cloud.penalty, cloud.momentum)
    policy: ThresholdPolicy
    if cloud.threshold == "random":
        policy = RandomThreshold(cloud.threshold_max, seed)
    else:
        policy = FixedThreshold(math.inf if cloud.threshold == "inf" else cloud.threshold)
    return AsyncCloud(
        initial,
        examples,
        mixing=mixing,
        policy=policy,
        seed=seed,
        enforce=cloud.enforce,
        slot_s=config.resources.slot_s,
        slotted=slotted,
        norm_bound=norm_bound,
        download=Downlink(download),
    )


def _edge(
    config: Config,
    index: int,
    world: World,
    cluster: Sequence[int],
    plans: Sequence[ClientPlan],
    trains: bool,
) -> Edge:
    edge = config.edge
    per_round = None if edge.clients_per_round == "all" else edge.clients_per_round
    return Edge(
        index,
        {client: plans[client] for client in cluster},
        edge_rounds=edge.edge_rounds,
        redraw=edge.redraw,
        clients_per_round=per_round,
        estimates=world.estimates(index, per_round),
        aggregate=promise,
        seed=config.seed,
        deadline_s=_number(edge.deadline_s) or math.inf,
        quorum=edge.quorum,
        asks_between_rounds=config.cloud.schedule == "async" and config.cloud.enforce == "cancel",
        trains=trains,
    )


def _world(
    config: Config,
    population: Population,
    plans: Sequence[ClientPlan],
    values: int,
    payloads: Payloads,
) -> World:
    resources, seed = config.resources, config.seed
    clients, edges = config.federation.clients, config.federation.edges
    low, high = resources.f_ghz
    compute_s = compute_seconds(
        np.array([plan.steps for plan in plans], dtype=np.float64),
        np.minimum(config.client.batch, population.examples) * float(population.features * 8),
        np.full(clients, resources.cycles_per_bit),
        1e9 * rng(seed, "f").uniform(low, high, clients),
    )
    low, high = resources.bandwidth_mhz
    to_own_edge_hz = np.empty(clients)
    to_best_edge_hz = np.zeros(clients)
    for edge, cluster in enumerate(population.edge_clusters):  # one edge at a time: never all pairs at once
        to_edge_hz = 1e6 * rng(seed, "bandwidth", edge).uniform(low, high, clients)
        to_own_edge_hz[cluster] = to_edge_hz[cluster]
        np.maximum(to_best_edge_hz, to_edge_hz, out=to_best_edge_hz)
    to_own_edge_s = send_seconds(values, to_own_edge_hz, resources.snr_db)
    # What a flat client sends to the cloud is what passes its access hop.
    to_best_edge_s = send_seconds(payloads.up / 4, to_best_edge_hz, resources.snr_db)
    return World(
        compute_s=compute_s,
        # A flat client uses the access hop of its best edge.
        send_s=to_best_edge_s if config.federation.flat else to_own_edge_s,
        # The unit of cost is the mean edge at H = 2, for flat methods too: so they can be compared.
        cost_unit_s=(2 * float(compute_s.sum()) / edges, 2 * float(to_own_edge_s.sum()) / edges),
        clusters=population.clusters,
        links=_links(config, len(population.clusters)) if config.wan.link == "on" else None,
        model_bytes=4 * values,
        payloads=payloads,
        seed=seed,
        fluctuation=(resources.fluctuation_rho, resources.fluctuation_spread)
        if resources.fluctuation == "on"
        else None,
    )


def _links(config: Config, count: int) -> list[WanLink]:
    wan = config.wan
    stream = rng(config.seed, "wan links", "clients" if config.federation.flat else "edges")
    rtt_ms = stream.uniform(*wan.rtt_ms, count).tolist()
    mbps = stream.uniform(*wan.bandwidth_mbps, count).tolist()
    return [WanLink(rtt / 1e3, rate * 1e6 / 8, wan.jitter) for rtt, rate in zip(rtt_ms, mbps, strict=True)]


def _number(value: float | str) -> float | None:
    return None if isinstance(value, str) else value
