from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hiflash.errors import ConfigError
from hiflash.execute.pool import WorkerPool
from hiflash.messages import ClientTask
from hiflash.train.models import femnist_cnn, initial_weights, lenet, resnet, resnet18
from hiflash.train.stacked import StackedTrainer
from hiflash.train.task import Solver, TaskResult
from hiflash.train.torch_trainer import Samples, TorchTrainer

Model = Callable[[], nn.Module]
SIZES = (40, 23, 5, 32)  # in batches of 16: two short last ones, a client below one batch, an even one


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Run as workers do; on a busy machine torch's threads mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def samples(shape: tuple[int, ...] = (1, 28, 28), sizes: Sequence[int] = SIZES) -> Samples:
    stream = np.random.default_rng(0)
    count, bounds = sum(sizes), np.cumsum(sizes)[:-1]
    x = torch.from_numpy(stream.normal(size=(count, *shape)).astype(np.float32))
    y = torch.from_numpy(stream.integers(10, size=count))
    return Samples(x, y, np.split(np.arange(count), bounds), x, y)


def linear() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))


def smooth() -> nn.Module:
    """Return LeNet without kinks: behind a maximum, rounding can send a gradient another way."""
    return nn.Sequential(
        nn.Conv2d(1, 10, 5), nn.AvgPool2d(2), nn.Tanh(),
        nn.Conv2d(10, 20, 5), nn.AvgPool2d(2), nn.Tanh(),
        nn.Flatten(), nn.Linear(320, 50), nn.Tanh(), nn.Linear(50, 10),
    )  # fmt: skip


def small_norm() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 5, stride=4), nn.BatchNorm2d(4), nn.ReLU(),
        nn.Flatten(), nn.Linear(144, 10), nn.BatchNorm1d(10),
    )  # fmt: skip


def mixed_tasks(model: Model) -> list[ClientTask]:
    """Return tasks that differ in everything in which tasks can."""
    starts = [initial_weights(model, seed)[0] for seed in (1, 2)]
    settings = [(0, 4, 3, 0.1), (1, 0, 5, 0.05), (2, 7, 1, 0.2), (3, 2, 4, 0.1), (0, 1, 2, 0.02)]
    return [
        ClientTask(client, first, steps, lr, starts[number % 2], seed=9 + number // 3)
        for number, (client, first, steps, lr) in enumerate(settings)
    ]


def both(
    model: Model, data: Samples, *, batch: int = 16, augment: bool = False, **solver: float
) -> tuple[TorchTrainer, StackedTrainer]:
    chosen = Solver(batch=batch, augment=augment, **solver)
    return TorchTrainer(model, data, chosen), StackedTrainer(model, data, chosen)


def assert_close(found: list[TaskResult], expected: list[TaskResult]) -> None:
    # Mostly 1e-7; a ReLU or a maximum that rounding turns the other way can make it a few 1e-6.
    for one, other in zip(found, expected, strict=True):
        assert one.weights.dtype == np.float32
        np.testing.assert_allclose(one.weights, other.weights, rtol=1e-5, atol=5e-6)
        assert one.loss == pytest.approx(other.loss, rel=1e-5)


def assert_same_bits(found: list[TaskResult], expected: list[TaskResult]) -> None:
    assert [result.loss for result in found] == [result.loss for result in expected]
    assert all(np.array_equal(a.weights, b.weights) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("augment", [False, True])
@pytest.mark.parametrize(
    "solver", [{}, {"mu": 0.3}, {"momentum": 0.9, "weight_decay": 0.01, "clip_norm": 0.5}], ids=str
)
@pytest.mark.parametrize("model", [smooth, small_norm])
def test_tasks_that_differ_in_everything_train_as_in_the_reference(
    model: Model, solver: dict[str, float], augment: bool
) -> None:
    reference, stacked = both(model, samples(), augment=augment, **solver)
    tasks = mixed_tasks(model)
    assert_close(stacked.train(tasks), reference.train(tasks))


def test_the_femnist_model_trains_as_in_the_reference() -> None:
    reference, stacked = both(femnist_cnn, samples(), batch=8)
    tasks = [replace(task, steps=min(task.steps, 2)) for task in mixed_tasks(femnist_cnn)]
    assert_close(stacked.train(tasks), reference.train(tasks))


@pytest.mark.parametrize("model", [resnet, resnet18])
def test_residual_networks_and_their_running_statistics_train_as_in_the_reference(model: Model) -> None:
    reference, stacked = both(model, samples((3, 12, 12), (8, 5)), batch=4)
    start, _, trainable = initial_weights(model, 1)
    tasks = [ClientTask(client, 1, 1, 0.01, start, 0) for client in (0, 1)]
    for found, expected in zip(stacked.train(tasks), reference.train(tasks), strict=True):
        assert found.loss == pytest.approx(expected.loss, rel=1e-5)
        kept, learned = found.weights[trainable:], found.weights[:trainable]
        np.testing.assert_allclose(kept, expected.weights[trainable:], rtol=1e-5, atol=1e-6)
        assert not np.array_equal(kept, start[trainable:])
        # So deep a gradient is not continuous: rounding alone moves single weights of the reference
        # itself by 1e-4. The step as a whole must agree.
        step = expected.weights[:trainable] - start[:trainable]
        assert np.linalg.norm(learned - expected.weights[:trainable]) < 0.01 * np.linalg.norm(step)


def test_samples_that_meet_in_a_layer_of_ones_own_are_not_mixed_with_padding() -> None:
    class Centred(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x - x.mean(0)

    def model() -> nn.Module:
        last = nn.Linear(10, 10)
        nn.init.zeros_(last.weight)  # nothing in the output shows, at first, that samples meet
        return nn.Sequential(linear(), Centred(), last)

    reference, stacked = both(model, samples())
    tasks = mixed_tasks(model)
    assert_close(stacked.train(tasks), reference.train(tasks))


def test_frozen_and_shared_parameters_are_treated_as_in_the_reference() -> None:
    def model() -> nn.Module:
        shared = nn.Linear(10, 10)
        frozen = nn.Linear(784, 10).requires_grad_(False)
        return nn.Sequential(nn.Flatten(), frozen, nn.Tanh(), shared, nn.Tanh(), shared)

    reference, stacked = both(model, samples(), mu=0.1, momentum=0.5, weight_decay=0.01)
    tasks = mixed_tasks(model)
    found = stacked.train(tasks)
    assert_close(found, reference.train(tasks))
    assert all(np.array_equal(r.weights[:7850], t.weights[:7850]) for r, t in zip(found, tasks, strict=True))


def test_the_same_call_gives_the_same_bits_and_leaves_its_tasks_alone() -> None:
    tasks = mixed_tasks(small_norm)
    before = [task.weights.copy() for task in tasks]
    stacked = StackedTrainer(small_norm, samples(), Solver(batch=16, momentum=0.5, augment=True))
    first = stacked.train(tasks)
    stacked.evaluate(tasks[1].weights, 0, 50)
    stacked.train(tasks[:2])
    assert_same_bits(stacked.train(tasks), first)
    other = StackedTrainer(small_norm, samples(), Solver(batch=16, momentum=0.5, augment=True))
    assert_same_bits(other.train(tasks), first)
    assert all(np.array_equal(task.weights, kept) for task, kept in zip(tasks, before, strict=True))


@pytest.mark.parametrize("model", [smooth, small_norm])
def test_company_order_and_chunks_change_results_by_rounding_only(model: Model) -> None:
    stacked = StackedTrainer(model, samples(), Solver(batch=16))
    tasks = mixed_tasks(model)
    together = stacked.train(tasks)
    assert_close([stacked.train([task])[0] for task in tasks], together)
    assert_close(stacked.train(tasks[::-1])[::-1], together)
    stacked.at_once = 2
    assert_close(stacked.train(tasks), together)
    assert stacked.train([]) == []


def test_a_task_that_diverges_does_not_spoil_the_others() -> None:
    reference, stacked = both(lenet, samples())
    tasks = mixed_tasks(lenet)
    tasks[3] = replace(tasks[3], lr=1e30)
    found, expected = stacked.train(tasks), reference.train(tasks)
    assert not np.isfinite(found[3].weights).all()
    assert np.isnan(found[3].loss) == np.isnan(expected[3].loss)
    del found[3], expected[3]
    assert_close(found, expected)


def test_fewer_tasks_of_a_big_model_are_trained_at_once() -> None:
    small = StackedTrainer(lenet, samples(), Solver(batch=16))
    data = samples((3, 32, 32), (4,))
    big = StackedTrainer(resnet, replace(data, indices=[np.arange(60)]), Solver(batch=60))
    assert small.at_once == 64
    assert 1 <= big.at_once < 32


def test_evaluation_is_the_reference_s() -> None:
    reference, stacked = both(small_norm, samples())
    (result, *_) = stacked.train(mixed_tasks(small_norm))
    assert stacked.evaluate(result.weights, 3, 90) == reference.evaluate(result.weights, 3, 90)


def test_workers_run_it_in_threads_of_their_own() -> None:
    data, tasks = samples(), mixed_tasks(smooth)
    reference, _ = both(smooth, data)
    pool = WorkerPool(lambda: StackedTrainer(smooth, data, Solver(batch=16)), 2, len(data.y_test))
    try:
        assert pool.name == "stacked"
        assert_close(pool.train(tasks), reference.train(tasks))
    finally:
        pool.close()


class _Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


class _Counting(nn.Module):
    """Keeps state where nobody can see it: every call gives something else."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.calls


@pytest.mark.parametrize(
    "layer",
    [lambda: nn.Dropout(0.5), _Branching, _Counting, lambda: nn.BatchNorm1d(10, momentum=None)],
    ids=["dropout", "branches on values", "state in an attribute", "cumulative BatchNorm"],
)
def test_a_model_that_cannot_be_stacked_is_refused_with_the_way_out(layer: Model) -> None:
    def model() -> nn.Module:
        return nn.Sequential(linear(), layer())

    with pytest.raises(ConfigError, match=r'cannot run this model .* use trainer = "torch"'):
        StackedTrainer(model, samples(), Solver(batch=16))
