"""The state machines of a federation from its configuration, for the simulator and for a deployment."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from hiflash.config import Config
from hiflash.core.aggregation import combine_clients
from hiflash.core.algorithms.algorithm import ClientAlgorithm, CloudSide
from hiflash.core.async_cloud import AsyncCloud
from hiflash.core.cloud import Cloud
from hiflash.core.compression import Codec, Downlink, Payloads
from hiflash.core.edge import Aggregate, EdgeRules, Workload, taking_part
from hiflash.core.selection import Peers, PrivateSelection, Selection
from hiflash.core.sync_cloud import SyncCloud
from hiflash.errors import ConfigError
from hiflash.messages import Weights
from hiflash.methods.registry import aggregate, chosen, make, threshold_policy, with_keys
from hiflash.privacy.randomness import SeededRandomness
from hiflash.privacy.sums.messages import LEAST_CLIENTS, MOST_CLIENTS, MOST_OF_A_CLIENT, threshold
from hiflash.sim.private import Spending, joining
from hiflash.sim.resources import local_steps
from hiflash.weights import Spec

__all__ = [
    "Exchange",
    "StartModel",
    "check_clusters",
    "edge_aggregate",
    "edge_rules",
    "exchange_of",
    "least_clients",
    "limits_of",
    "make_cloud",
    "number",
    "workload_of",
]


@dataclass(frozen=True, eq=False)
class StartModel:
    """The initial global model, the shapes of its tensors, and the number of its trained values.

    The trained values come first. The running statistics of BatchNorm follow them.
    """

    weights: Weights
    spec: Spec
    trained: int


@dataclass(frozen=True, eq=False)
class Exchange:
    """What travels between the tiers: codecs of the WAN, the clients' algorithm, and the bytes of both."""

    download: Codec | None
    upload: Codec | None
    algorithm: ClientAlgorithm
    payloads: Payloads


def exchange_of(config: Config, start: StartModel) -> Exchange:
    """Return what the tiers of a federation exchange."""
    download, upload = (
        chosen(config, f"wan.{way}").build(config, start.spec) for way in ("download", "upload")
    )
    algorithm: ClientAlgorithm = make("client algorithm", config)
    beside = algorithm.traffic(start.trained, flat=config.federation.flat, exact=upload is None)
    payloads = Payloads.of(4 * start.spec.size, download, upload, beside)
    return Exchange(download, upload, algorithm, payloads)


def make_cloud(
    config: Config,
    start: StartModel,
    exchange: Exchange,
    examples: Mapping[int, int],
    peers: Peers,
    *,
    slotted: bool,
    cost_unit_s: tuple[float, float],
    trains: bool = True,
    spending: Spending | None = None,
) -> Cloud:
    """Return the cloud at its start; `examples` are the declared samples of every edge.

    With `spending` the cloud of a flat synchronous method adds up its clients privately, if it trains.
    """
    cloud, algorithm = config.cloud, exchange.algorithm
    norm_bound = number(cloud.norm_bound) or math.inf
    # Without training there are no models to compress, and clients have no states. Only sizes count.
    downlink = Downlink(exchange.download if trains else None)
    side = algorithm.cloud(start.trained, config.federation.clients) if trains else None
    if cloud.schedule == "sync":
        return SyncCloud(
            start.weights,
            examples,
            selection=_selection(config, peers, spending),
            deadline_s=number(cloud.deadline_s) or math.inf,
            quorum=cloud.quorum,
            rule=algorithm.rule(aggregate(config, "cloud"), start.trained),
            optimizer=make("optimizer", config, start.trained),
            combine=None if spending is None or not trains else spending.plan.cloud_sum(_randomness(config)),
            norm_bound=norm_bound,
            download=downlink,
            side=side,
        )
    return AsyncCloud(
        start.weights,
        examples,
        mixing=make("mixing", config, start.trained),
        policy=threshold_policy(config),
        seed=config.seed,
        enforce=cloud.enforce,
        slot_s=config.resources.slot_s,
        slotted=slotted,
        concurrency=number(cloud.concurrency) or math.inf,
        cost_unit_s=cost_unit_s,
        norm_bound=norm_bound,
        download=downlink,
        side=side,
    )


def edge_rules(config: Config, algorithm: ClientAlgorithm, trained: int, *, trains: bool = True) -> EdgeRules:
    """Return how the edges of a federation run their rounds."""
    edge, secure = config.edge, config.edge.secure != "off"
    side = algorithm.cloud(trained, config.federation.clients) if trains else None
    return EdgeRules(
        edge_rounds=edge.edge_rounds,
        seed=config.seed,
        redraw=edge.redraw,
        clients_per_round=number(edge.clients_per_round),
        deadline_s=number(edge.deadline_s) or math.inf,
        quorum=edge.quorum,
        least=least_clients(config),
        asks_between_rounds=config.cloud.schedule == "async" and config.cloud.enforce == "cancel",
        trains=trains,
        gathers=algorithm.gathers,
        usable=(side or CloudSide()).usable,
        opens=threshold if secure else None,
    )


def least_clients(config: Config) -> int:
    """Return the smallest number of clients that an edge round can make a model of."""
    secure = config.edge.secure != "off" and not config.federation.flat
    return max(aggregate(config, "edge").least, LEAST_CLIENTS if secure else 1)


def edge_aggregate(config: Config, algorithm: ClientAlgorithm, trained: int) -> Aggregate:
    """Return how an edge makes one model of its clients' models."""
    return partial(combine_clients, rule=algorithm.rule(aggregate(config, "edge"), trained))


def workload_of(config: Config, examples: int) -> Workload:
    """Return the workload of a client with this many samples."""
    settings = config.client
    steps = local_steps(config, examples)
    return Workload(examples, steps, settings.lr, settings.lr_decay, settings.lr_decay_steps)


def _selection(config: Config, peers: Peers, spending: Spending | None) -> Selection:
    """Return how a synchronous cloud chooses; a flat one that adds up its clients looks at their budgets."""
    inner: Selection = make("selection", config, peers)
    if spending is None or not spending.plan.at_cloud:
        return inner
    plan, draw = spending.plan, None
    if plan.sampling < 1:
        joins = joining(plan.sampling, _randomness(config), 0)
        draw = partial(joins, 0)
    return PrivateSelection(inner, partial(plan.left, spending.ledger), draw)


def _randomness(config: Config) -> SeededRandomness:
    return SeededRandomness(config.seed)


def limits_of(config: Config) -> dict[str, float]:
    """Return the budgets of a run by name."""
    limits = {
        name: number(getattr(config.stop, name)) for name in ("communications", "client_steps", "virtual_s")
    }
    return {name: limit for name, limit in limits.items() if limit is not None}


def check_samples(config: Config, examples: Iterable[int]) -> None:
    """Raise if a client has more samples than a secure sum can count."""
    most = max(examples, default=0)
    if config.edge.secure != "off" and most > MOST_OF_A_CLIENT:
        raise ConfigError(
            f'edge.secure = "secagg" counts at most {MOST_OF_A_CLIENT} samples of a client, and one has '
            f"{most}; use more clients"
        )


def check_clusters(config: Config, clusters: Sequence[Sequence[int]]) -> None:
    """Raise if an edge has too few clients for its aggregation rule, or too many for a secure sum."""
    least, wanted = least_clients(config), number(config.edge.clients_per_round)
    for edge, cluster in enumerate(clusters):
        if config.edge.secure != "off" and taking_part(wanted, len(cluster)) > MOST_CLIENTS:
            raise ConfigError(
                f'edge.secure = "secagg" adds up at most {MOST_CLIENTS} clients in an edge round, and edge '
                f"{edge} has {len(cluster)}; use more edges, another association, or "
                f"edge.clients_per_round = {MOST_CLIENTS} or less"
            )
        if taking_part(wanted, len(cluster)) < least:
            which = "has" if len(cluster) < least else f"draws edge.clients_per_round = {wanted} of its"
            what, way_out = with_keys(config, "edge.aggregate"), "smaller numbers or another rule"
            if least > aggregate(config, "edge").least:
                what, way_out = 'edge.secure = "secagg"', "another association or more clients in a round"
            raise ConfigError(
                f"{what} needs {least} clients, and edge {edge} {which} {len(cluster)}; use fewer edges, "
                f"{way_out}"
            )


def number(value: float | str) -> float | None:
    """Return a setting that may be a word, such as "none", as a number or None."""
    return None if isinstance(value, str) else value
