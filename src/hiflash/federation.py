"""From a configuration and data to the parts of a run: clusters, world, cloud, edges, trainer."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hiflash.config import Config
from hiflash.core.aggregation import Delta, Interpolate, Mixing
from hiflash.core.association import js_per_edge, random_association
from hiflash.core.asynchronous import AsyncCloud
from hiflash.core.cloud import Cloud
from hiflash.core.cost import WanLink, compute_seconds, send_seconds
from hiflash.core.edge import ClientPlan, Edge
from hiflash.core.staleness import FixedThreshold, RandomThreshold, ThresholdPolicy
from hiflash.core.synchronous import SyncCloud
from hiflash.data import Dataset, Partition, label_counts, load, own_parts, partition
from hiflash.engine.centralized import Centralized
from hiflash.engine.executor import promise
from hiflash.engine.ledger import Ledger
from hiflash.engine.pool import WorkerPool
from hiflash.engine.session import Engine
from hiflash.engine.simulator import Simulator
from hiflash.engine.world import World
from hiflash.errors import ConfigError
from hiflash.messages import Weights
from hiflash.seeding import rng
from hiflash.weights import Spec

if TYPE_CHECKING:
    from torch import nn

    from hiflash.engine.ray_executor import RayExecutor
    from hiflash.learn.trainer import Samples

__all__ = ["Federation", "build"]

Log = Callable[[float, str, Mapping[str, Any]], None]

AUTO_MODEL = {"mnist5k": "lenet", "mnist": "lenet", "femnist": "femnist_cnn", "cifar10": "resnet"}


@dataclass(frozen=True)
class Federation:
    """Everything of a run that does not change while it runs, and the pool that trains."""

    config: Config
    data: Dataset
    split: Partition
    clusters: list[list[int]]
    edge_clusters: list[list[int]]
    model_name: str
    initial: Weights
    spec: Spec
    parameters: int
    pool: WorkerPool | RayExecutor

    def engine(self, log: Log) -> Engine:
        """Return the engine that this configuration asks for, at its start."""
        if self.config.cloud.schedule == "centralized":
            return Centralized(
                self.initial,
                self._plan(0),
                self.pool,
                steps=self.config.stop.steps,
                seed=self.config.seed,
                log=log,
            )
        return self._simulator(log)

    def js_per_edge(self) -> list[float]:
        """Return how far each edge's label distribution is from the global one."""
        if self.config.cloud.schedule == "centralized":
            return []
        counts = label_counts(self.data.y, self.split.parts, self.data.classes)
        return js_per_edge(counts, self.clusters)

    def _simulator(self, log: Log) -> Simulator:
        config = self.config
        world = self._world()
        edges = [self._edge(index, world) for index in range(len(self.clusters))]
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
        )
        limits = {
            "communications": _number(config.stop.communications),
            "client_steps": _number(config.stop.client_steps),
            "virtual_s": _number(config.stop.virtual_s),
        }
        return Simulator(
            self._cloud(edges, slotted),
            edges,
            world,
            ledger,
            self.pool,
            slot_s=config.resources.slot_s if slotted else None,
            limits=limits,
            log=log,
        )

    def _cloud(self, edges: Sequence[Edge], slotted: bool) -> Cloud:
        cloud, seed = self.config.cloud, self.config.seed
        examples = {edge.edge: edge.examples for edge in edges}
        norm_bound = _number(cloud.norm_bound) or math.inf
        if cloud.schedule == "sync":
            return SyncCloud(
                self.initial,
                examples,
                participants=cloud.participants,
                seed=seed,
                deadline_s=_number(cloud.deadline_s) or math.inf,
                quorum=cloud.quorum,
                norm_bound=norm_bound,
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
            self.initial,
            examples,
            mixing=mixing,
            policy=policy,
            seed=seed,
            enforce=cloud.enforce,
            slot_s=self.config.resources.slot_s,
            slotted=slotted,
            norm_bound=norm_bound,
        )

    def _edge(self, index: int, world: World) -> Edge:
        config, edge = self.config, self.config.edge
        per_round = None if edge.clients_per_round == "all" else edge.clients_per_round
        return Edge(
            index,
            {client: self._plan(client) for client in self.clusters[index]},
            edge_rounds=edge.edge_rounds,
            redraw=edge.redraw,
            clients_per_round=per_round,
            estimates=world.estimates(index, per_round),
            aggregate=promise,
            seed=config.seed,
            deadline_s=_number(edge.deadline_s) or math.inf,
            quorum=edge.quorum,
            asks_between_rounds=config.cloud.schedule == "async" and config.cloud.enforce == "cancel",
        )

    def _plan(self, client: int) -> ClientPlan:
        settings, examples = self.config.client, len(self.split.parts[client])
        steps = settings.local_steps
        if settings.local_epochs != "none":
            steps = settings.local_epochs * math.ceil(examples / settings.batch)
        return ClientPlan(examples, steps, settings.lr, settings.lr_decay, settings.lr_decay_steps)

    def _world(self) -> World:
        config, resources, wan = self.config, self.config.resources, self.config.wan
        clients, edges, seed = config.federation.clients, config.federation.edges, config.seed
        plans = [self._plan(client) for client in range(clients)]
        batches = np.array([min(config.client.batch, plan.examples) for plan in plans], dtype=np.float64)
        low, high = resources.f_ghz
        compute_s = compute_seconds(
            np.array([plan.steps for plan in plans], dtype=np.float64),
            batches * math.prod(self.data.x.shape[1:]) * 8,
            np.full(clients, resources.cycles_per_bit),
            1e9 * rng(seed, "f").uniform(low, high, clients),
        )
        low, high = resources.bandwidth_mhz
        bandwidth_hz = 1e6 * rng(seed, "bandwidth").uniform(low, high, (edges, clients))
        send_s = send_seconds(self.spec.size, bandwidth_hz, resources.snr_db)
        of_clusters_s = np.empty(clients)
        for edge, cluster in enumerate(self.edge_clusters):
            of_clusters_s[cluster] = send_s[edge, cluster]
        stream = rng(seed, "wan links", "clients" if config.federation.flat else "edges")
        links = [
            WanLink(rtt_ms / 1e3, mbps * 1e6 / 8, wan.jitter)
            for rtt_ms, mbps in zip(
                stream.uniform(*wan.rtt_ms, len(self.clusters)).tolist(),
                stream.uniform(*wan.bandwidth_mbps, len(self.clusters)).tolist(),
                strict=True,
            )
        ]
        return World(
            compute_s=compute_s,
            # A flat client uses the access hop of its best edge.
            send_s=send_s.min(axis=0) if config.federation.flat else of_clusters_s,
            # The unit of cost is the mean edge at H = 2, for flat methods too: so they can be compared.
            cost_unit_s=(2 * float(compute_s.sum()) / edges, 2 * float(of_clusters_s.sum()) / edges),
            clusters=self.clusters,
            links=links if wan.link == "on" else None,
            model_bytes=4 * self.spec.size,
            seed=seed,
            fluctuation=(resources.fluctuation_rho, resources.fluctuation_spread)
            if resources.fluctuation == "on"
            else None,
        )


def build(
    config: Config,
    data: Dataset | None = None,
    model: nn.Module | Callable[[], nn.Module] | None = None,
    parts: Sequence[Any] | None = None,
) -> Federation:
    """Return the federation of a configuration; `data`, `model` and `parts` are a user's own."""
    if config.data.name == "own" and data is None:
        raise ConfigError("data.name is own: pass the data in Python, hiflash.run(..., data=...)")
    dataset = data if data is not None else load(config.data.name, config.data.dir or None)
    clients = config.federation.clients
    if config.cloud.schedule == "centralized":
        split = Partition([np.arange(len(dataset.y))], 0.0, "pooled")
    elif parts is not None:
        if len(parts) != clients:
            raise ConfigError(
                f"parts has {len(parts)} clients, federation.clients is {clients}; make them equal"
            )
        split = own_parts(parts, len(dataset.y))
    else:
        stream = rng(config.seed, "partition")
        split = partition(
            config.data.partition,
            dataset.y,
            clients,
            stream,
            classes=dataset.classes,
            writers=dataset.writers,
        )
    edge_clusters = random_association(clients, config.federation.edges, rng(config.seed, "association"))
    flat = config.federation.flat or config.cloud.schedule == "centralized"
    clusters = [[client] for client in range(len(split.parts))] if flat else edge_clusters
    return _with_model(config, dataset, split, clusters, edge_clusters, model)


def _with_model(
    config: Config,
    data: Dataset,
    split: Partition,
    clusters: list[list[int]],
    edge_clusters: list[list[int]],
    model: nn.Module | Callable[[], nn.Module] | None,
) -> Federation:
    import torch

    from hiflash.learn.models import build_model, initial_weights
    from hiflash.learn.trainer import Samples, resolve_device

    shape = tuple(data.x.shape[1:])
    name: str = config.model.name if model is None else "own"
    if name == "auto":
        name = AUTO_MODEL.get(data.name, "lenet")
    if name == "own" and model is None:
        raise ConfigError("model.name is own: pass the model in Python, hiflash.run(..., model=...)")
    # Nothing of this holds the data: Ray sends it to other processes.
    make = partial(build_model, name, shape, data.classes) if model is None else partial(_own_model, model)
    if data.x.ndim != 4 and config.data.augment:
        raise ConfigError(f"data.augment needs images, and these samples have shape {shape}; leave it out")
    initial, spec, trainable = initial_weights(make, config.seed)
    device = resolve_device(_device(config))
    x, x_test = (torch.from_numpy(array).to(device) for array in data.normalised())
    y, y_test = (torch.from_numpy(array).to(device) for array in (data.y, data.y_test))
    samples = Samples(x, y, split.parts, x_test, y_test)
    pool = _pool(config, make, samples)
    return Federation(config, data, split, clusters, edge_clusters, name, initial, spec, trainable, pool)


def _own_model(model: nn.Module | Callable[[], nn.Module]) -> nn.Module:
    """Return another instance of a user's own model."""
    from torch import nn

    return copy.deepcopy(model) if isinstance(model, nn.Module) else model()


def _pool(config: Config, make: Callable[[], nn.Module], samples: Samples) -> WorkerPool | RayExecutor:
    """Return the workers of the engine that the configuration asks for."""
    from hiflash.learn.choose import choose_trainer

    solver, workers = _solver(config), config.workers or os.cpu_count() or 1
    make_trainer = choose_trainer(config.trainer, make, samples, solver)
    if config.engine == "local":
        return WorkerPool(make_trainer, workers, len(samples.y_test))
    from hiflash.engine.ray_cluster import connect
    from hiflash.engine.ray_executor import RayExecutor
    from hiflash.engine.ray_worker import Setup

    x, y, x_test, y_test = (
        tensor.numpy() for tensor in (samples.x, samples.y, samples.x_test, samples.y_test)
    )
    setup = Setup(make_trainer().name, make, solver, x, y, samples.parts, x_test, y_test)
    return RayExecutor(setup, connect(config.ray.address, workers))


def _device(config: Config) -> str:
    """Return the device to train on. Ray's workers use their processors."""
    if config.engine == "local":
        return config.device
    if config.device not in ("auto", "cpu"):
        raise ConfigError(f'engine ray trains on processors, not on device {config.device}; use "cpu"')
    return "cpu"


def _solver(config: Config) -> dict[str, Any]:
    client = config.client
    return {
        "batch": client.batch,
        "mu": client.mu,
        "momentum": client.momentum,
        "weight_decay": client.weight_decay,
        "augment": config.data.augment,
    }


def _number(value: float | str) -> float | None:
    return None if isinstance(value, str) else value
