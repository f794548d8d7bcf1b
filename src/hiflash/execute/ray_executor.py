"""Workers on a Ray cluster: an edge round is one stateless task, so a lost worker loses nothing.

A round takes the reference to the result of the round before it. So edge models move between the nodes, and
reach this process only when the cloud wants them. Every task is pure and sums have the same order as with
local workers, so on equal processors a run has the same digest as a local run.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from hiflash.errors import ConfigError, HiFlashError, RunError
from hiflash.execute.executor import EdgeModel, RoundWork
from hiflash.execute.ray_cluster import RayConnection
from hiflash.execute.ray_worker import Setup, assignment_of, evaluate_spans, run_round, train_task
from hiflash.execute.tester import Tester
from hiflash.messages import ClientTask, Extra, Weights
from hiflash.train.task import TaskResult

__all__ = ["RayExecutor"]

LEASES_PER_WORKER = 2  # so that no worker is idle while this process is busy
INLINE_BYTES = 100_000  # the largest array that Ray sends inside a task: 2 ms faster than the object store


@dataclass(slots=True, eq=False, weakref_slot=True)
class _Sent:
    """A model as the argument of a task. It also holds the array, so that no other array gets its id."""

    weights: Weights
    argument: Any


@dataclass(slots=True, eq=False)
class _Round:
    """A round, and the reference to its result once Ray has the round."""

    work: RoundWork
    base: _Sent | None = None
    reference: Any = None
    dropped: bool = False


class RayExecutor(Tester):
    """An executor, trainer and tester on a Ray cluster. It closes its connection.

    Data and settings are sent once to each node, a model once per version and node unless it is small.
    Ray runs a task again, up to three times, when the process or node that ran it dies. It serialises
    with pickle: a user's own model is sent as code, and anyone who reaches the cluster can run code on it.
    """

    def __init__(self, setup: Setup, connection: RayConnection) -> None:
        import ray

        self.name = setup.trainer
        self.test_size = setup.test_size
        self._ray = ray
        self._connection = connection
        try:
            self._setup = [ray.put(setup), setup.plugins]
        except TypeError as error:
            connection.close()
            raise ConfigError(f"the model cannot be sent to the workers of Ray: {_reason(error)}") from error
        self._run_round, self._train_task, self._evaluate_spans = map(
            ray.remote, (run_round, train_task, evaluate_spans)
        )
        self._sent: WeakValueDictionary[int, _Sent] = WeakValueDictionary()
        self._rounds: dict[int, dict[int, _Round]] = {}
        self._waiting: list[tuple[float, int, _Round]] = []
        self._counter = 0
        self._running: dict[int, Any] = {}  # the last reference of every lease that Ray works on

    def begin(self, work: RoundWork) -> None:
        """Take on a round. Ray gets the rounds that are due first."""
        entry = _Round(work)
        self._rounds.setdefault(work.lease_id, {})[work.index] = entry
        self._counter += 1
        heapq.heappush(self._waiting, (work.due, self._counter, entry))
        self._hand_over()

    def begun(self, lease_id: int, index: int) -> bool:
        """Return whether a round was taken on and not dropped."""
        return index in self._rounds.get(lease_id, {})

    def result(self, lease_id: int, index: int) -> EdgeModel | None:
        """Wait for a round and return its edge model, None if too few client models are usable."""
        entry = self._rounds[lease_id][index]
        while self._waiting and (entry.reference is None or lease_id in self._running):
            self._settle(wait=True)
            self._hand_over()
        (model,) = self._get([entry.reference])
        if model is None:
            return None
        # Copies: the object store keeps an object as long as an array refers to it.
        kept = {client: np.array(values) for client, values in model.kept.items()}
        states = {client: _copied(state) for client, state in model.states.items()}
        return replace(  # type: ignore[no-any-return]
            model, weights=np.array(model.weights), kept=kept, states=states, extra=_copied(model.extra)
        )

    def leases(self) -> list[int]:
        """Return the leases that have rounds here."""
        return list(self._rounds)

    def drop(self, lease_id: int) -> None:
        """Forget the rounds of a lease; rounds that Ray does not have yet never run.

        The others are not cancelled: Ray 2.60 ends this process if a task finishes during its cancellation.
        """
        for entry in self._rounds.pop(lease_id, {}).values():
            entry.dropped = True

    def train(self, tasks: Sequence[ClientTask]) -> list[TaskResult]:
        """Return the results in the order of the tasks."""
        sent = [self._send(task.weights) for task in tasks]
        results = self._get(
            [
                self._train_task.remote(self._setup, base.argument, assignment_of(task))
                for base, task in zip(sent, tasks, strict=True)
            ]
        )
        return [TaskResult(np.array(result.weights), result.loss) for result in results]

    def sums(self, weights: Weights, parts: Sequence[tuple[int, int]]) -> list[tuple[float, ...]]:
        """Return the task's sums over each of some parts of the test set and of what follows it."""
        sent = self._send(weights)
        share = -(-len(parts) // self._connection.cpus)
        shares = [parts[first : first + share] for first in range(0, len(parts), share)]
        tested = self._get([self._evaluate_spans.remote(self._setup, sent.argument, some) for some in shares])
        return [result for some in tested for result in some]

    def close(self) -> None:
        """Forget everything and leave Ray."""
        self._rounds, self._waiting, self._running, self._setup = {}, [], {}, []
        self._connection.close()

    def _hand_over(self) -> None:
        """Give Ray the rounds of a few leases per worker. The other rounds can still be dropped."""
        while self._waiting:
            entry = self._waiting[0][2]
            lease_id = entry.work.lease_id
            wanted = not entry.dropped and entry.reference is None
            if wanted and lease_id not in self._running and self._busy():
                return
            heapq.heappop(self._waiting)
            if wanted:
                self._running[lease_id] = self._submit(entry)

    def _busy(self) -> bool:
        """Return whether Ray has enough to do."""
        enough = LEASES_PER_WORKER * self._connection.cpus
        if len(self._running) >= enough:
            self._settle(wait=False)
        return len(self._running) >= enough

    def _settle(self, wait: bool) -> None:
        """Update the leases that Ray works on; with `wait`, wait until one is finished."""
        references = list(self._running.values())
        done, _ = self._ray.wait(
            references,
            num_returns=1 if wait else len(references),
            timeout=None if wait else 0,
            fetch_local=False,
        )
        self._running = {lease: last for lease, last in self._running.items() if last not in done}

    def _submit(self, entry: _Round) -> Any:
        """Give Ray a round after the round before it, and return the reference to its result."""
        work = entry.work
        if work.base is None:
            before = self._rounds[work.lease_id][work.index - 1]
            start = before.reference if before.reference is not None else self._submit(before)
        else:
            entry.base = self._send(work.base)
            start = entry.base.argument
        entry.reference = self._run_round.remote(self._setup, start, replace(work, base=None))
        return entry.reference

    def _send(self, weights: Weights) -> _Sent:
        """Return a model for a task. Tasks that start from the same array share one object in the store."""
        if weights.nbytes <= INLINE_BYTES:
            return _Sent(weights, weights)
        sent = self._sent.get(id(weights))
        if sent is None:
            sent = _Sent(weights, self._ray.put(weights))
            self._sent[id(weights)] = sent
        return sent

    def _get(self, references: list[Any]) -> list[Any]:
        try:
            return list(self._ray.get(references))
        except self._ray.exceptions.RayError as error:
            raise RunError(f"Ray could not run a task: {_reason(error)}") from error


def _copied(arrays: Extra) -> Extra:
    return {name: np.array(array) for name, array in arrays.items()}


def _reason(error: Any) -> str:
    cause = getattr(error, "cause", None)
    if isinstance(cause, HiFlashError):
        return str(cause)
    lines = str(error if cause is None else f"{type(cause).__name__}: {cause}").strip().splitlines()
    return lines[0] if lines else type(error).__name__
