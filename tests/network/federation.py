"""A whole federation on the simulated network: the shipped service and agents, scripted training."""

import asyncio
import copy
import math
from dataclasses import dataclass, field, replace
from functools import partial
from unittest.mock import patch

import numpy as np

from hiflash.core.aggregation import combine_clients
from hiflash.core.algorithms.algorithm import ClientAlgorithm
from hiflash.core.algorithms.scaffold import Scaffold
from hiflash.core.async_cloud import AsyncCloud
from hiflash.core.compression import Downlink, Half, Payloads, TopK
from hiflash.core.edge import Edge, EdgeRules, Workload
from hiflash.core.mixing import Buffer, Delta, Interpolate
from hiflash.core.selection import UniformSelection
from hiflash.core.sync_cloud import SyncCloud
from hiflash.core.thresholds.fixed import FixedThreshold
from hiflash.core.thresholds.random import RandomThreshold
from hiflash.core.weighting import Exponential
from hiflash.execute.executor import RoundRules, client_share, client_task
from hiflash.messages import ClientTask
from hiflash.privacy.randomness import SeededRandomness
from hiflash.privacy.sums.edge import Opened
from hiflash.privacy.sums.fixed_point import FixedPoint
from hiflash.privacy.sums.messages import threshold
from hiflash.privacy.sums.signing import SeededSigner, SeededVerifier
from hiflash.seeding import rng
from hiflash.serve import edge_sums
from hiflash.serve import wire_pb2 as pb
from hiflash.serve.books import Books
from hiflash.serve.calls import Peer
from hiflash.serve.client import ClientAgent, ClientTerms, Job, Worked
from hiflash.serve.client_sums import ClientSums
from hiflash.serve.cloud import CloudService, Terms
from hiflash.serve.cluster import Cluster, EdgeTerms
from hiflash.serve.edge import EdgeAgent
from hiflash.serve.edge_sums import EdgeSums, sum_outcome
from hiflash.serve.journal import Row
from hiflash.serve.kernel import replay
from hiflash.serve.live import LiveCloud
from hiflash.serve.memory import Memory, Own
from hiflash.serve.models import CloudModels, EdgeModels
from hiflash.serve.patience import Patience
from hiflash.serve.ways import Inside, PlacedByCloud
from hiflash.serve.wire import Wire
from hiflash.sim.ledger import Ledger, Prices
from hiflash.sim.record import Goals, Record
from hiflash.train.task import TaskResult
from hiflash.weights import Spec, digest
from network.loop import run_virtually
from network.net import Faults, Network, Process

SIZE = 4
BOUND = 8.0
SPEC = Spec((("w", (SIZE,)),))
EXAMPLES = 10
WORKLOAD = Workload(EXAMPLES, 3, 0.1, 1.0, 100)
DIGESTS = ("config", "spec")
ENDS_S = 3_000.0


@dataclass(frozen=True)
class Plan:
    """One schedule: what is run, and what goes wrong."""

    seed: int
    edges: int = 2
    clients: int = 2
    communications: int = 12
    schedule: str = "async"
    enforce: str = "admit"
    threshold: str = "random"
    mixing: str = "interpolate"
    algorithm: str = "sgd"
    flat: bool = False
    codecs: str = "none"
    lease_s: float = 20.0
    faults: Faults = field(default_factory=Faults)
    cloud_kills: int = 0
    edge_kills: int = 0
    client_kills: int = 0
    snapshot_rows: int = 7
    secure: bool = False
    slow_sums: bool = False  # what goes to a thread takes a while, and calls are answered meanwhile

    @classmethod
    def drawn_secure(cls, seed: int) -> "Plan":
        """Return a drawn plan whose edges open secure sums."""
        plan = cls.drawn(seed)
        return replace(
            plan,
            secure=True,
            slow_sums=seed % 4 < 2,
            clients=3 + seed % 3,
            edges=1 + seed % 2,
            algorithm="sgd",
            flat=False,
        )

    @classmethod
    def drawn(cls, seed: int) -> "Plan":
        """Return a plan with everything drawn, faults included."""
        stream = rng(seed, "plan")
        pick = lambda *options: options[int(stream.integers(len(options)))]  # noqa: E731
        return cls(
            seed=seed,
            edges=pick(1, 2, 3),
            clients=pick(1, 2),
            schedule=pick("async", "async", "sync"),
            enforce=pick("admit", "discard", "cancel"),
            threshold=pick("random", "0", "1", "inf"),
            mixing=pick("interpolate", "delta", "buffer"),
            algorithm=pick("sgd", "scaffold"),
            flat=pick(False, False, True),
            codecs=pick("none", "none", "fp16", "topk"),
            lease_s=pick(3.0, 20.0),
            faults=Faults(
                lost=pick(0.0, 0.05, 0.2),
                doubled=pick(0.0, 0.2, 0.5),
                cut=pick(0.0, 0.1),
                slow=pick(0.0, 0.2),
            ),
            cloud_kills=pick(0, 1, 4),
            edge_kills=pick(0, 0, 2),
            client_kills=pick(0, 0, 2),
            snapshot_rows=pick(3, 7, 1_000),
        )


class MemoryStore:
    """A disk in memory: a commit is there, or it is not; a crash may come before or after it is."""

    def __init__(self, stream: np.random.Generator) -> None:
        self.stream = stream
        self.rows: list[Row] = []
        self.state = None

    async def commit(self, rows) -> None:
        await asyncio.sleep(float(self.stream.uniform(0.0, 0.01)))
        self.rows += rows
        await asyncio.sleep(float(self.stream.uniform(0.0, 0.01)))

    async def save(self, state) -> None:
        kept = copy.deepcopy(state)  # what is written is what was then
        await asyncio.sleep(float(self.stream.uniform(0.0, 0.01)))
        self.state = kept
        await asyncio.sleep(float(self.stream.uniform(0.0, 0.01)))

    def after_snapshot(self) -> list[Row]:
        number = 0 if self.state is None else self.state["number"]
        return [row for row in self.rows if row.number > number]


class Kept:
    """A client's memory, on a disk in memory."""

    def __init__(self) -> None:
        self.memory: Memory | None = None

    def load(self) -> Memory | None:
        return self.memory

    def save(self, memory: Memory) -> None:
        self.memory = memory


class Scripted:
    """Tests of models: plain numbers that depend on the model alone."""

    def __init__(self, stream: np.random.Generator) -> None:
        self.stream = stream

    async def evaluate(self, weights):
        await asyncio.sleep(float(self.stream.uniform(0.0, 0.3)))
        return (min(0.8, abs(float(weights[0])) / 100), float(weights.sum()))

    async def recall(self, weights):
        return None


class World:
    """All processes of one plan."""

    def __init__(self, plan: Plan, service=CloudService) -> None:
        self.plan, self.service = plan, service
        self.stream = rng(plan.seed, "network")
        self.net = Network(self.stream, plan.faults)
        self.store = MemoryStore(self.stream)
        algorithm = Scaffold() if plan.algorithm == "scaffold" else ClientAlgorithm()
        self.rules = RoundRules(algorithm=algorithm, trained=SIZE)
        self.codec = {"none": None, "fp16": Half(SIZE), "topk": TopK(SIZE, 0.5)}[plan.codecs]
        self.wire = Wire(SIZE, SIZE, plan.clients if plan.secure else 0)
        self.verifier = SeededVerifier(plan.seed)
        self.clusters_seen: list[Cluster] = []  # of all edges, also of those that were killed
        self.clusters = [
            list(range(edge * plan.clients, (edge + 1) * plan.clients)) for edge in range(plan.edges)
        ]
        if plan.flat:
            self.clusters = [[client] for client in range(plan.edges * plan.clients)]
        self.memories = {client: Kept() for cluster in self.clusters for client in cluster}
        self.cloud_now: CloudService | None = None
        self.events: list[tuple] = []
        self.took_s = 0.0  # cloud time at the end

    def live(self) -> LiveCloud:
        """Return the cloud at its start."""
        plan = self.plan
        weights = np.zeros(SIZE, np.float32)
        examples = {edge: EXAMPLES * len(cluster) for edge, cluster in enumerate(self.clusters)}
        common = {
            "download": Downlink(self.codec),
            "side": self.rules.algorithm.cloud(SIZE, len(self.memories)),
        }
        if plan.schedule == "sync":
            selection = UniformSelection(len(self.clusters), plan.seed)
            cloud = SyncCloud(weights, examples, selection=selection, quorum=0.5, **common)
        else:
            fixed = plan.threshold != "random"
            cloud = AsyncCloud(
                weights,
                examples,
                mixing={
                    "interpolate": lambda: Interpolate(0.7, Exponential(0.99)),
                    "delta": lambda: Delta(1.0, Exponential(0.99), 0.5),
                    "buffer": lambda: Buffer(1.0, Exponential(0.99), 2),
                }[plan.mixing](),
                policy=FixedThreshold(float(plan.threshold)) if fixed else RandomThreshold(3, plan.seed),
                seed=plan.seed,
                enforce=plan.enforce,
                slot_s=0.1,
                slotted=False,
                **common,
            )
        payloads = Payloads.of(4 * SIZE, None, None)
        ledger = Ledger(
            len(self.clusters),
            payloads,
            Prices((1.0, 1.0), 0.05),
            flat=False,
            synchronous=plan.schedule == "sync",
            secure=0.5 if plan.secure else None,
        )
        log = lambda now, kind, row: self.events.append((now, kind, row))  # noqa: E731
        return LiveCloud(
            cloud,
            Books(ledger, log),
            self.wire,
            CloudModels(SPEC, self.codec, self.codec),
            limits={"communications": plan.communications},
            clusters=self.clusters,
            record=Record(Goals(5, 0.9)),
            most_rounds=2,
            most_steps=3,
        )

    async def start_cloud(self, process: Process) -> None:
        self.events.clear()
        terms = Terms(
            *DIGESTS,
            lease_s=self.plan.lease_s,
            start_edges=len(self.clusters),
            start_s=30.0,
            flat=self.plan.flat,
            snapshot_rows=self.plan.snapshot_rows,
            rate=1e6,
            burst=1e6,
        )
        service = self.service(self.live(), self.wire, terms, self.store, Scripted(self.stream))
        service.kernel.resume(copy.deepcopy(self.store.state), self.store.after_snapshot())
        self.cloud_now = process.service = service
        await service.run()

    async def start_edge(self, edge: int, process: Process) -> None:
        terms = EdgeTerms(
            edge, *DIGESTS, address=f"edge-{edge}:1", client_s=4.0, start_s=5.0, rate=1e6, burst=1e6
        )
        if self.plan.secure:
            terms = replace(terms, least=3, sums=EdgeSums("net", BOUND, self.verifier))
        agent = EdgeAgent(
            terms,
            self.wire,
            EdgeModels(SPEC, self.codec, self.codec),
            self.net.caller(Peer("edge", edge), "cloud"),
            partial(self._edge, edge),
            Patience(self.stream, timeout_s=2.0),
        )
        process.service = agent.cluster
        self.clusters_seen.append(agent.cluster)
        await agent.run()

    def _edge(self, number: int, members, estimates) -> Edge:
        rules = EdgeRules(
            (1, 2),
            self.plan.seed,
            deadline_s=8.0,
            quorum=0.5,
            asks_between_rounds=self.plan.schedule == "async" and self.plan.enforce == "cancel",
            least=3 if self.plan.secure else 1,
            opens=threshold if self.plan.secure else None,
        )
        workloads = dict.fromkeys(self.clusters[number], WORKLOAD)
        return Edge(number, sorted(members), workloads, rules, estimates, combine_clients)

    async def start_flat(self, client: int, process: Process) -> None:
        """Run a client without an edge, as `hiflash client` does it."""
        peer, patience = Peer("client", client), Patience(self.stream, timeout_s=2.0)
        cloud = self.net.caller(peer, "cloud")
        edge = EdgeAgent(
            EdgeTerms(client, *DIGESTS, client_s=1e9, start_s=5.0, rate=1e9, burst=1e9),
            self.wire,
            EdgeModels(SPEC, self.codec, self.codec),
            cloud,
            partial(self._edge, client),
            Patience(self.stream, timeout_s=2.0),
        )
        way = Inside(client, edge.cluster, PlacedByCloud(client, self.wire, cloud, lambda *_: None, patience))
        terms = ClientTerms(client, *DIGESTS, examples=EXAMPLES, compute_s=0.05)
        agent = ClientAgent(terms, self.wire, way, self._work, self.memories[client], patience)
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(agent.run())
            await edge.run()
            serving.cancel()

    async def start_client(self, client: int, process: Process) -> None:
        terms = ClientTerms(client, *DIGESTS, examples=EXAMPLES, compute_s=0.05)
        if self.plan.secure:
            terms = replace(terms, workload=WORKLOAD, seed=self.plan.seed)
            source = SeededRandomness(self.plan.seed, "keys", client, process.starts)
            signer = SeededSigner(self.plan.seed, client)
            terms = replace(terms, sums=ClientSums("net", BOUND, signer, self.verifier, source))
        peer = Peer("client", client)
        patience = Patience(self.stream, timeout_s=2.0)
        way = PlacedByCloud(
            client,
            self.wire,
            self.net.caller(peer, "cloud"),
            lambda edge, address: self.net.caller(peer, address),
            patience,
        )
        agent = ClientAgent(terms, self.wire, way, self._work, self.memories[client], patience)
        await agent.run()

    async def _work(self, job: Job, own: Own) -> Worked:
        await asyncio.sleep(float(self.stream.uniform(0.01, 0.2)))
        task = client_task(self.rules, job.work, job.model, own.kept, own.state, job.extra)
        share = client_share(self.rules, task, TaskResult(scripted(task), 0.5), job.model)
        kept = own if share.state is None else Own(own.kept, share.state)
        return Worked(share.weights, 0.5, 0.05, kept, share.steps, share.extra)

    async def beside(self, work):
        """Do what a thread would do; the loop learns of it later."""
        await asyncio.sleep(float(self.stream.uniform(0.0, 0.05)))
        made = work()
        await asyncio.sleep(float(self.stream.uniform(0.0, 0.05)))
        return made

    async def run(self) -> None:
        """Run to the end; faults stop after a while, so that the run must end."""
        net = self.net
        net.processes["cloud"] = Process("cloud", self.start_cloud)
        for client in self.memories if self.plan.flat else ():
            net.processes[f"client {client}"] = Process(f"client {client}", partial(self.start_flat, client))
        for edge, cluster in () if self.plan.flat else enumerate(self.clusters):
            net.processes[f"edge-{edge}:1"] = Process(f"edge-{edge}:1", partial(self.start_edge, edge))
            for client in cluster:
                net.processes[f"client {client}"] = Process(
                    f"client {client}", partial(self.start_client, client)
                )
        for process in net.processes.values():
            process.boot()
        faults = asyncio.get_running_loop().create_task(self._break_things())
        while asyncio.get_running_loop().time() < ENDS_S:
            await asyncio.sleep(0.5)
            for process in net.processes.values():
                if process.failure is not None:
                    raise process.failure
            if faults.done() and self.cloud_now is not None and self.cloud_now.complete.is_set():
                faults.result()
                self.took_s = self.cloud_now.live.now
                return
        raise AssertionError(f"the run of {self.plan} did not end")

    async def _break_things(self) -> None:
        plan, stream = self.plan, self.stream
        kills = [("cloud", n) for n in range(plan.cloud_kills)]
        kills += [("edge", n) for n in range(plan.edge_kills)]
        kills += [("client", n) for n in range(plan.client_kills)]
        for kind, _ in kills:
            await asyncio.sleep(float(stream.exponential(1.5)))
            names = [name for name in self.net.processes if name.startswith(kind)] or ["cloud"]
            process = self.net.processes[names[int(stream.integers(len(names)))]]
            process.kill()
            await asyncio.sleep(float(stream.exponential(0.5)))
            process.boot()
        await asyncio.sleep(5.0)
        self.net.honest = True


def scripted(task: ClientTask) -> np.ndarray:
    """Return what training makes of a model: plain numbers that depend on the task alone."""
    pull = np.float32((task.client * 7 + task.first_step) % 11 - 5)
    return task.weights + np.float32(0.1) * (pull - task.weights)


@dataclass(frozen=True)
class Outcome:
    """What a schedule led to."""

    digest: str
    version: int
    communications: int
    trace: tuple
    rows: int
    took_s: float


def run_plan(plan: Plan, service=CloudService) -> Outcome:
    """Run a plan, check everything that must hold, and return the outcome."""
    world = World(plan, service)
    at_once = -1 if plan.slow_sums else edge_sums.AT_ONCE
    with (
        patch("hiflash.serve.cluster.sum_outcome", checked_outcome),
        patch("hiflash.serve.edge_sums.AT_ONCE", at_once),
        patch("hiflash.serve.edge_sums.beside", world.beside),
    ):
        run_virtually(world.run())
    check(world)
    live = world.cloud_now.live
    return Outcome(
        digest(live.weights),
        live.version,
        live.ledger.communications,
        tuple(world.net.trace),
        len(world.store.rows),
        world.took_s,
    )


def checked_outcome(summing, opened, *rest):
    """Check that an opened sum is that of its clients' vectors, to the bit, and return its outcome."""
    if isinstance(summing.outcome, Opened):
        form, total = FixedPoint.of(summing.terms), np.zeros(SIZE + 2, np.uint32)
        for work in opened.work:
            if work.client in summing.outcome.clients:
                task = ClientTask(*work[:4], opened.model, work.seed)
                change = scripted(task).astype(np.float64) - opened.model
                total += form.encode(change, EXAMPLES)
        assert summing.machine._total.tolist() == total.tolist(), "a wrong sum was opened"
    return sum_outcome(summing, opened, *rest)


def check(world: World) -> None:
    """Raise if an acknowledged answer, the journal and the model do not fit together."""
    live = world.cloud_now.live
    told = replayed_verdicts(world)
    again = world.live()
    replay(again, world.store.rows)
    assert digest(again.weights) == digest(live.weights), "the journal gives another model"
    assert again.version == live.version
    assert math.isfinite(float(live.weights.sum()))
    if world.plan.algorithm == "scaffold":
        check_states(world)
    if world.plan.secure:
        assert live.ledger.secured["rounds"] > live.ledger.secured["abandoned"], "no sum was opened"
        for cluster in world.clusters_seen:
            assert not cluster.refused["invalid"], "an honest client was refused"
    assert [row["version"] for row in live.record.evaluations], "nothing was evaluated"
    first: dict[tuple[str, int], tuple] = {}
    for caller, method, body in world.net.answers:
        if method not in ("CheckIn", "Upload", "Progress", "Abandon"):
            continue
        answer = pb.Answer.FromString(body)
        if not answer.HasField("verdict"):
            continue
        verdict = answer.verdict
        said = (verdict.status, verdict.staleness, verdict.version, verdict.reason)
        key = (caller, verdict.lease_id)
        assert first.setdefault(key, said) == said, f"{key} was told {first[key]} and {said}"
        kept = told.get(verdict.lease_id)  # no edge here makes a lease up: every one has its verdict
        assert kept == said, f"acknowledged {key}: {said}, kept {kept}"


def check_states(world: World) -> None:
    """Raise unless the cloud's c is the mean of the states that its clients hold, whatever got lost."""
    live = world.cloud_now.live
    held = np.zeros(SIZE)
    for client, kept in world.memories.items():
        memory = kept.memory or Memory()
        last = (memory.lease_id, memory.round)
        own = memory.at_start((-1, 0), live.books.outcomes.of(client, last))
        held += own.state.get("c_i", np.zeros(SIZE))
    np.testing.assert_allclose(live.cloud.side.mean, held / len(world.memories), atol=1e-4)


def replayed_verdicts(world: World) -> dict[int, tuple]:
    """Return the verdict of every lease by the journal, and check thresholds and single application."""
    live = world.live()
    verdicts: dict[int, tuple] = {}
    thresholds: dict[int, float] = {}
    applied = 0
    for row in world.store.rows:
        known = set(live.cloud.verdicts)
        live.apply(row.input, row.now)
        for lease_id, lease in live.cloud.leases.items():
            thresholds[lease_id] = lease.threshold
        for lease_id in set(live.cloud.verdicts) - known:
            verdict = live.cloud.verdicts[lease_id]
            assert lease_id not in verdicts
            verdicts[lease_id] = (verdict.status, verdict.staleness, verdict.version, verdict.reason)
            if verdict.status == "applied":
                applied += 1
                assert 0 <= verdict.staleness <= thresholds[lease_id]
    if world.plan.schedule == "async":
        assert applied == live.version
    return verdicts
