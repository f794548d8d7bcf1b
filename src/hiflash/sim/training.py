"""The models of simulated edges: from clients that train, from a stand-in function, or untrained.

The simulator decides when a round starts and whether its upload can still count. The classes here decide
what the upload holds. Control flow runs ahead of computation: an executor begins a round when its edge starts
it, the edge model travels as a promise, and the simulator waits for it when the upload reaches the cloud. A
client task is pure, so its result does not depend on when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hiflash.core.cloud import Cloud, Lease
from hiflash.core.compression import Uplink
from hiflash.core.edge import Workloads
from hiflash.core.state import Stateful
from hiflash.errors import ProtocolError
from hiflash.execute.executor import Executor, PendingModel, begin, resolve
from hiflash.messages import Extra, Model, Promise, Round, Upload, Weights

__all__ = ["Finished", "NoTraining", "RealTraining", "StandIn"]


@dataclass(slots=True, eq=False)  # frozen ones take four times as long to make; nothing changes it
class Finished:
    """An upload as it reaches the cloud; `left` is the part that compression left for the next upload.

    `states` become those of the clients if the cloud accepts the upload.
    """

    model: Model
    examples: int
    left: Weights | None = None
    steps: float = 1.0
    extra: Extra = field(default_factory=dict)
    states: Mapping[int, Extra] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    clipped: int = 0

    def fill(self, upload: Upload, now: float) -> Upload:
        """Return the upload of an edge with this content, as it arrives now."""
        return Upload(  # not `replace`, which takes three times as long
            upload.edge,
            upload.lease_id,
            self.model,
            self.examples,
            upload.check_in,
            now,
            self.steps,
            self.extra,
        )


class NoTraining(Stateful):
    """No training, only timing: an upload holds the granted model."""

    trains = False
    kept: Mapping[int, Weights] = {}  # the values that clients do not share

    def start(
        self, opened: Round, clients: Sequence[int], quorum: int, due: float, *, wanted: bool
    ) -> Promise | None:
        """Begin an edge round with the clients that report, and return the promise of its model.

        `due` is the arrival time of its upload. A round that is not `wanted` now begins when its model is
        needed after all.
        """
        return None

    def finish(self, upload: Upload, lease: Lease, rounds: int, now: float) -> Finished | None:
        """Return the content of an upload that reaches the cloud now, None if it is unusable."""
        return Finished(upload.weights, upload.examples)

    def settled(self, edge: int, finished: Finished) -> None:
        """Note that the cloud has accepted an upload."""

    def drop(self, lease_id: int) -> None:
        """Forget the rounds of a lease."""

    def drop_stale(self, cloud: Cloud) -> None:
        """Forget the rounds of leases that are already too stale."""


class StandIn(NoTraining):
    """A function replaces training: it maps edge, received model and number of rounds to the edge model."""

    def __init__(self, train: Callable[[int, Weights, int], Weights]) -> None:
        self.train = train

    def finish(self, upload: Upload, lease: Lease, rounds: int, now: float) -> Finished | None:
        """Return an upload with the function's model."""
        return Finished(self.train(upload.edge, lease.received, rounds), upload.examples)


class RealTraining(NoTraining):
    """Clients train on an executor. `kept` has the values that clients do not share, such as BatchNorm's.

    `states` are what the clients' algorithm keeps on them. If the rounds are `private`, the cloud learns
    nothing but the model.
    """

    STATE = ("kept", "states")
    trains = True

    def __init__(
        self,
        executor: Executor,
        workloads: Workloads,
        uplink: Uplink,
        *,
        private: bool = False,
        secure: bool = False,
    ) -> None:
        self.executor = executor
        self.private, self.secure = private, secure
        self.workloads = workloads
        self.uplink = uplink
        self.kept: dict[int, Weights] = {}
        self.states: dict[int, Extra] = {}

    def start(
        self, opened: Round, clients: Sequence[int], quorum: int, due: float, *, wanted: bool
    ) -> Promise | None:
        """Begin an edge round, unless too few clients report or the round is not wanted."""
        everyone = len(clients) == len(opened.work)
        work = opened.work if everyone else tuple(task for task in opened.work if task.client in clients)
        model = PendingModel(
            lease_id=opened.lease_id,
            index=opened.index,
            work=work,
            examples=tuple([self.workloads[task.client].examples for task in work]),
            quorum=quorum,
            base=opened.model,
            kept={task.client: self.kept[task.client] for task in work if task.client in self.kept},
            states={task.client: self.states[task.client] for task in work if task.client in self.states},
            extra=opened.extra,
            edge=opened.edge,
            asked=self._asked(opened),
        )
        if wanted and len(work) >= quorum:
            begin(model, self.executor, due)
        return model

    def _asked(self, opened: Round) -> tuple[tuple[int, int], ...]:
        """Return all clients of a round with their samples; only hiding sums need the late ones."""
        if not (self.private or self.secure):
            return ()
        return tuple((task.client, self.workloads[task.client].examples) for task in opened.work)

    def finish(self, upload: Upload, lease: Lease, rounds: int, now: float) -> Finished | None:
        """Wait for the promised model and return it after compression."""
        if not isinstance(upload.weights, PendingModel):
            raise ProtocolError(f"edge {upload.edge} uploads an untrained model, expected a promise")
        model = resolve(upload.weights, self.executor, now)
        if model is None:
            return None
        # Only now: a stale upload may never be computed, so it must leave no trace.
        self.kept.update(model.kept)
        weights, left = self.uplink.send(upload.edge, model.weights, lease.received, lease.base)
        if self.private:  # samples, steps and metrics of clients are theirs to know
            return Finished(weights, upload.examples, left)
        return Finished(
            weights,
            sum(model.examples.values()),
            left,
            model.steps,
            model.extra,
            model.states,
            model.metrics,
            model.clipped,
        )

    def settled(self, edge: int, finished: Finished) -> None:
        """Keep the clients' new states and the part that compression left out: the upload is accepted."""
        self.states.update(finished.states)
        if finished.left is not None:
            self.uplink.keep(edge, finished.left)

    def drop(self, lease_id: int) -> None:
        """Forget the rounds of a lease; tasks that have not started never run."""
        self.executor.drop(lease_id)

    def drop_stale(self, cloud: Cloud) -> None:
        """Forget the rounds of leases that are already too stale."""
        for lease_id in self.executor.leases():
            if cloud.stale(lease_id):
                self.executor.drop(lease_id)

    def snapshot(self) -> dict[str, Any]:
        """Return what clients keep, and the values that compression left out."""
        return super().snapshot() | {"uplink": self.uplink.snapshot()}

    def restore(self, state: Any) -> None:
        """Go back to a snapshot."""
        super().restore(state)
        self.uplink.restore(state["uplink"])
