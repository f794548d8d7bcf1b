"""Assembles the nodes of a deployed federation from its configuration."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from hiflash.config import Config
from hiflash.core.edge import Edge, Workload
from hiflash.core.selection import Peers
from hiflash.errors import ConfigError
from hiflash.messages import Estimates
from hiflash.privacy.sums.fixed_point import ceiling
from hiflash.privacy.sums.messages import MOST_CLIENTS
from hiflash.seeding import rng
from hiflash.serve.books import Books
from hiflash.serve.calls import Caller
from hiflash.serve.charges import EdgeCharges
from hiflash.serve.client import ClientAgent, ClientTerms, Way
from hiflash.serve.client_sums import ClientSums
from hiflash.serve.cloud import CloudService, Terms
from hiflash.serve.cluster import EdgeTerms, Member
from hiflash.serve.deployable import check_clients_hidden, check_deployable
from hiflash.serve.edge import EdgeAgent
from hiflash.serve.edge_sums import EdgeSums
from hiflash.serve.kernel import Store
from hiflash.serve.live import LiveCloud
from hiflash.serve.memory import Memories
from hiflash.serve.models import CloudModels, EdgeModels
from hiflash.serve.patience import Patience
from hiflash.serve.training import LocalTests, LocalTraining
from hiflash.serve.wire import Wire, spec_digest
from hiflash.sim.clusters import send_s
from hiflash.sim.events import Log
from hiflash.sim.federation import Federation, build
from hiflash.sim.ledger import Ledger, Prices
from hiflash.sim.machines import (
    Exchange,
    edge_aggregate,
    edge_rules,
    exchange_of,
    least_clients,
    limits_of,
    make_cloud,
    workload_of,
)
from hiflash.sim.outcome import edges_of, goals_of
from hiflash.sim.plan_privacy import plan_of
from hiflash.sim.private import PrivacyPlan
from hiflash.sim.record import Record
from hiflash.sim.sent_histograms import sent_histograms

__all__ = ["Deployment", "deploy"]

UNLIMITED = 1e12  # calls within a process


def deploy(config: Config) -> Deployment:
    """Return the deployment of a configuration; it raises if that can only be simulated."""
    check_deployable(config)
    config = config.with_settings({"workers": 1})  # each node computes one thing at a time
    own = config.serve.data == "own"
    federation = build(config, elsewhere=own)
    check_clients_hidden(config, federation.population.edge_clusters)
    return Deployment(federation)


@dataclass(frozen=True)
class Deployment:
    """A federation whose nodes run in processes of their own. Every node makes it from the same file."""

    federation: Federation

    @property
    def config(self) -> Config:
        """Return the configuration."""
        return self.federation.config

    @cached_property
    def exchange(self) -> Exchange:
        """Return what travels between the tiers."""
        return exchange_of(self.config, self.federation.start)

    @cached_property
    def wire(self) -> Wire:
        """Return the format of calls."""
        payloads, model = self.exchange.payloads, self.exchange.payloads.model
        beside = max(payloads.first_down, payloads.down, payloads.up, model + payloads.lan_down)
        most = max(beside, model + payloads.lan_up) - model
        # A state may travel although a simulation need not count it: the cloud could work it out.
        state = self.federation.start.trained if self.exchange.algorithm.keeps else 0
        clients = min(self.config.federation.clients, MOST_CLIENTS) if self.secure else 0
        return Wire(self.federation.start.spec.size, max(0, most // 4, state), clients)

    @property
    def secure(self) -> bool:
        """Return whether edge rounds end in secure sums."""
        return self.config.edge.secure != "off"

    @cached_property
    def digests(self) -> tuple[str, str]:
        """Return the digests that all nodes compare: of the configuration and of the model."""
        return self.config.digest(), spec_digest(self.federation.start.spec)

    @cached_property
    def plan(self) -> PrivacyPlan | None:
        """Return what the federation does for privacy, None for nothing."""
        return plan_of(
            self.config, self.federation.population, self.federation.start.spec.size, deployed=True
        )

    @property
    def declared(self) -> dict[int, int]:
        """Return the samples that every client declares, as far as the configuration knows them."""
        measured = self.federation.population.measured
        if self.config.serve.data == "own" and (measured is None or measured.held is None):
            return {}
        return {
            client: self.declares(held) for client, held in enumerate(self.federation.population.examples)
        }

    @property
    def most_declared(self) -> int:
        """Return the most samples that a client may declare."""
        return max(self.declared.values(), default=self.declares(self.config.serve.client_examples))

    def declares(self, examples: int) -> int:
        """Return the samples that a client declares: under secure sums it tells no more than their size."""
        return ceiling(int(examples)) if self.secure else int(examples)

    def live(self, log: Log) -> LiveCloud:
        """Return the cloud at its start."""
        config, federation, exchange = self.config, self.federation, self.exchange
        population, start = federation.population, federation.start
        declared, most = self.declared, self.declares(config.serve.client_examples)
        examples = {
            unit: sum(declared.get(client, most) for client in cluster)
            for unit, cluster in enumerate(population.clusters)
        }
        synchronous = config.cloud.schedule == "sync"
        unit_s, slot_s = (1.0, 1.0), config.resources.slot_s  # until the edges have said what they need
        prices = Prices(unit_s, slot_s, **config.cost.model_dump())
        flat = config.federation.flat
        secure = config.edge.quorum if self.secure else None
        ledger = Ledger(
            len(examples), exchange.payloads, prices, flat=flat, synchronous=synchronous, secure=secure
        )
        live = LiveCloud(
            make_cloud(config, start, exchange, examples, self._peers(), slotted=False, cost_unit_s=unit_s),
            Books(ledger, log),
            self.wire,
            CloudModels(start.spec, exchange.download, exchange.upload),
            limits=limits_of(config),
            clusters=population.clusters,
            record=Record(goals_of(federation)),
            most_examples=None if declared else max(examples.values()),
            most_rounds=max(config.edge.edge_rounds),
            plan=self.plan,
            histograms=sent_histograms(config, len(population.examples), deployed=True),
            most_steps=workload_of(config, max(declared.values(), default=most)).steps,
        )
        live.opening = edges_of(federation, live)
        return live

    def cloud(self, live: LiveCloud, store: Store) -> CloudService:
        """Return the service of the cloud."""
        serve = self.config.serve
        units = self.config.units
        terms = Terms(
            *self.digests,
            lease_s=serve.lease_s,
            start_edges=units if serve.start_edges == "all" else min(serve.start_edges, units),
            start_s=serve.start_s,
            flat=self.config.federation.flat,
            snapshot_rows=serve.snapshot_rows,
            rate=serve.rate,
            burst=serve.burst,
            run=secrets.token_hex(8),
        )
        return CloudService(live, self.wire, terms, store, LocalTests(self.federation))

    def edge(
        self,
        number: int,
        cloud: Caller,
        address: str = "",
        charges: EdgeCharges | None = None,
        sums: EdgeSums | None = None,
    ) -> EdgeAgent:
        """Return the agent of an edge, or of a flat method's client, which is an edge with itself in it."""
        self._check_sums(sums)
        serve, flat = self.config.serve, self.config.federation.flat
        terms = EdgeTerms(
            number,
            *self.digests,
            address=address,
            # A client in the same process cannot be silent.
            client_s=math.inf if flat else serve.client_s,
            start_s=serve.start_s,
            beat_s=_beat_s(serve.lease_s),
            rate=UNLIMITED if flat else serve.rate,
            burst=UNLIMITED if flat else serve.burst,
            declared=self.declared,
            most_examples=self.declares(serve.client_examples),
            least=self._least,
            sums=sums,
        )
        spec = self.federation.start.spec
        models = EdgeModels(spec, self.exchange.download, self.exchange.upload)
        make_edge = partial(self._make_edge, number, charges)
        return EdgeAgent(terms, self.wire, models, cloud, make_edge, self.patience("edge", number), charges)

    def client(
        self,
        number: int,
        examples: int,
        training: LocalTraining,
        way: Way,
        memories: Memories,
        sums: ClientSums | None = None,
    ) -> ClientAgent:
        """Return the agent of a client, which first measures how long a task takes it."""
        self._check_sums(sums)
        terms = ClientTerms(
            number,
            *self.digests,
            examples=examples,
            compute_s=training.measure(number, examples),
            beat_s=_beat_s(self.config.serve.client_s),
            declares=self.declares(examples),
            sums=sums,
            workload=workload_of(self.config, self.declares(examples)),
            seed=self.config.seed,
        )
        return ClientAgent(terms, self.wire, way, training, memories, self.patience("client", number))

    @property
    def _least(self) -> int:
        """Return how many clients an edge model must be of: one alone would be at rest in the journal."""
        return max(least_clients(self.config), 1 if self.config.serve.keep_client_updates else 2)

    def _check_sums(self, sums: EdgeSums | ClientSums | None) -> None:
        if self.secure and sums is None:
            raise ConfigError(
                'edge.secure = "secagg" needs certificates: clients sign their keys, and check those of the '
                "others; give --certs DIR (hiflash certs)"
            )

    def patience(self, role: str, number: int) -> Patience:
        """Return how a node repeats its calls. Its pauses need not repeat: they decide no result."""
        return Patience(rng(self.config.seed, "pauses", role, number))

    def _make_edge(
        self, number: int, charges: EdgeCharges | None, members: Mapping[int, Member], estimates: Estimates
    ) -> Edge:
        algorithm, trained = self.exchange.algorithm, self.federation.start.trained
        rules = edge_rules(self.config, algorithm, trained)
        if charges is None:
            rules = replace(rules, least=max(rules.least, self._least))
        if rules.deadline_s == math.inf:
            rules = replace(rules, deadline_s=self.config.serve.round_s)
        workloads = _Workloads(self.config, members)
        aggregate = edge_aggregate(self.config, algorithm, trained) if charges is None else charges
        privacy = None if charges is None else charges.privacy
        return Edge(number, sorted(members), workloads, rules, estimates, aggregate, privacy)

    def _peers(self) -> Peers:
        """Return the peers of a synchronous cloud; their latencies are those of the configuration."""
        population = self.federation.population
        resources = population.resources

        def latency_s() -> np.ndarray:
            seconds = resources.compute_s + send_s(self.config, resources, population.edge_clusters)
            return np.array([seconds[cluster].max() for cluster in population.clusters])

        return Peers(population.clusters, population.labels, latency_s)


@dataclass
class _Workloads:
    """The workloads of an edge's clients, by the samples that they declared; a client may have left."""

    config: Config
    members: Mapping[int, Member]
    known: dict[int, Workload] = field(default_factory=dict)

    def __getitem__(self, client: int, /) -> Workload:
        member, known = self.members.get(client), self.known.get(client)
        if member is not None and (known is None or known.examples != member.examples):
            known = self.known[client] = workload_of(self.config, member.examples)
        if known is None:
            raise KeyError(client)
        return known


def _beat_s(silence_s: float) -> float:
    """Return how often a node says that it is alive: four times before it counts as silent."""
    return min(2.0, silence_s / 4)
