"""Builds the parts of a simulation from a configuration: world, cloud, edges, ledger."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from hiflash.config import Config
from hiflash.core.aggregation import combine_clients
from hiflash.core.algorithms.algorithm import ClientAlgorithm
from hiflash.core.association.strategies import random_association
from hiflash.core.async_cloud import AsyncCloud
from hiflash.core.cloud import Cloud
from hiflash.core.compression import Downlink, Payloads, Uplink
from hiflash.core.cost import WanLink
from hiflash.core.edge import Edge, EdgeRules, Workload, taking_part
from hiflash.core.selection import Peers
from hiflash.core.sync_cloud import SyncCloud
from hiflash.errors import ConfigError
from hiflash.execute.executor import Executor
from hiflash.messages import Weights
from hiflash.methods.registry import aggregate, chosen, make, threshold_policy, with_keys
from hiflash.seeding import rng
from hiflash.sim.clusters import send_s
from hiflash.sim.events import Log, Recall
from hiflash.sim.ledger import Ledger, Prices
from hiflash.sim.mobility import Mobility, MobilityRules, Paths
from hiflash.sim.population import Population
from hiflash.sim.resources import local_steps
from hiflash.sim.simulator import Simulator
from hiflash.sim.training import NoTraining, RealTraining, StandIn
from hiflash.sim.world import World
from hiflash.weights import Spec

__all__ = ["Materials", "StartModel", "check_clusters", "simulator", "workload_of"]


def _unheard(now: float, kind: str, row: Mapping[str, Any]) -> None:
    """Discard an event row."""


@dataclass(frozen=True, eq=False)
class StartModel:
    """The initial global model, the shapes of its tensors, and the number of its trained values.

    The trained values come first. The running statistics of BatchNorm follow them.
    """

    weights: Weights
    spec: Spec
    trained: int


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
    download, upload = (chosen(config, f"wan.{way}").build(config, spec) for way in ("download", "upload"))
    algorithm: ClientAlgorithm = make("client algorithm", config)
    beside = algorithm.traffic(start.trained, flat=config.federation.flat, exact=upload is None)
    payloads = Payloads.of(4 * spec.size, download, upload, beside)
    world = _world(config, population, spec.size, payloads)
    training = _training(materials, workloads, Uplink(upload, spec))
    rules = _edge_rules(config, trains=training.trains, gathers=algorithm.gathers)
    edges = [
        Edge(
            index,
            cluster,
            workloads,
            rules,
            world.estimates(index, rules.clients_per_round),
            aggregate=partial(combine_clients, rule=algorithm.rule(aggregate(config, "edge"), start.trained)),
        )
        for index, cluster in enumerate(population.clusters)
    ]
    synchronous = config.cloud.schedule == "sync"
    # Flat methods have no slots (decision 14), and a synchronous cloud starts its rounds itself.
    slotted = not (synchronous or config.federation.flat)
    prices = Prices(world.cost_unit_s, config.resources.slot_s, **config.cost.model_dump())
    # Without training there are no models to compress. Only their sizes count.
    downlink = Downlink(download if training.trains else None)
    limits = {
        name: _number(getattr(config.stop, name)) for name in ("communications", "client_steps", "virtual_s")
    }
    return Simulator(
        _cloud(config, start, edges, slotted, population, world, downlink, algorithm, trains=training.trains),
        edges,
        world,
        Ledger(len(edges), payloads, prices, flat=config.federation.flat, synchronous=synchronous),
        training,
        slot_s=config.resources.slot_s if slotted else None,
        limits={name: limit for name, limit in limits.items() if limit is not None},
        recall=materials.recall,
        log=log,
        mobility=_mobility(config, population, edges, world, log) if _mobile(config, population) else None,
    )


def _training(materials: Materials, workloads: Sequence[Workload], uplink: Uplink) -> NoTraining:
    if materials.executor is not None:
        return RealTraining(materials.executor, workloads, uplink)
    return NoTraining() if materials.stand_in is None else StandIn(materials.stand_in)


def workload_of(config: Config, examples: int) -> Workload:
    """Return the workload of a client with this many samples."""
    settings = config.client
    steps = local_steps(config, examples)
    return Workload(examples, steps, settings.lr, settings.lr_decay, settings.lr_decay_steps)


def check_clusters(config: Config, clusters: Sequence[Sequence[int]]) -> None:
    """Raise if an edge has too few clients for its aggregation rule."""
    least, wanted = aggregate(config, "edge").least, _number(config.edge.clients_per_round)
    for edge, cluster in enumerate(clusters):
        if taking_part(wanted, len(cluster)) < least:
            which = "has" if len(cluster) < least else f"draws edge.clients_per_round = {wanted} of its"
            raise ConfigError(
                f"{with_keys(config, 'edge.aggregate')} needs {least} clients, and edge {edge} {which} "
                f"{len(cluster)}; use fewer edges, smaller numbers or another rule"
            )


def _cloud(
    config: Config,
    start: StartModel,
    edges: Sequence[Edge],
    slotted: bool,
    population: Population,
    world: World,
    download: Downlink,
    algorithm: ClientAlgorithm,
    *,
    trains: bool,
) -> Cloud:
    cloud, seed = config.cloud, config.seed
    examples = {edge.edge: edge.examples for edge in edges}
    norm_bound = _number(cloud.norm_bound) or math.inf
    # Without training clients have no states.
    side = algorithm.cloud(start.trained, config.federation.clients) if trains else None
    if cloud.schedule == "sync":
        return SyncCloud(
            start.weights,
            examples,
            selection=make("selection", config, _peers(population, world)),
            deadline_s=_number(cloud.deadline_s) or math.inf,
            quorum=cloud.quorum,
            rule=algorithm.rule(aggregate(config, "cloud"), start.trained),
            optimizer=make("optimizer", config, start.trained),
            norm_bound=norm_bound,
            download=download,
            side=side,
        )
    return AsyncCloud(
        start.weights,
        examples,
        mixing=make("mixing", config, start.trained),
        policy=threshold_policy(config),
        seed=seed,
        enforce=cloud.enforce,
        slot_s=config.resources.slot_s,
        slotted=slotted,
        concurrency=_number(cloud.concurrency) or math.inf,
        cost_unit_s=world.cost_unit_s,
        norm_bound=norm_bound,
        download=download,
        side=side,
    )


def _peers(population: Population, world: World) -> Peers:
    clusters = population.clusters

    def latency_s() -> npt.NDArray[np.float64]:
        return np.array([world.latency_s(unit).max() for unit in range(len(clusters))])

    return Peers(clusters, population.labels, latency_s)


def _edge_rules(config: Config, *, trains: bool, gathers: str) -> EdgeRules:
    edge = config.edge
    return EdgeRules(
        edge_rounds=edge.edge_rounds,
        seed=config.seed,
        redraw=edge.redraw,
        clients_per_round=_number(edge.clients_per_round),
        deadline_s=_number(edge.deadline_s) or math.inf,
        quorum=edge.quorum,
        least=aggregate(config, "edge").least,
        asks_between_rounds=config.cloud.schedule == "async" and config.cloud.enforce == "cancel",
        trains=trains,
        gathers=gathers,
    )


def _mobile(config: Config, population: Population) -> bool:
    """Return whether any client moves, joins, leaves or is absent, or repairs are due."""
    measured = population.measured
    return config.mobility.active or (measured is not None and measured.availability is not None)


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
        repair_s=_number(mobility.repair_s),
        switching_cost=mobility.switching_cost,
        heterogeneity_weight=federation.heterogeneity_weight,
        capacity=None if federation.capacity == "none" else federation.capacity,
        target=target,
        schedule=None if population.measured is None else population.measured.availability,
    )
    return Mobility(edges, world, paths, population.labels, rules, seed=config.seed, log=log)


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
    )


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


def _number(value: float | str) -> float | None:
    return None if isinstance(value, str) else value
