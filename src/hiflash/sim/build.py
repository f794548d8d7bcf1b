"""Builds a simulation from a configuration: the state machines, and the world around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hiflash.config import Config
from hiflash.core.association.strategies import random_association
from hiflash.core.compression import Payloads, Uplink
from hiflash.core.cost import WanLink
from hiflash.core.edge import Edge, Workload
from hiflash.core.selection import Peers
from hiflash.execute.executor import Executor
from hiflash.messages import Weights
from hiflash.seeding import rng
from hiflash.sim.clusters import known_labels, send_s
from hiflash.sim.events import Log, Recall
from hiflash.sim.ledger import Ledger, Prices
from hiflash.sim.machines import (
    Exchange,
    StartModel,
    edge_aggregate,
    edge_rules,
    exchange_of,
    limits_of,
    make_cloud,
    number,
    workload_of,
)
from hiflash.sim.mobility import Mobility, MobilityRules, Paths
from hiflash.sim.phases import Phases
from hiflash.sim.plan_privacy import plan_of
from hiflash.sim.population import Population
from hiflash.sim.private import Spending
from hiflash.sim.sent_histograms import sent_histograms
from hiflash.sim.simulator import Simulator
from hiflash.sim.training import NoTraining, RealTraining, StandIn
from hiflash.sim.world import World

__all__ = ["Materials", "simulator"]


def _unheard(now: float, kind: str, row: Mapping[str, Any]) -> None:
    """Discard an event row."""


@dataclass(frozen=True)
class Materials:
    """The parts of a simulation that come from outside: executor, class recall and log.

    Without an executor nothing is trained, or `stand_in` makes the edge models. `recall` tests a model class
    by class; some methods need this.
    """

    executor: Executor | None = None
    stand_in: Callable[[int, Weights, int], Weights] | None = None
    recall: Recall | None = None
    log: Log = _unheard


def simulator(config: Config, population: Population, start: StartModel, materials: Materials) -> Simulator:
    """Return a simulation at its start."""
    spec, log = start.spec, materials.log
    by_size = {size: workload_of(config, size) for size in np.unique(population.examples).tolist()}
    workloads = [by_size[size] for size in population.examples.tolist()]
    exchange = exchange_of(config, start)
    world = _world(config, population, spec.size, exchange.payloads)
    secure = config.edge.secure != "off" and not config.federation.flat
    plan = plan_of(config, population, spec.size)
    spending = None if plan is None else Spending(plan)
    training = _training(
        materials,
        workloads,
        Uplink(exchange.upload, spec),
        private=plan is not None and plan.unit == "client",
        secure=secure,
    )
    edges = _edges(config, population, start, exchange, world, workloads, spending, trains=training.trains)
    synchronous = config.cloud.schedule == "sync"
    # Flat methods have no slots (decision 14), and a synchronous cloud starts its rounds itself.
    slotted = not (synchronous or config.federation.flat)
    prices = Prices(world.cost_unit_s, config.resources.slot_s, **config.cost.model_dump())
    cloud = make_cloud(
        config,
        start,
        exchange,
        {edge.edge: edge.examples for edge in edges},
        _peers(population, world),
        slotted=slotted,
        cost_unit_s=world.cost_unit_s,
        trains=training.trains,
        spending=spending,
    )
    return Simulator(
        cloud,
        edges,
        world,
        Ledger(
            len(edges),
            exchange.payloads,
            prices,
            flat=config.federation.flat,
            synchronous=synchronous,
            secure=config.edge.quorum if secure else None,
        ),
        training,
        slot_s=config.resources.slot_s if slotted else None,
        limits=limits_of(config),
        recall=materials.recall,
        log=log,
        spending=spending,
        histograms=sent_histograms(
            config, len(population.examples), deployed=False, mobile=population.mobile(config)
        ),
        mobility=_mobility(config, population, edges, world, log) if population.mobile(config) else None,
    )


def _edges(
    config: Config,
    population: Population,
    start: StartModel,
    exchange: Exchange,
    world: World,
    workloads: Sequence[Workload],
    spending: Spending | None,
    *,
    trains: bool,
) -> list[Edge]:
    rules = edge_rules(config, exchange.algorithm, start.trained, trains=trains)
    aggregate = edge_aggregate(config, exchange.algorithm, start.trained)
    return [
        Edge(
            index,
            cluster,
            workloads,
            rules,
            world.estimates(index, rules.clients_per_round),
            aggregate,
            None if spending is None else spending.edge(index, config.seed),
        )
        for index, cluster in enumerate(population.clusters)
    ]


def _training(
    materials: Materials, workloads: Sequence[Workload], uplink: Uplink, *, private: bool, secure: bool
) -> NoTraining:
    if materials.executor is not None:
        return RealTraining(materials.executor, workloads, uplink, private=private, secure=secure)
    return NoTraining() if materials.stand_in is None else StandIn(materials.stand_in)


def _peers(population: Population, world: World) -> Peers:
    clusters = population.clusters

    def latency_s() -> npt.NDArray[np.float64]:
        return np.array([world.latency_s(unit).max() for unit in range(len(clusters))])

    return Peers(clusters, population.labels, latency_s)


def _mobility(
    config: Config, population: Population, edges: Sequence[Edge], world: World, log: Log
) -> Mobility:
    mobility, federation, resources = config.mobility, config.federation, population.resources
    reach = None if federation.reach == "all" else min(federation.reach, federation.edges)
    hop = _hop(world.payloads, flat=federation.flat)
    paths = Paths(
        lambda: resources.all_send_s() * hop,
        lambda move: resources.moved_send_s(move) * hop,
        flat=False,
        reach=reach,
    )
    if federation.flat:
        paths = Paths(
            lambda: resources.best_send_s * hop,
            lambda move: resources.moved_send_s(move).min() * hop,
            flat=True,
            link_s=lambda client, edge: resources.link_s(client, edge) * hop,
            hop=hop,
        )
    target = None
    if federation.target_distribution == "uniform" and population.labels is not None:
        target = np.full(population.labels.shape[1], 1 / population.labels.shape[1])
    clients = len(population.examples)
    rules = MobilityRules(
        rates={"move": mobility.moves_per_s, "join": mobility.joins_per_s, "leave": mobility.leaves_per_s},
        absent=min(clients - 1, round(mobility.absent * clients)),  # at least one client is present
        repair_s=number(mobility.repair_s),
        switching_cost=mobility.switching_cost,
        heterogeneity_weight=federation.heterogeneity_weight,
        capacity=None if federation.capacity == "none" else federation.capacity,
        target=target,
        schedule=None if population.measured is None else population.measured.availability,
    )
    labels = population.labels
    known = None if labels is None else known_labels(config, labels)
    return Mobility(edges, world, paths, labels, rules, seed=config.seed, log=log, known=known)


def _world(config: Config, population: Population, values: int, payloads: Payloads) -> World:
    resources, edges = config.resources, config.federation.edges
    compute_s = population.resources.compute_s
    clusters, hop = population.edge_clusters, _hop(payloads, flat=config.federation.flat)
    slowed = np.ones(len(compute_s))
    slowed[clusters[0]] = resources.slow_edge
    return World(
        compute_s=compute_s * slowed,
        send_s=send_s(config, population.resources, clusters) * hop * slowed,
        # The cost unit is a mean lease at H = 2 under the random association, for every method. With the
        # method's own association, a faster one would pay a higher price per second.
        cost_unit_s=(
            2 * float(compute_s.sum()) / edges,
            2 * float(population.resources.usual_send_s(_usual_clusters(config, population)).sum()) / edges,
        ),
        clusters=population.clusters,
        links=_links(config, population) if config.wan.link == "on" else None,
        payloads=payloads,
        seed=config.seed,
        fluctuation=(resources.fluctuation_rho, resources.fluctuation_spread)
        if resources.fluctuation == "on"
        else None,
        phases=_phases(config, population, payloads),
    )


def _phases(config: Config, population: Population, payloads: Payloads) -> Phases | None:
    if config.edge.secure == "off" or config.federation.flat:
        return None
    hop_s = population.resources.own_hop_s(population.edge_clusters)
    return Phases(payloads.model, hop_s, config.edge.quorum)


def _usual_clusters(config: Config, population: Population) -> list[list[int]]:
    """Return the clusters of the same clients under the random association."""
    if config.federation.association == "random":
        return population.edge_clusters
    return random_association(
        config.federation.clients, config.federation.edges, rng(config.seed, "association")
    )


def _hop(payloads: Payloads, *, flat: bool) -> float:
    """Return what a client sends over its access hop, in models: a flat client sends its whole upload."""
    return (payloads.up if flat else payloads.model + payloads.lan_up) / payloads.model


def _links(config: Config, population: Population) -> list[WanLink]:
    """Return the links to the cloud; a flat client uses the measured link of the edge it reaches best."""
    wan, measured, count = config.wan, population.measured, len(population.clusters)
    stream = rng(config.seed, "wan links", "clients" if config.federation.flat else "edges")
    rtt_ms = stream.uniform(*wan.rtt_ms, count).tolist()
    mbps = stream.uniform(*wan.bandwidth_mbps, count).tolist()
    if measured is not None and not (measured.wan_rtt_ms is None and measured.wan_bandwidth_mbps is None):
        over = population.resources.best_edges() if config.federation.flat else np.arange(count)
        if measured.wan_rtt_ms is not None:
            rtt_ms = measured.wan_rtt_ms[over].tolist()
        if measured.wan_bandwidth_mbps is not None:
            mbps = measured.wan_bandwidth_mbps[over].tolist()
    links = [WanLink(rtt / 1e3, rate * 1e6 / 8, wan.jitter) for rtt, rate in zip(rtt_ms, mbps, strict=True)]
    slower = config.resources.slow_edge
    links[0] = WanLink(links[0].rtt_s * slower, links[0].bytes_per_s / slower, wan.jitter)
    return links
