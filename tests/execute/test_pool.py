from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from hiflash.core.aggregation import Median
from hiflash.core.attack import Scale
from hiflash.execute.executor import LazyExecutor, RoundRules, RoundWork
from hiflash.execute.pool import WorkerPool
from hiflash.messages import Assignment, ClientTask, Weights
from hiflash.train.task import TaskResult


class Scripted:
    """Adds the client's number to every weight; 13 gives NaN, 99 breaks, 50 waits until it is let go."""

    name = "scripted"
    whole_rounds = False

    def __init__(self) -> None:
        self.ran: list[int] = []
        self.gate = threading.Event()

    def train(self, tasks: Sequence[ClientTask]) -> list[TaskResult]:
        for task in tasks:
            self.ran.append(task.client)
            if task.client == 99:
                raise RuntimeError("the trainer broke")
            if task.client == 50:
                self.gate.wait(10)
        return [
            TaskResult(t.weights + np.float32(np.nan if t.client == 13 else t.client), 0.0) for t in tasks
        ]

    def evaluate(self, weights: Weights, start: int, stop: int) -> tuple[int, float]:
        return stop - start, float(start)


def work(
    lease: int, index: int, clients: list[int], base: float | None = None, due: float = 0.0
) -> RoundWork:
    return RoundWork(
        lease_id=lease,
        index=index,
        work=tuple(Assignment(client, 0, 1, 0.1, 0) for client in clients),
        examples=(1,) * len(clients),
        quorum=len(clients),
        base=None if base is None else np.float32([base]),
        kept={},
        due=due,
    )


@pytest.fixture(params=["pool of 1", "pool of 3", "whole rounds", "lazy"])
def executor(request: pytest.FixtureRequest) -> Any:
    trainer = Scripted()
    if request.param == "lazy":
        yield LazyExecutor(trainer)
        return
    trainer.whole_rounds = request.param == "whole rounds"
    pool = WorkerPool(lambda: trainer, 3 if "3" in request.param else 1, 1200)
    yield pool
    pool.close()


def test_a_round_starts_from_what_the_round_before_it_gives(executor: Any) -> None:
    executor.begin(work(1, 0, [1, 3], base=10.0))
    executor.begin(work(1, 1, [4, 8]))
    executor.begin(work(1, 2, [1]))
    assert executor.result(1, 2).weights.tolist() == [10 + 2 + 6 + 1]  # the means of {1, 3}, {4, 8}, {1}
    assert executor.result(1, 0).weights.tolist() == [12]
    executor.begin(work(1, 3, [5]))  # behind a round that is done
    assert executor.result(1, 3).weights.tolist() == [24]


def test_nothing_starts_from_an_unusable_model(executor: Any) -> None:
    executor.begin(work(1, 0, [1, 13], base=10.0))
    executor.begin(work(1, 1, [2]))
    executor.begin(work(1, 2, [2]))
    assert executor.result(1, 2) is None
    executor.begin(work(1, 3, [2]))
    assert executor.result(1, 3) is None


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_what_a_client_keeps_replaces_the_models_in_every_round_of_a_lease(workers: int) -> None:
    rules = RoundRules(local=((1, 2),))
    executor: Any = (
        LazyExecutor(Scripted(), rules) if not workers else WorkerPool(Scripted, workers, 9, rules)
    )
    one, three, thirteen = (Assignment(client, 0, 1, 0.1, 0) for client in (1, 3, 13))
    kept = {1: np.float32([100])}
    executor.begin(RoundWork(1, 0, (one, three), (5, 5), 2, np.float32([10, 10]), kept, 0.0))
    executor.begin(RoundWork(1, 1, (one, three), (5, 5), 2, None, kept, 0.0))
    executor.begin(RoundWork(1, 2, (thirteen, three), (7, 5), 1, None, kept, 0.0))
    first, second, third = (executor.result(1, index) for index in range(3))
    # 1 starts from (10, 100) and 3 from (10, 10): (11, 101) and (13, 13).
    assert first.weights.tolist() == [12, 57]
    assert {client: own.tolist() for client, own in first.kept.items()} == {1: [101], 3: [13]}
    # From (12, 101) and (12, 13), whatever the tasks say: (13, 102) and (15, 16).
    assert second.weights.tolist() == [14, 59]
    assert {client: own.tolist() for client, own in second.kept.items()} == {1: [102], 3: [16]}
    # 13 brings NaN: it neither counts nor keeps anything. What 1 kept is still there.
    assert third.weights.tolist() == [17, 19]
    assert {client: own.tolist() for client, own in third.kept.items()} == {1: [102], 3: [19]}
    assert third.examples == {1: 5, 3: 5}
    if workers:
        executor.close()


def test_a_round_is_combined_by_its_rule_after_malicious_clients_had_their_way() -> None:
    attack = Scale(frozenset({5}), 100.0)
    executor = LazyExecutor(Scripted(), RoundRules(Median(), attack))
    executor.begin(work(1, 0, [1, 3, 5], base=10.0))
    assert executor.result(1, 0).weights.tolist() == [13]  # of 11, 13 and 10 + 100 * 5


def test_a_dropped_lease_is_forgotten(executor: Any) -> None:
    executor.begin(work(1, 0, [1], base=10.0))
    executor.begin(work(2, 0, [2], base=10.0))
    executor.drop(1)
    assert executor.leases() == [2]
    assert not executor.begun(1, 0)
    assert executor.result(2, 0).weights.tolist() == [12]
    executor.drop(7)  # that of a lease without rounds is no error


def test_what_is_due_first_runs_first_and_dropped_work_does_not_run() -> None:
    trainer = Scripted()
    pool = WorkerPool(lambda: trainer, 1, 1200)
    pool.begin(work(1, 0, [50], base=0.0))  # keeps the only worker busy while the queue fills
    while not trainer.ran:
        pass
    pool.begin(work(2, 0, [20, 21], base=0.0, due=9.0))
    pool.begin(work(3, 0, [30], base=0.0, due=5.0))
    pool.begin(work(4, 0, [40], base=0.0, due=7.0))
    pool.drop(4)
    trainer.gate.set()
    pool.result(2, 0)
    pool.close()
    assert trainer.ran == [50, 30, 20, 21]


def test_an_error_in_a_worker_reaches_whoever_waits() -> None:
    pool = WorkerPool(Scripted, 2, 1200)
    pool.begin(work(1, 0, [99, 1], base=0.0))
    with pytest.raises(RuntimeError, match="the trainer broke"):
        pool.result(1, 0)
    pool.close()


def test_evaluation_covers_the_test_set_once() -> None:
    pool = WorkerPool(Scripted, 2, 1200)
    assert pool.evaluate(np.zeros(1, np.float32)) == (1.0, (0 + 500 + 1000) / 1200)
    pool.close()


def test_closing_leaves_no_thread() -> None:
    before = threading.active_count()
    pool = WorkerPool(Scripted, 3, 1200)
    pool.begin(work(1, 0, [1, 2, 3], base=0.0))
    pool.close()
    assert threading.active_count() == before
