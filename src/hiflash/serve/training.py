"""What a deployed client does with a task, and how a cloud tests models: the trainers of the simulator."""

from __future__ import annotations

import time
from collections.abc import Sequence

from hiflash.errors import ConfigError
from hiflash.execute.executor import client_share, client_task
from hiflash.execute.pool import WorkerPool
from hiflash.messages import ClientTask, Weights
from hiflash.serve.beside import beside
from hiflash.serve.client import Job, Worked
from hiflash.serve.memory import Own
from hiflash.sim.federation import Federation
from hiflash.sim.machines import workload_of

__all__ = ["LocalTests", "LocalTraining"]


class LocalTraining:
    """Trains tasks on this machine, in a thread: the client goes on to answer its edge meanwhile."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.pool = _pool_of(federation)

    async def __call__(self, job: Job, own: Own) -> Worked:
        """Return what the client makes of a job."""
        return await beside(lambda: self._work(job, own))

    def measure(self, client: int, examples: int) -> float:
        """Return the seconds of one task; training functions of users are not called for this."""
        config, start = self.federation.config, self.federation.start
        if config.client.algorithm == "function":
            return 0.0
        workload = workload_of(config, examples)
        task = ClientTask(client, 0, workload.steps, workload.lr, start.weights, config.seed)
        self.pool.train([task])  # the first one is slower: buffers are made, pages are read
        begun = time.perf_counter()
        self.pool.train([task])
        return time.perf_counter() - begun

    def _work(self, job: Job, own: Own) -> Worked:
        begun, rules = time.perf_counter(), self.pool.rules
        task = client_task(rules, job.work, job.model, own.kept, own.state, job.extra)
        (result,) = self.pool.train([task])
        share = client_share(rules, task, result, job.model)
        if share.kept is not None or share.state is not None:
            kept = own.kept if share.kept is None else share.kept
            own = Own(kept, own.state if share.state is None else share.state)
        took_s = time.perf_counter() - begun
        return Worked(share.weights, result.loss, took_s, own, share.steps, share.extra, result.metrics)


class LocalTests:
    """Tests models on this machine, in a thread: the cloud goes on to answer its edges meanwhile."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation

    async def evaluate(self, weights: Weights) -> Sequence[float]:
        """Return the value of every metric on the test set, and on the validation set if there is one."""
        return await beside(lambda: self.federation.evaluate(weights))

    async def recall(self, weights: Weights) -> Sequence[float] | None:
        """Return the accuracy on each class, of the set that decides while a run goes on."""
        return await beside(lambda: self.federation.watched_recall(weights))


def _pool_of(federation: Federation) -> WorkerPool:
    if not isinstance(federation.pool, WorkerPool):
        raise ConfigError("a deployed client trains in its own process; leave out executor and trainer")
    return federation.pool
