from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from hiflash.errors import ConfigError
from hiflash.execute.pool import WorkerPool
from hiflash.messages import ClientTask
from hiflash.seeding import rng
from hiflash.train.models import FlatModel, initial_weights, lenet
from hiflash.train.task import Solver, TaskResult
from hiflash.train.torch_trainer import Samples, TorchTrainer, _crop_and_flip, clip_factor, task_batches


def samples(count: int = 130, shape: tuple[int, ...] = (1, 28, 28)) -> Samples:
    stream = np.random.default_rng(0)
    x = torch.from_numpy(stream.normal(size=(count, *shape)).astype(np.float32))
    y = torch.from_numpy(stream.integers(10, size=count))
    return Samples(x, y, [np.arange(100), np.arange(100, count)], x, y)


def test_an_epoch_is_a_permutation_and_its_short_last_batch_is_used() -> None:
    part = np.arange(1000, 1010)
    batches = task_batches(ClientTask(3, 0, 6, 0.1, None, 0), part, 4)
    assert [len(batch) for batch in batches] == [4, 4, 2, 4, 4, 2]
    assert sorted(np.concatenate(batches[:3])) == part.tolist()
    assert sorted(np.concatenate(batches[3:])) == part.tolist()
    assert np.concatenate(batches[:3]).tolist() != np.concatenate(batches[3:]).tolist()


def test_a_client_smaller_than_the_batch_uses_all_it_has() -> None:
    (batch,) = task_batches(ClientTask(0, 7, 1, 0.1, None, 0), np.array([5, 9]), 60)
    assert sorted(batch) == [5, 9]


def test_where_a_task_begins_does_not_change_its_steps() -> None:
    part = np.arange(25)
    whole = task_batches(ClientTask(3, 0, 9, 0.1, None, 0), part, 10)
    pieces = [task_batches(ClientTask(3, first, 3, 0.1, None, 0), part, 10) for first in (0, 3, 6)]
    assert [batch.tolist() for batch in whole] == [batch.tolist() for piece in pieces for batch in piece]


@pytest.mark.parametrize("clip", [math.inf, 0.5])
@pytest.mark.parametrize(("mu", "momentum", "decay"), [(0.0, 0.0, 0.0), (0.3, 0.0, 0.0), (0.1, 0.9, 0.01)])
def test_steps_equal_those_of_torch_sgd(mu: float, momentum: float, decay: float, clip: float) -> None:
    data = samples()
    start, _, _ = initial_weights(lenet, 1)
    task = ClientTask(client=0, first_step=4, steps=3, lr=0.1, weights=start, seed=9)
    solver = Solver(batch=32, mu=mu, momentum=momentum, weight_decay=decay, clip_norm=clip)
    trainer = TorchTrainer(lenet, data, solver)
    (result,) = trainer.train([task])

    flat = FlatModel(lenet(), torch.device("cpu"))
    flat.load(start)
    optimizer = torch.optim.SGD(flat.module.parameters(), lr=0.1, momentum=momentum, weight_decay=decay)
    anchor = torch.from_numpy(start.copy())
    losses = []
    for batch in task_batches(task, data.indices[0], 32):
        index = torch.from_numpy(batch)
        optimizer.zero_grad(set_to_none=False)
        loss = nn.functional.cross_entropy(flat.module(data.x[index]), data.y[index])
        loss.backward()
        norm = nn.utils.clip_grad_norm_(flat.module.parameters(), clip)
        assert norm > 0.5  # or nothing is clipped
        # FedProx as its definition has it: the gradient of mu/2 |u - w|^2 is added by autograd.
        current = torch.cat([p.reshape(-1) for p in flat.module.parameters()])
        (mu / 2 * ((current - anchor) ** 2).sum()).backward()
        optimizer.step()
        losses.append(loss.item())
    np.testing.assert_allclose(result.weights, flat.weights(), atol=1e-6)
    assert result.loss == pytest.approx(np.mean(losses), rel=1e-6)


def test_a_gradient_is_shortened_but_never_lengthened_and_a_nan_stays_one() -> None:
    gradients = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [math.nan, 1.0], [math.inf, 1.0]])
    factors = clip_factor(gradients, 1.0)
    assert factors[:3, 0].tolist() == pytest.approx([1 / 5.000001, 1.0, 1.0])  # 5, 0.5 and 0 long
    assert (factors * gradients).isnan().any(1).tolist() == [False, False, False, True, True]


def test_a_task_gives_the_same_bits_alone_among_others_and_on_any_worker() -> None:
    data = samples()
    start, _, _ = initial_weights(lenet, 1)
    tasks = [ClientTask(k % 2, 3 * k, 3, 0.05, start, 0) for k in range(6)]

    def trainer() -> TorchTrainer:
        return TorchTrainer(lenet, data, Solver(batch=30))

    def results(workers: int, tasks: list[ClientTask]) -> list[TaskResult]:
        pool = WorkerPool(trainer, workers, len(data.y_test))
        try:
            return pool.train(tasks)
        finally:
            pool.close()

    alone = [results(1, [task])[0] for task in tasks]
    for workers in (1, 2, 3):
        together = results(workers, tasks)
        assert all(np.array_equal(a.weights, b.weights) for a, b in zip(alone, together, strict=True))
        assert [a.loss for a in alone] == [b.loss for b in together]


def with_dropout(p: float = 0.5) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 20), nn.Dropout(p), nn.Linear(20, 10))


def cumulative() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.BatchNorm1d(10, momentum=None))


@pytest.mark.parametrize("model", [with_dropout, cumulative])
def test_models_that_draw_or_count_give_the_same_bits_on_any_worker(model: Callable[[], nn.Module]) -> None:
    data = replace(samples(400), indices=[np.arange(k * 50, k * 50 + 50) for k in range(8)])
    start, _, _ = initial_weights(model, 0)
    tasks = [ClientTask(client, 2, 6, 0.1, start, 3) for client in range(8)]
    results = []
    for workers in (1, 3):
        pool = WorkerPool(lambda: TorchTrainer(model, data, Solver(batch=20)), workers, len(data.y_test))
        try:
            results.append(pool.train(tasks[::workers]) + pool.train(tasks))
        finally:
            pool.close()
    first, *others = results[0][:8], results[0][8:], results[1][3:]
    for one, *same in zip(first, *others, strict=True):
        for other in same:
            np.testing.assert_array_equal(one.weights, other.weights)
            assert one.loss == other.loss


def test_dropout_draws_anew_in_every_step_and_leaves_torch_s_generator_alone() -> None:
    data = samples()
    start, _, _ = initial_weights(with_dropout, 0)
    trainer = TorchTrainer(with_dropout, data, Solver(batch=130))  # a step takes all samples, in any order
    torch.manual_seed(5)
    state = torch.get_rng_state()
    losses = [trainer.train([ClientTask(0, step, 1, 0.1, start, 0)])[0].loss for step in (0, 1)]
    assert torch.equal(state, torch.get_rng_state())
    whole = TorchTrainer(lambda: with_dropout(0.0), data, Solver(batch=130))
    without = [whole.train([ClientTask(0, step, 1, 0.1, start, 0)])[0].loss for step in (0, 1)]
    assert without[0] == pytest.approx(without[1], rel=1e-5)
    assert abs(losses[0] - losses[1]) > 1e-3
    assert abs(losses[0] - without[0]) > 1e-3


def test_weight_decay_leaves_frozen_parameters_alone() -> None:
    def model() -> nn.Module:
        frozen = nn.Linear(784, 10).requires_grad_(False)
        return nn.Sequential(nn.Flatten(), frozen, nn.Tanh(), nn.Linear(10, 10))

    start, _, _ = initial_weights(model, 0)
    trainer = TorchTrainer(model, samples(), Solver(batch=32, weight_decay=0.1, momentum=0.5))
    (result,) = trainer.train([ClientTask(0, 0, 3, 0.1, start, 0)])
    np.testing.assert_array_equal(result.weights[:7850], start[:7850])  # 784 * 10 + 10
    assert not np.isclose(result.weights[7850:], start[7850:]).all()


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ([nn.Flatten(), nn.Linear(3, 10)], r"cannot run samples of shape \(1, 28, 28\): mat1"),
        ([nn.Flatten(), nn.Linear(784, 9)], r"gives \(9,\) for a sample, .* each of 10 classes"),
        ([nn.Linear(28, 10)], r"gives \(1, 28, 10\) for a sample"),
    ],
)
def test_a_model_that_does_not_fit_the_data_is_refused(layers: list[nn.Module], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        TorchTrainer(lambda: nn.Sequential(*layers), samples(), Solver(batch=10))


def test_evaluation_does_not_depend_on_the_number_of_workers() -> None:
    data = samples(1230)
    start, _, _ = initial_weights(lenet, 1)
    found = set()
    for workers in (1, 2):
        pool = WorkerPool(lambda: TorchTrainer(lenet, data, Solver(batch=30)), workers, len(data.y_test))
        found.add(pool.evaluate(start))
        pool.close()
    ((accuracy, loss),) = found
    flat = FlatModel(lenet(), torch.device("cpu"))
    flat.load(start)
    with torch.no_grad():
        logits = flat.module(data.x_test)
    assert accuracy == int((logits.argmax(1) == data.y_test).sum()) / 1230
    assert loss == pytest.approx(nn.functional.cross_entropy(logits, data.y_test).item(), rel=1e-5)


def test_running_statistics_are_trained_and_returned() -> None:
    def model() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.BatchNorm1d(10))

    start, spec, _ = initial_weights(model, 0)
    task = ClientTask(0, 0, 2, 0.1, start, 0)
    (result,) = TorchTrainer(model, samples(), Solver(batch=20)).train([task])
    before, after = spec.split(start), spec.split(result.weights)
    assert not np.array_equal(before["2.running_mean"], after["2.running_mean"])
    assert not np.array_equal(before["1.weight"], after["1.weight"])


def test_augmentation_shifts_and_mirrors_images() -> None:
    picture = torch.arange(2 * 3 * 8 * 8, dtype=torch.float32).reshape(2, 3, 8, 8) + 1
    seen = set()
    for number in range(40):
        stream = rng(0, "augment", number)
        (top, _), (left, _) = rng(0, "augment", number).integers(9, size=(2, 2))
        moved = _crop_and_flip(picture, stream)
        padded = nn.functional.pad(picture, (4, 4, 4, 4))
        window = padded[0, :, top : top + 8, left : left + 8]
        mirrored = torch.equal(moved[0], window.flip(-1))
        assert mirrored or torch.equal(moved[0], window)
        seen.add(mirrored)
    assert seen == {True, False}
