"""Tasks: their losses, their sums over spans, and their trivial predictors, worked by hand."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from hiflash.data import Dataset
from hiflash.errors import ConfigError
from hiflash.messages import ClientTask
from hiflash.train.choose import choose_trainer
from hiflash.train.models import initial_weights
from hiflash.train.native.trainer import NativeTrainer, NativeUnavailable
from hiflash.train.stacked import StackedTrainer
from hiflash.train.task import Solver
from hiflash.train.tasks import Classification, NextToken, Regression, Task, baseline
from hiflash.train.torch_trainer import Samples, TorchTrainer


def values(task: Task, outputs: Tensor, y: Tensor, cuts: tuple[int, ...] = ()) -> dict[str, float]:
    """Return the metrics over all samples, added up over spans that end at `cuts`."""
    bounds = [0, *cuts, len(y)]
    spans = [slice(*ends) for ends in pairwise(bounds)]
    sums = np.sum([task.total(outputs[span], y[span]) for span in spans], axis=0)
    results = task.results((sums / len(y)).tolist())
    return {metric.name: value for metric, value in zip(task.measured, results, strict=True)}


def numbers(y: list[list[float]], x: int = 1) -> Dataset:
    rows = np.zeros((len(y), x), np.float32)
    return Dataset.from_arrays(rows, y, rows, y, task="regression")


def test_regression_measures_in_the_units_of_the_target() -> None:
    # Targets 0, 10, 20: mean 10, deviation sqrt(200 / 3). Predictions 0, 10, 14: errors 0, 0, -6.
    data = numbers([[0.0], [10.0], [20.0]])
    task = Regression().fitted(data, "auto")
    y = torch.from_numpy(task.targets(data.y))
    assert y.ravel().tolist() == pytest.approx([-math.sqrt(1.5), 0.0, math.sqrt(1.5)])
    outputs = (torch.tensor([[0.0], [10.0], [14.0]]) - 10) / math.sqrt(200 / 3)
    expected = {
        "rmse": math.sqrt(36 / 3),
        "mae": 6 / 3,
        "r2": 1 - 36 / 200,  # squared errors over squared distances from the mean: 100 + 0 + 100
        "loss": 36 / 3 / (200 / 3),  # in squared deviations
    }
    for cuts in ((), (1,), (1, 2)):
        assert values(task, outputs, y, cuts) == pytest.approx(expected, rel=1e-5)


def test_several_targets_have_their_own_scale_and_count_equally() -> None:
    data = numbers([[0.0, 0.0], [2.0, 2000.0]])
    task = Regression().fitted(data, "auto")
    assert task.targets(data.y).tolist() == [[-1.0, -1.0], [1.0, 1.0]]
    y = torch.from_numpy(task.targets(data.y))
    found = values(task, torch.zeros(2, 2), y)  # always the mean: errors of 1 and of 1000
    assert found["loss"] == pytest.approx(1.0)
    assert found["rmse"] == pytest.approx(math.sqrt((1 + 1e6) / 2))
    assert found["mae"] == pytest.approx((1 + 1000) / 2)
    assert found["r2"] == pytest.approx(0.0)


def test_without_normalisation_the_target_stays_as_it_is() -> None:
    data = numbers([[5.0], [15.0]])
    assert Regression().fitted(data, "none").targets(data.y).tolist() == [[5.0], [15.0]]


def test_a_large_offset_does_not_drown_r2() -> None:
    data = numbers([[1e6], [1e6 + 1], [1e6 + 2]])
    task = Regression().fitted(data, "auto")
    y = torch.from_numpy(task.targets(data.y))
    assert values(task, y.clone(), y)["r2"] == pytest.approx(1.0)


def test_sequences_count_places_whatever_the_spans() -> None:
    # Two samples of two places; three of four answers are right. Logits of 1000 make the loss 0 or 1000.
    y = torch.tensor([[0, 1], [2, 2]])
    outputs = 1000 * functional.one_hot(torch.tensor([[0, 1], [2, 0]]), 3).float()
    for cuts in ((), (1,)):
        found = values(NextToken(), outputs, y, cuts)
        assert found["accuracy"] == 0.75
        assert found["loss"] == pytest.approx(250.0)
    assert NextToken().loss(outputs, y).item() == pytest.approx(250.0)
    last = values(NextToken(), torch.zeros(2, 3), torch.tensor([1, 0]))  # one answer for the whole sample
    assert last == pytest.approx({"accuracy": 0.5, "perplexity": 3.0, "loss": math.log(3)})


def test_the_baseline_is_the_majority_or_the_mean() -> None:
    x = np.zeros((4, 1), np.float32)
    labels = Dataset.from_arrays(x, [0, 1, 1, 1], x, [0, 0, 0, 1])
    found = baseline(Classification(), labels)
    assert found["accuracy"] == 0.75
    assert found["loss"] == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))
    data = Dataset.from_arrays(x, [0.0, 0.0, 4.0, 4.0], x, [2.0, 2.0, 2.0, 6.0], task="regression")
    # The mean of training is 2: errors 0, 0, 0, 4.
    assert baseline(Regression().fitted(data, "auto"), data)["rmse"] == pytest.approx(2.0)
    assert baseline(Task(), data) == {}


class Cubed(Regression):
    """The cubed error, a loss of one's own."""

    name = "cubed"

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        return (outputs.reshape(y.shape) - y).abs().pow(3).mean(1)


def table(task: Task, count: int = 60) -> Samples:
    stream = np.random.default_rng(0)
    x = stream.normal(size=(count, 3)).astype(np.float32)
    y = (x @ np.array([1.0, -2.0, 0.5], np.float32) + 3)[:, None].astype(np.float32)
    tensors = torch.from_numpy(x), torch.from_numpy(y)
    return Samples(*tensors, [np.arange(20), np.arange(20, count)], *tensors, task)


def tokens() -> Samples:
    x = torch.from_numpy(np.random.default_rng(1).integers(7, size=(60, 5)))
    return Samples(x, x.roll(-1, 1), [np.arange(20), np.arange(20, 60)], x, x.roll(-1, 1), NextToken())


def linear() -> nn.Module:
    return nn.Linear(3, 1)


def embedding() -> nn.Module:
    return nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7))


@pytest.mark.parametrize(
    ("make", "samples"),
    [(linear, table(Regression())), (linear, table(Cubed())), (embedding, tokens())],
    ids=["regression", "own", "sequence"],
)
def test_torch_and_stacked_train_every_task_alike_and_lower_its_loss(make, samples: Samples) -> None:
    solver, start = Solver(batch=10), initial_weights(make, 0)[0]
    tasks = [ClientTask(client, 0, 40, 0.05, start, 1) for client in (0, 1)]
    reference, stacked = (trainer(make, samples, solver) for trainer in (TorchTrainer, StackedTrainer))
    expected = reference.train(tasks)
    for got, wanted in zip(stacked.train(tasks), expected, strict=True):
        np.testing.assert_allclose(got.weights, wanted.weights, atol=1e-4)
        assert got.loss == pytest.approx(wanted.loss, rel=1e-3)
    assert reference.evaluate(expected[0].weights, 0, 60)[-1] < reference.evaluate(start, 0, 60)[-1]
    assert reference.evaluate(start, 60, 60) == tuple(0.0 for _ in reference.evaluate(start, 0, 1))


def test_the_compiled_trainer_leaves_other_tasks_to_torch_and_says_so(caplog) -> None:
    with pytest.raises(NativeUnavailable, match="the task regression has no compiled form"):
        NativeTrainer(linear, table(Regression()), Solver(batch=10))
    assert choose_trainer("auto", linear, table(Cubed()), Solver(batch=10))().name == "torch"
    assert "the task cubed has no compiled form" in caplog.text


class Summed(Task):
    """Adds its losses up, which is a mistake."""

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        return (outputs - y).square().sum()


@pytest.mark.parametrize(
    ("make", "samples", "said"),
    [
        (lambda: nn.Linear(3, 2), table(Regression()), r"gives \(2,\) for a sample, and should one number"),
        (
            lambda: nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 6)),
            tokens(),
            r"gives \(5, 6\) for a sample, and should one number for each of 7 classes, at each of 5 places",
        ),
        (
            lambda: nn.Sequential(nn.Embedding(7, 4), nn.Flatten(), nn.Linear(20, 7)),
            tokens(),
            r"gives \(7,\) for a sample",
        ),
        (
            lambda: nn.Sequential(nn.Embedding(6, 4), nn.Linear(4, 7)),
            tokens(),
            r"cannot run samples of shape \(5,\): index out of range",
        ),
        (linear, table(Summed()), r"the losses of task own must have shape \(4,\) for 4 samples, got \(\)"),
    ],
)
def test_a_model_that_does_not_suit_the_task_is_refused(make, samples: Samples, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        TorchTrainer(make, samples, Solver(batch=10))
