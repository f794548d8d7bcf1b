"""Random histories of both clouds, checked against a model that only counts."""

import copy
import dataclasses
import heapq
import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hiflash.core.async_cloud import AsyncCloud
from hiflash.core.mixing import Buffer, Delta, Interpolate, TierWeighting
from hiflash.core.selection import UniformSelection
from hiflash.core.sync_cloud import SyncCloud
from hiflash.core.thresholds.fixed import FixedThreshold
from hiflash.core.thresholds.random import RandomThreshold
from hiflash.core.weighting import Exponential, Polynomial
from hiflash.messages import (
    Abandon,
    Cancel,
    CheckIn,
    EdgeCosts,
    Expire,
    Expired,
    Grant,
    Progress,
    RoundApplied,
    Slot,
    Upload,
    Verdict,
)
from hiflash.seeding import rng

EDGES = 4
DECLARED = 10
edges = st.integers(0, EDGES - 1)
durations = st.sampled_from([1.0, 3.0, 4.5, 10.0])
payloads = st.sampled_from(["good", "good", "good", "nan", "inf", "huge", "shape", "dtype", "examples"])


def plain(value):
    """Return a value that can be compared: arrays by their bytes, messages by their fields."""
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if dataclasses.is_dataclass(value):
        return (type(value).__name__, *(plain(getattr(value, f.name)) for f in dataclasses.fields(value)))
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


class CloudMachine(RuleBasedStateMachine):
    """Sends anything at any time; the model knows only grants, ends of leases and first verdicts."""

    def start(self, make, synchronous: bool) -> None:
        self.make = make
        self.synchronous = synchronous
        self.cloud = make()
        self.twin = None
        self.now = 0.0
        self.slots = 0
        self.requests = dict.fromkeys(range(EDGES), 0)
        self.grants: dict[int, Grant] = {}
        self.ended: dict[int, str] = {}  # leases that ended without an upload, and why
        self.first: dict[int, Verdict] = {}  # what the owner was told first
        self.applied = 0
        self.buffered: set[int] = set()

    # Events go to the cloud, to its twin if there is one, and into the model.

    def send(self, event) -> list:
        effects = self.cloud.handle(event)
        if self.twin is not None:
            assert plain(self.twin.handle(event)) == plain(effects)
            assert plain(self.twin.snapshot()) == plain(self.cloud.snapshot())
        for effect in effects:
            match effect:
                case Grant():
                    known = self.grants.setdefault(effect.lease_id, effect)
                    assert plain(known) == plain(effect)  # a grant given again is the same grant
                    assert effect.lease_id not in self.first
                    assert effect.lease_id not in self.ended
                    assert effect.base_version <= self.version
                case Expired():
                    assert effect.lease_id not in self.ended
                    assert effect.lease_id not in self.first
                    self.ended[effect.lease_id] = effect.reason
                case Cancel():
                    lease = self.grants.get(effect.lease_id)
                    if lease is not None and lease.edge == effect.edge and effect.lease_id not in self.first:
                        self.ended.setdefault(effect.lease_id, "cancelled")
                case RoundApplied():
                    assert {*effect.leases, *effect.dropped} == self.buffered
                    assert not (effect.leases and effect.dropped)
                    self.buffered.clear()
                    if (
                        self.synchronous
                    ):  # in an asynchronous cloud the upload that fills the buffer is applied
                        self.applied += bool(effect.leases)
                    assert effect.version == self.applied
                case Verdict():
                    self.judge(event, effect)
        return effects

    @property
    def version(self) -> int:
        return self.applied

    def judge(self, upload: Upload, verdict: Verdict) -> None:
        assert (verdict.edge, verdict.lease_id) == (upload.edge, upload.lease_id)
        lease = self.grants.get(upload.lease_id)
        if lease is None or lease.edge != upload.edge:  # forged or unknown
            assert (verdict.status, verdict.reason, verdict.staleness) == ("rejected", "no such lease", 0)
            return
        if upload.lease_id in self.first:
            assert verdict == self.first[upload.lease_id]
            return
        self.first[upload.lease_id] = verdict
        if upload.lease_id in self.ended:
            assert (verdict.status, verdict.reason) == ("rejected", self.ended[upload.lease_id])
            return
        staleness = self.applied - lease.base_version
        good = isinstance(upload.weights, np.ndarray) and upload.weights.dtype == np.float32
        good = good and upload.weights.shape == (2,) and bool(np.isfinite(upload.weights).all())
        good = good and type(upload.examples) is int and 0 < upload.examples <= DECLARED
        if verdict.status == "applied":
            assert good
            assert not self.synchronous
            assert 0 <= verdict.staleness <= lease.threshold
            assert verdict.staleness == staleness
            assert len(self.buffered) + 1 == self.buffer
            self.applied += 1
            assert verdict.version == self.applied
        elif verdict.status == "buffered":
            assert good
            assert self.synchronous or self.buffer > len(self.buffered) + 1
            self.buffered.add(upload.lease_id)
        else:
            assert verdict.reason
            if verdict.reason == "stale":
                assert verdict.staleness == staleness > lease.threshold
            elif verdict.reason != "not finite":  # a good model can still overflow in mixing
                assert not good

    def unchanged(self, event) -> None:
        """Send something that must not change anything."""
        before = plain(self.cloud.snapshot())
        self.send(event)
        assert plain(self.cloud.snapshot()) == before

    def check_in_of(self, edge: int, which: str, duration: float) -> CheckIn:
        if which == "new":
            self.requests[edge] += 1
        request = self.requests[edge] - (which == "old")
        return CheckIn(edge, request, EdgeCosts(1.0, 1.0, 0.25, duration, 0.25), self.now)

    def weights(self, payload: str, value: int):
        model = np.array([value, -value / 4], dtype=np.float32)
        if payload in ("nan", "inf", "huge"):
            model[0] = {"nan": np.nan, "inf": -np.inf, "huge": 3e38 * (-1) ** value}[payload]
        if payload == "shape":
            model = model[:1]
        if payload == "dtype":
            model = model.astype(np.float64)
        return model

    # Rules.

    @rule(edge=edges, which=st.sampled_from(["new", "new", "new", "repeat", "old"]), duration=durations)
    def check_in(self, edge, which, duration):
        event = self.check_in_of(edge, which, duration)
        if which == "new":
            self.send(event)
        else:
            self.unchanged(event)

    @rule()
    def slot(self):
        self.slots += 1
        self.send(Slot(self.slots, self.now))

    @rule(dt=st.sampled_from([0.5, 1.0, 3.0, 9.0, 31.0]))
    def time_passes(self, dt):
        self.now += dt

    @precondition(lambda self: self.grants)
    @rule(data=st.data(), payload=payloads, value=st.integers(-8, 8), ask=st.booleans(), newest=st.booleans())
    def upload(self, data, payload, value, ask, newest):
        known = sorted(self.grants)
        open_ones = sorted(self.cloud.leases)
        lease_id = data.draw(st.sampled_from(open_ones if newest and open_ones else known))
        edge = self.grants[lease_id].edge
        examples = data.draw(st.sampled_from([0, -1, 11, True, "5", 2.0])) if payload == "examples" else 7
        again = self.check_in_of(edge, "new", 2.0) if ask else None
        event = Upload(edge, lease_id, self.weights(payload, value), examples, again, self.now)
        self.send(event)
        self.send(event)  # delivered twice

    @precondition(lambda self: self.grants)
    @rule(data=st.data(), value=st.integers(-8, 8), shift=st.integers(1, EDGES - 1))
    def forged_upload(self, data, value, shift):
        lease_id = data.draw(st.sampled_from(sorted(self.grants)))
        forger = (self.grants[lease_id].edge + shift) % EDGES
        self.unchanged(Upload(forger, lease_id, self.weights("good", value), 7, None, self.now))

    @rule(edge=edges, lease_id=st.sampled_from([0, -1, 10**6]))
    def upload_without_a_lease(self, edge, lease_id):
        self.unchanged(Upload(edge, lease_id, self.weights("good", 1), 7, None, self.now))

    @precondition(lambda self: self.grants)
    @rule(data=st.data(), forged=st.booleans())
    def progress(self, data, forged):
        lease_id = data.draw(st.sampled_from(sorted(self.grants)))
        owner = self.grants[lease_id].edge
        if forged:
            self.unchanged(Progress((owner + 1) % EDGES, lease_id, self.now))
        else:
            self.send(Progress(owner, lease_id, self.now))

    @precondition(lambda self: self.grants)
    @rule(data=st.data())
    def expire(self, data):
        self.send(Expire(data.draw(st.sampled_from(sorted(self.grants))), self.now))

    @precondition(lambda self: self.grants)
    @rule(data=st.data(), forged=st.booleans(), ask=st.booleans())
    def abandon(self, data, forged, ask):
        lease_id = data.draw(st.sampled_from(sorted(self.grants)))
        owner = self.grants[lease_id].edge
        if forged:
            self.unchanged(Abandon((owner + 1) % EDGES, lease_id, None, self.now))
        else:
            again = self.check_in_of(owner, "new", 2.0) if ask else None
            self.send(Abandon(owner, lease_id, again, self.now))

    @rule(order=st.permutations(range(EDGES)), value=st.integers(-8, 8))
    def everybody_works(self, order, value):
        """Let all idle edges run at the same time and deliver in any order."""
        busy = {lease.edge for lease in self.cloud.leases.values()}
        for edge in sorted(set(range(EDGES)) - busy):
            self.send(self.check_in_of(edge, "new", 2.0))
        for _ in range(EDGES):
            self.slot()
        for lease in sorted(self.cloud.leases.values(), key=lambda lease: order[lease.edge]):
            self.send(Upload(lease.edge, lease.lease_id, self.weights("good", value), 7, None, self.now))

    @rule()
    def save_and_load(self):
        self.twin = self.make()
        self.twin.restore(copy.deepcopy(self.cloud.snapshot()))

    # What always holds.

    @invariant()
    def version_is_the_number_of_applied_updates(self):
        assert self.cloud.version == self.applied

    @invariant()
    def weights_are_finite(self):
        assert np.isfinite(self.cloud.weights).all()
        assert self.cloud.weights.dtype == np.float32

    @invariant()
    def an_edge_has_at_most_one_lease(self):
        owners = [lease.edge for lease in self.cloud.leases.values()]
        assert len(owners) == len(set(owners))
        assert set(self.cloud.leases) == set(self.grants) - set(self.ended) - set(self.first)

    @invariant()
    def nobody_waits_with_a_lease(self):
        assert not set(self.cloud.waiting) & {lease.edge for lease in self.cloud.leases.values()}


MIXINGS = {
    "interpolate": lambda: Interpolate(0.5, Exponential(0.5)),
    "delta": lambda: Delta(1.0, Exponential(0.5)),
    "momentum": lambda: Delta(1.0, Exponential(0.5), 0.5),
    "buffer": lambda: Buffer(1.0, Polynomial(0.5), 3),
    "tiers": lambda: TierWeighting(EDGES),
}


class AsyncMachine(CloudMachine):
    @initialize(
        enforce=st.sampled_from(["admit", "discard", "cancel"]),
        threshold=st.sampled_from(["random", 0, 1, 2, math.inf, -1]),
        slotted=st.booleans(),
        concurrency=st.sampled_from([math.inf, 1, 2]),
        mixing=st.sampled_from(list(MIXINGS)),
        norm_bound=st.sampled_from([math.inf, 1e30]),
    )
    def begin(self, enforce, threshold, slotted, concurrency, mixing, norm_bound):
        self.norm_bound = norm_bound
        self.concurrency = concurrency
        self.buffer = 3 if mixing == "buffer" else 1

        def make():
            random = threshold == "random"
            return AsyncCloud(
                np.zeros(2, dtype=np.float32),
                dict.fromkeys(range(EDGES), DECLARED),
                mixing=MIXINGS[mixing](),
                policy=RandomThreshold(3, seed=1) if random else FixedThreshold(threshold),
                seed=1,
                enforce=enforce,
                slot_s=0.5,
                slotted=slotted,
                concurrency=concurrency,
                norm_bound=norm_bound,
            )

        self.start(make, synchronous=False)

    @invariant()
    def no_more_run_than_allowed(self):
        assert len(self.cloud.leases) <= self.concurrency

    @invariant()
    def the_buffer_holds_what_was_neither_applied_nor_refused(self):
        assert set(self.cloud.buffered) == self.buffered

    def judge(self, upload, verdict):
        if verdict.reason == "norm" and upload.lease_id not in self.first:
            assert self.norm_bound < math.inf
            base = self.grants[upload.lease_id].weights
            assert np.abs(upload.weights.astype(np.float64) - base).max() > 0.5 * self.norm_bound
            self.first[upload.lease_id] = verdict
            return
        super().judge(upload, verdict)


class SyncMachine(CloudMachine):
    @initialize(
        participants=st.integers(1, EDGES + 1),
        deadline_s=st.sampled_from([math.inf, 8.0]),
        quorum=st.sampled_from([0.25, 0.5, 1.0]),
    )
    def begin(self, participants, deadline_s, quorum):
        def make():
            return SyncCloud(
                np.zeros(2, dtype=np.float32),
                dict.fromkeys(range(EDGES), DECLARED),
                selection=UniformSelection(participants, seed=1),
                deadline_s=deadline_s,
                quorum=quorum,
            )

        self.start(make, synchronous=True)

    @invariant()
    def the_round_is_made_of_open_leases(self):
        opened = self.cloud.round
        if opened is None:
            assert not self.cloud.leases
        else:
            assert opened.missing == set(self.cloud.leases)
            assert opened.missing
            assert set(opened.models) == self.buffered


TestAsyncCloud = AsyncMachine.TestCase
TestAsyncCloud.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestSyncCloud = SyncMachine.TestCase
TestSyncCloud.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


@given(seed=st.integers(0, 10**6), count=st.integers(1, 6), threshold=st.sampled_from(["random", 0, 1, 2, 4]))
@settings(max_examples=60, deadline=None)
def test_admission_lets_nothing_become_stale_when_arrivals_are_as_expected(seed, count, threshold):
    stream = rng(seed, "durations")
    cloud = AsyncCloud(
        np.zeros(1, dtype=np.float32),
        dict.fromkeys(range(count), 5),
        mixing=Interpolate(0.5, Exponential(0.5)),
        policy=RandomThreshold(4, seed) if threshold == "random" else FixedThreshold(threshold),
        seed=seed,
        enforce="admit",
        slot_s=0.05,
        slotted=False,
    )
    requests = dict.fromkeys(range(count), 0)
    running: list[tuple[float, int, Grant]] = []
    idle, now = set(range(count)), 0.0
    for _ in range(60):
        for edge in stream.permutation(sorted(idle)).tolist():
            requests[edge] += 1
            costs = EdgeCosts(1.0, 1.0, 0.1, float(stream.uniform(1, 10)), 0.1)
            (answer,) = cloud.handle(CheckIn(edge, requests[edge], costs, now))
            if isinstance(answer, Grant):
                idle.remove(edge)
                heapq.heappush(running, (now + costs.duration_s, answer.lease_id, answer))
        assert running  # somebody is always admitted when nobody runs
        now, _, arrived = heapq.heappop(running)
        (verdict,) = cloud.handle(
            Upload(arrived.edge, arrived.lease_id, np.ones(1, dtype=np.float32), 5, None, now)
        )
        assert verdict.status == "applied"
        assert verdict.staleness <= arrived.threshold
        idle.add(arrived.edge)
    assert cloud.version == 60
