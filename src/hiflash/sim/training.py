"""Where the models of simulated edges come from: clients that train, a surrogate, or nowhere.

The simulator decides when a round starts and whether its upload can still count; what is here decides what
the upload holds. Control flow runs ahead of computation: a round is begun on an executor when its edge
starts it, handed on as a promise, and awaited when its upload reaches the cloud. A client task is pure, so
it cannot matter when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hiflash.core.cloud import Cloud, Lease
from hiflash.core.compression import Uplink
from hiflash.core.edge import Workloads
from hiflash.core.state import Stateful
from hiflash.errors import ProtocolError
from hiflash.execute.executor import Executor, PendingModel, begin, resolve
from hiflash.messages import Model, Promise, Round, Upload, Weights

__all__ = ["Finished", "NoTraining", "RealTraining", "StandIn"]


@dataclass(frozen=True, slots=True, eq=False)
class Finished:
    """An upload as it reaches the cloud; `left` is what its compression left out, for the next one."""

    model: Model
    examples: int
    left: Weights | None = None


class NoTraining(Stateful):
    """Nothing is trained and only timing counts: an upload holds the model that was granted."""

    trains = False

    def start(
        self, opened: Round, clients: Sequence[int], quorum: int, due: float, *, wanted: bool
    ) -> Promise | None:
        """Have an edge round computed for the clients that report, and return the promise of its model.

        `due` is when its upload arrives; unless it is `wanted` by now, it is begun only if that changes.
        """
        return None

    def finish(self, upload: Upload, lease: Lease, rounds: int, now: float) -> Finished | None:
        """Return an upload that reaches the cloud now and may still count, None if it is unusable."""
        return Finished(upload.weights, upload.examples)

    def settled(self, edge: int, finished: Finished) -> None:
        """Take note that the cloud has taken an upload."""

    def drop(self, lease_id: int) -> None:
        """Forget the rounds of a lease."""

    def drop_stale(self, cloud: Cloud) -> None:
        """Forget the rounds of leases whose uploads are already known to be refused."""


class StandIn(NoTraining):
    """A function stands in for training: from edge, model received and edge rounds to the edge's model."""

    def __init__(self, train: Callable[[int, Weights, int], Weights]) -> None:
        self.train = train

    def finish(self, upload: Upload, lease: Lease, rounds: int, now: float) -> Finished | None:
        """Return what the function makes of the model that the edge received."""
        return Finished(self.train(upload.edge, lease.received, rounds), upload.examples)


class RealTraining(NoTraining):
    """Clients train on an executor. `kept` are the values that each client keeps to itself, if any."""

    STATE = ("kept",)
    trains = True

    def __init__(self, executor: Executor, workloads: Workloads, uplink: Uplink) -> None:
        self.executor = executor
        self.workloads = workloads
        self.uplink = uplink
        self.kept: dict[int, Weights] = {}

    def start(
        self, opened: Round, clients: Sequence[int], quorum: int, due: float, *, wanted: bool
    ) -> Promise | None:
        """Have an edge round computed, unless too few clients report or nobody wants it by now."""
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
        )
        if wanted and len(work) >= quorum:
            begin(model, self.executor, due)
        return model

    def finish(self, upload: Upload, lease: Lease, rounds: int, now: float) -> Finished | None:
        """Wait for the model that was promised, and return it as its compression lets it through."""
        if not isinstance(upload.weights, PendingModel):
            raise ProtocolError(f"edge {upload.edge} uploads a model that nobody has trained")
        model = resolve(upload.weights, self.executor, now)
        if model is None:
            return None
        # Only now: what is refused as stale may never have been computed, and must leave no trace.
        self.kept.update(model.kept)
        weights, left = self.uplink.send(upload.edge, model.weights, lease.received, lease.base)
        return Finished(weights, sum(model.examples.values()), left)

    def settled(self, edge: int, finished: Finished) -> None:
        """Keep what the compression of an upload left out, now that the cloud has taken the rest."""
        if finished.left is not None:
            self.uplink.keep(edge, finished.left)

    def drop(self, lease_id: int) -> None:
        """Forget the rounds of a lease; what has not begun to run will not."""
        self.executor.drop(lease_id)

    def drop_stale(self, cloud: Cloud) -> None:
        """Forget the rounds of leases whose uploads are already known to be refused."""
        for lease_id in self.executor.leases():
            if cloud.stale(lease_id):
                self.executor.drop(lease_id)

    def snapshot(self) -> dict[str, Any]:
        """Return what clients keep and what compression left out."""
        return super().snapshot() | {"uplink": self.uplink.snapshot()}

    def restore(self, state: Any) -> None:
        """Go back to a snapshot."""
        super().restore(state)
        self.uplink.restore(state["uplink"])
