"""The correction and the proximal weight of a task, in all three trainers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from hiflash.errors import ConfigError
from hiflash.messages import ClientTask
from hiflash.train.choose import choose_trainer
from hiflash.train.models import FlatModel, initial_weights
from hiflash.train.native.trainer import NativeTrainer
from hiflash.train.optimizers import optimizer_names
from hiflash.train.stacked import StackedTrainer
from hiflash.train.task import Solver
from hiflash.train.torch_trainer import Samples, TorchTrainer, task_batches
from tiny import make_norm_model, make_tiny_data, make_tiny_model

TRAINERS = (NativeTrainer, TorchTrainer, StackedTrainer)


def samples() -> Samples:
    data = make_tiny_data()
    x, x_test = (torch.from_numpy(array) for array in data.normalised())
    indices = [np.arange(client, 300, 3) for client in range(3)]
    return Samples(x, torch.from_numpy(data.y), indices, x_test, torch.from_numpy(data.y_test))


START = initial_weights(make_tiny_model, 0)[0]
VECTOR = np.random.default_rng(0).normal(size=len(START)).astype(np.float32)


def by_hand(task: ClientTask, solver: Solver) -> np.ndarray:
    """Return the weights after u <- u - lr m, m <- momentum m + clip(g) + v + mu (u - w) + decay u."""
    data = samples()
    flat = FlatModel(make_tiny_model(), torch.device("cpu"))
    flat.load(task.weights)
    start, velocity = flat.values.clone(), torch.zeros_like(flat.values)
    for batch in task_batches(task, data.indices[task.client], solver.batch):
        flat.gradient.zero_()
        functional.cross_entropy(flat.module(data.x[batch]), data.y[batch]).backward()
        step = flat.gradient * min(1.0, solver.clip_norm / float(flat.gradient.norm()))
        if task.correction is not None:
            step = step + torch.from_numpy(task.correction)
        step = step + (solver.mu + task.mu) * (flat.values - start) + solver.weight_decay * flat.values
        velocity = solver.momentum * velocity + step
        flat.values.sub_(task.lr * velocity)
    return flat.weights()


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("hyper", [{}, {"mu": 0.3, "momentum": 0.5, "weight_decay": 0.1, "clip_norm": 0.2}])
def test_every_trainer_adds_the_correction_after_clipping(trainer: Any, hyper: dict[str, float]) -> None:
    solver = Solver(batch=20, **hyper)
    tasks = [
        ClientTask(0, 0, 4, 0.1, START, 5),
        ClientTask(1, 2, 3, 0.1, START, 5, correction=VECTOR),
        ClientTask(2, 0, 4, 0.1, START, 5, correction=-VECTOR, mu=0.7),
        ClientTask(0, 0, 4, 0.1, START, 5, mu=0.7),
    ]
    made = trainer(make_tiny_model, samples(), solver)
    for task, result in zip(tasks, made.train(tasks), strict=True):
        np.testing.assert_allclose(result.weights, by_hand(task, solver), atol=2e-6)


@pytest.mark.parametrize("trainer", [NativeTrainer, TorchTrainer])
def test_a_correction_leaves_no_trace_in_the_next_task(trainer: Any) -> None:
    plain = ClientTask(0, 0, 3, 0.1, START, 5)
    zero = ClientTask(0, 0, 3, 0.1, START, 5, correction=np.zeros_like(START))
    corrected = ClientTask(0, 0, 3, 0.1, START, 5, correction=VECTOR, mu=0.5)
    made = trainer(make_tiny_model, samples(), Solver(batch=20))
    first, _, second, third = (made.train([task])[0].weights for task in (plain, corrected, plain, zero))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, third)


def test_a_correction_of_the_wrong_size_is_an_error_in_c() -> None:
    made = NativeTrainer(make_tiny_model, samples(), Solver(batch=20))
    with pytest.raises(ValueError, match="209 parameters got weights of shape"):
        made.train([ClientTask(0, 0, 1, 0.1, START, 5, correction=VECTOR[1:])])


@pytest.mark.parametrize("trainer", [TorchTrainer, StackedTrainer])
def test_running_statistics_have_no_correction(trainer: Any) -> None:
    start, _, trained = initial_weights(make_norm_model, 0)
    correction = np.ones(trained, np.float32)
    made = trainer(make_norm_model, samples(), Solver(batch=20))
    plain, corrected = (
        made.train([ClientTask(0, 0, 1, 0.1, start, 5, correction=vector)])[0].weights
        for vector in (None, correction)
    )
    np.testing.assert_allclose(plain[:trained] - corrected[:trained], 0.1, atol=1e-5)
    np.testing.assert_allclose(plain[trained:], corrected[trained:], atol=1e-6)


@pytest.mark.parametrize("name", optimizer_names())
def test_every_optimiser_of_torch_trains(name: str) -> None:
    made = TorchTrainer(make_tiny_model, samples(), Solver(batch=20, optimizer=name))
    task = ClientTask(0, 0, 5, 0.01, START, 5)
    one, other = (made.train([task])[0] for _ in range(2))
    np.testing.assert_array_equal(one.weights, other.weights)  # its state starts anew
    assert np.isfinite(one.weights).all()
    assert not np.array_equal(one.weights, START)


def test_adam_takes_torchs_steps_with_correction_and_proximal_term() -> None:
    solver = Solver(batch=20, optimizer="adam", weight_decay=0.1)
    task = ClientTask(0, 0, 3, 0.01, START, 5, correction=VECTOR, mu=0.5)
    (result,) = TorchTrainer(make_tiny_model, samples(), solver).train([task])
    data, flat = samples(), FlatModel(make_tiny_model(), torch.device("cpu"))
    flat.load(START)
    adam = torch.optim.Adam(flat.module.parameters(), lr=0.01, weight_decay=0.1)
    for batch in task_batches(task, data.indices[0], 20):
        flat.gradient.zero_()
        functional.cross_entropy(flat.module(data.x[batch]), data.y[batch]).backward()
        flat.gradient.add_(torch.from_numpy(VECTOR) + 0.5 * (flat.values - torch.from_numpy(START)))
        adam.step()
    np.testing.assert_allclose(result.weights, flat.weights(), atol=1e-6)


@pytest.mark.parametrize(
    ("solver", "trainer", "said"),
    [
        (
            Solver(batch=20, optimizer="adan"),
            "torch",
            "client.optimizer must be one of .*sgd.*adan",
        ),
        (Solver(batch=20, optimizer="lbfgs"), "torch", "client.optimizer must be one of"),
        (Solver(batch=20, optimizer="adam", momentum=0.5), "torch", "client.momentum has no effect with"),
        (Solver(batch=20, optimizer="rprop", weight_decay=0.5), "torch", "client.weight_decay has no effect"),
        (Solver(batch=20, optimizer="adam"), "stacked", "trainer stacked takes SGD steps"),
        (Solver(batch=20, optimizer="adam"), "native", "trainer native cannot run this: the optimiser adam"),
    ],
)
def test_an_optimiser_that_cannot_be_used_is_named(solver: Solver, trainer: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        choose_trainer(trainer, make_tiny_model, samples(), solver)()
