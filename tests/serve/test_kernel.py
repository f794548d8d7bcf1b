"""The kernel: nothing is acknowledged before it is durable, and a cloud goes on from any instant."""

import asyncio
import copy
import json
import math

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hiflash.core.async_cloud import AsyncCloud
from hiflash.core.compression import Payloads
from hiflash.core.mixing import Interpolate
from hiflash.core.thresholds.fixed import FixedThreshold
from hiflash.core.weighting import Exponential
from hiflash.errors import ProtocolError, StorageError
from hiflash.messages import Abandon, CheckIn, EdgeCosts, Grant, Progress, Upload, Verdict
from hiflash.serve.books import Books
from hiflash.serve.journal import START, Input, chained
from hiflash.serve.kernel import Kernel, replay
from hiflash.serve.live import CLOUD, Finished, LiveCloud
from hiflash.serve.models import CloudModels, model_bytes
from hiflash.serve.wire import Asking, Malformed, Wire
from hiflash.sim.ledger import Ledger, Prices
from hiflash.sim.record import Goals, Record
from hiflash.weights import Spec, digest

SIZE, EDGES = 3, 3
COSTS = EdgeCosts(1.0, 1.0, 0.1, 0.1, 0.1)
WIRE = Wire(SIZE)


def make_live(threshold: float = 1.0, enforce: str = "discard", limit: float = 1e9) -> LiveCloud:
    cloud = AsyncCloud(
        np.zeros(SIZE, np.float32),
        dict.fromkeys(range(EDGES), 10),
        mixing=Interpolate(0.5, Exponential(1.0)),
        policy=FixedThreshold(threshold),
        seed=0,
        enforce=enforce,
        slot_s=0.1,
        slotted=False,
    )
    payloads = Payloads.of(4 * SIZE, None, None)
    ledger = Ledger(EDGES, payloads, Prices((1.0, 1.0), 0.05), flat=False, synchronous=False)
    return LiveCloud(
        cloud,
        Books(ledger, lambda now, kind, row: None),
        WIRE,
        CloudModels(Spec((("w", (SIZE,)),))),
        limits={"communications": limit},
        clusters=[[edge] for edge in range(EDGES)],
        record=Record(Goals(4, None)),
    )


def ask(edge: int, request: int) -> Input:
    return Input("check_in", edge, WIRE.ask(CheckIn(edge, request, COSTS, 0.0), Asking(1), 0.0))


def upload(edge: int, lease: int, value: float, next_request: int | None = None, examples: int = 5) -> Input:
    again = None if next_request is None else CheckIn(edge, next_request, COSTS, 0.0)
    last = Upload(edge, lease, np.zeros(SIZE, np.float32), examples, again, 0.0)
    body = WIRE.work(last, model_bytes(np.full(SIZE, value, np.float32)), [], Asking(1))
    return Input("upload", edge, body)


EDGE = st.integers(0, EDGES - 1)


class Journalled(RuleBasedStateMachine):
    """Edges that lose answers, repeat, lie and die; a cloud that dies anywhere and goes on from its disk."""

    @initialize(
        threshold=st.sampled_from([0.0, 1.0, math.inf]), enforce=st.sampled_from(["discard", "cancel"])
    )
    def begin(self, threshold, enforce):
        self.settings = (threshold, enforce)
        self.live = make_live(*self.settings)
        self.rows, self.snapshot, self.time = [], None, 0.0
        self.requests = dict.fromkeys(range(EDGES), 0)
        self.leases: dict[int, int] = {}
        self.spent: list[tuple[int, int, float]] = []
        self.verdicts: dict[tuple[int, int], tuple] = {}
        self.apply(Input("start", CLOUD, json.dumps([0.1, 1.0, 1.0]).encode()))

    def apply(self, given: Input):
        self.time += 0.25
        chain = self.rows[-1].chain if self.rows else START
        before = (digest(self.live.weights), self.live.version)
        try:
            effects = self.live.apply(given, self.time)
        except (Malformed, ProtocolError, Finished):
            assert (digest(self.live.weights), self.live.version) == before
            return []
        self.rows.append(chained(chain, len(self.rows) + 1, self.time, given))
        for effect in effects:
            if isinstance(effect, Grant):
                self.leases[effect.edge] = effect.lease_id
            # One may ask for a lease that comes later: "no such lease" is no verdict on it.
            if isinstance(effect, Verdict) and effect.reason != "no such lease":
                said = (effect.status, effect.staleness, effect.version, effect.reason)
                assert self.verdicts.setdefault((effect.edge, effect.lease_id), said) == said
        return effects

    @rule(edge=EDGE)
    def checks_in(self, edge):
        self.requests[edge] += 1
        self.apply(ask(edge, self.requests[edge]))

    @rule(edge=EDGE)
    def repeats_its_check_in(self, edge):
        if self.requests[edge]:
            self.apply(ask(edge, self.requests[edge]))

    @rule(edge=EDGE, value=st.sampled_from([0.5, -2.0, math.nan, 1e30]), again=st.booleans())
    def uploads(self, edge, value, again):
        if edge in self.leases:
            lease = self.leases[edge]
            self.requests[edge] += again
            self.apply(upload(edge, lease, value, self.requests[edge] if again else None))
            self.spent.append((edge, lease, value))

    @precondition(lambda self: self.spent)
    @rule(place=st.integers(0, 10**6))
    def repeats_an_upload(self, place):
        edge, lease, value = self.spent[place % len(self.spent)]
        version, known = self.live.version, (edge, lease) in self.verdicts
        self.apply(upload(edge, lease, value))
        assert not known or self.live.version == version

    @rule(edge=EDGE, lease=st.integers(0, 30), examples=st.sampled_from([0, 5, 11, 2**50]))
    def lies(self, edge, lease, examples):
        """Claim a lease that may be another edge's, or samples that nobody has."""
        honest = self.leases.get(edge) == lease
        version, open_before = self.live.version, set(self.live.cloud.leases)
        self.apply(upload(edge, lease, 1.0, examples=examples))
        if not honest:
            assert self.live.version == version
            assert set(self.live.cloud.leases) == open_before

    @rule(edge=EDGE, kind=st.sampled_from(["progress", "abandon"]))
    def asks_or_gives_up(self, edge, kind):
        lease = self.leases.get(edge, 0)
        last = Progress(edge, lease, 0.0) if kind == "progress" else Abandon(edge, lease, None, 0.0)
        self.apply(Input(kind, edge, WIRE.lease(last, [], Asking(1))))

    @rule(lease=st.integers(1, 30))
    def expires(self, lease):
        self.apply(Input("expire", CLOUD, str(lease).encode()))

    @rule(edge=EDGE)
    def restarts(self, edge):
        self.apply(Input("hello", edge, b""))

    @rule(kind=st.sampled_from(["upload", "check_in", "abandon", "odd"]), body=st.binary(max_size=40))
    def rubbish(self, kind, body):
        self.apply(Input(kind, 0, body))

    @precondition(lambda self: self.live.wanted)
    @rule()
    def is_tested(self):
        index = next(iter(self.live.wanted))
        told = {"index": index, "values": [0.5, 1.0]}
        for _ in range(2):  # a restarted cloud may ask twice
            self.apply(Input("evaluated", CLOUD, json.dumps(told).encode()))

    @rule()
    def saves(self):
        self.snapshot = (len(self.rows), self.live.snapshot())

    @rule()
    def dies_and_goes_on(self):
        expected = (digest(self.live.weights), self.live.version, self.live.ledger.snapshot())
        self.live = make_live(*self.settings)
        after = 0
        if self.snapshot is not None:
            after = self.snapshot[0]
            self.live.restore(copy.deepcopy(self.snapshot[1]))  # as if read from a disk
        replay(self.live, self.rows[after:])
        assert (digest(self.live.weights), self.live.version, self.live.ledger.snapshot()) == expected

    @invariant()
    def holds(self):
        if not hasattr(self, "live"):
            return
        applied = [said for said in self.verdicts.values() if said[0] == "applied"]
        assert self.live.version == len(applied)
        assert all(0 <= said[1] <= self.settings[0] for said in applied)
        assert np.isfinite(self.live.weights).all()
        assert sum(self.live.ledger.applied) == self.live.version


TestJournalled = Journalled.TestCase
TestJournalled.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


class Disk:
    """A store that notes what it is asked to keep, and may fail."""

    def __init__(self, fails_at: int = 10**9, slow_s: float = 0.0) -> None:
        self.commits: list[int] = []
        self.durable = 0
        self.fails_at = fails_at
        self.slow_s = slow_s
        self.saved = 0

    async def commit(self, rows) -> None:
        await asyncio.sleep(self.slow_s)
        if len(self.commits) + 1 >= self.fails_at:
            raise StorageError("the disk is full")
        self.commits.append(len(rows))
        self.durable = rows[-1].number

    async def save(self, state) -> None:
        self.saved = state["number"]


async def started(disk: Disk, **more) -> tuple[Kernel, asyncio.Task]:
    kernel = Kernel(make_live(math.inf), disk, lambda effects: None, snapshot_rows=more.get("rows", 1_000))
    kernel.begin()
    running = asyncio.create_task(kernel.run())
    await kernel.enqueue(Input("start", CLOUD, json.dumps([0.1, 1.0, 1.0]).encode()))
    return kernel, running


def test_inputs_that_come_during_a_commit_share_the_next_one():
    async def main():
        disk = Disk(slow_s=0.01)
        kernel, running = await started(disk)
        first = kernel.enqueue(ask(0, 1))
        await asyncio.sleep(0.002)  # its commit is under way
        others = [kernel.enqueue(ask(edge, 1)) for edge in (1, 2)]
        await asyncio.gather(first, *others)
        running.cancel()
        assert disk.commits == [1, 1, 2]

    asyncio.run(main())


def test_an_answer_waits_until_its_input_is_durable_and_so_does_an_error():
    async def main():
        disk = Disk(slow_s=0.005)
        kernel, running = await started(disk)
        (grant,) = await kernel.enqueue(ask(0, 1))
        assert disk.durable == kernel.number == 2
        body = WIRE.work(Upload(0, grant.lease_id, np.zeros(3), 5, None, 0.0), b"short", [], Asking(1))
        with pytest.raises(Malformed):
            await kernel.enqueue(Input("upload", 0, body))
        assert kernel.number == 2  # it left no row
        done = kernel.enqueue(upload(0, grant.lease_id, 1.0))
        barrier = kernel.enqueue(None)
        await barrier
        assert done.done()
        assert disk.durable == 3
        running.cancel()

    asyncio.run(main())


def test_a_failed_commit_ends_the_kernel_and_acknowledges_nothing():
    async def main():
        disk = Disk(fails_at=2)
        kernel, running = await started(disk)
        asked, waiting = kernel.enqueue(ask(0, 1)), None
        with pytest.raises(StorageError):
            await running
        waiting = kernel.enqueue(ask(1, 1))
        assert not asked.done() or asked.exception() is not None
        await asyncio.sleep(0)
        assert not waiting.done()
        assert disk.durable == 1

    asyncio.run(main())


def test_a_snapshot_is_saved_after_so_many_rows():
    async def main():
        disk = Disk()
        kernel, running = await started(disk, rows=3)
        for request in range(1, 8):
            await kernel.enqueue(ask(0, request))
        running.cancel()
        assert disk.saved == 6

    asyncio.run(main())
