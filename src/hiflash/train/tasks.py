"""Tasks: what a model learns. A task has a loss, metrics, a width of the output and a trivial predictor."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from hiflash.core.metrics import ACCURACY, LOSS, Metric
from hiflash.data import Dataset
from hiflash.errors import ConfigError

__all__ = [
    "Classification",
    "NextToken",
    "Regression",
    "Task",
    "baseline",
    "classification",
    "regression",
    "sequence",
]


class Task:
    """A loss with metrics. Subclass it for a task of your own: `losses` alone is enough.

    `metrics` lists what `scores` returns, the one of the table and the target first. Every task has `loss`
    besides.
    """

    name = "own"
    metrics: tuple[Metric, ...] = ()

    def fitted(self, data: Dataset, normalise: str) -> Self:
        """Return this task for a dataset; `normalise` is the setting of that name."""
        return self

    def targets(self, y: np.ndarray) -> np.ndarray:
        """Return the answers as the loss takes them."""
        return y

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the loss of every sample, `[n]`."""
        raise NotImplementedError

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss of a batch, which training lowers."""
        return self.losses(outputs, y).mean()

    def sums(self, outputs: Tensor, y: Tensor) -> Sequence[Tensor]:
        """Return the sums over samples that `scores` needs the means of; they add up over spans."""
        return ()

    def scores(self, means: Sequence[float], loss: float) -> Mapping[str, float]:
        """Return the metrics by name, from the means of `sums` and of the loss over a set of samples."""
        return {}

    def trivial(self, y: Tensor, y_test: Tensor) -> Tensor | None:
        """Return the outputs of the best constant answer for the test set, None if unknown."""
        return None

    def expected(self, y: Tensor) -> str:
        """Return in words what a model must give for a sample with answers of the form of `y`."""
        return f"what the losses of task {self.name} take"

    def check(self, outputs: Tensor, y: Tensor) -> None:
        """Raise unless the model's outputs for some samples suit all answers `y`."""
        losses = self.losses(outputs, y[: len(outputs)])
        if losses.shape != (len(outputs),):
            raise ConfigError(
                f"the losses of task {self.name} must have shape ({len(outputs)},) for {len(outputs)} "
                f"samples, got {tuple(losses.shape)}; do not add them up"
            )

    @property
    def measured(self) -> tuple[Metric, ...]:
        """Return all metrics: the task's own, and the loss."""
        return (*self.metrics, LOSS)

    def total(self, outputs: Tensor, y: Tensor) -> tuple[float, ...]:
        """Return the sums of a span of samples, that of the loss last."""
        return (*map(float, self.sums(outputs, y)), float(self.losses(outputs, y).sum()))

    def results(self, means: Sequence[float]) -> tuple[float, ...]:
        """Return the value of every metric of `measured`, from the means of `total`."""
        *sums, loss = means
        scores = self.scores(sums, loss)
        return (*(float(scores[metric.name]) for metric in self.metrics), loss)


class Classification(Task):
    """One class per sample: cross-entropy and accuracy."""

    name = "classification"
    metrics: tuple[Metric, ...] = (ACCURACY,)

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the cross-entropy of every sample."""
        return functional.cross_entropy(outputs, y, reduction="none")

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the mean cross-entropy."""
        if type(self).losses is not Classification.losses:  # a user's own
            return super().loss(outputs, y)
        return functional.cross_entropy(outputs, y)  # one kernel: faster than the mean of `losses`

    def sums(self, outputs: Tensor, y: Tensor) -> Sequence[Tensor]:
        """Return the number of right answers."""
        return ((outputs.argmax(1) == y).sum(),)

    def scores(self, means: Sequence[float], loss: float) -> Mapping[str, float]:
        """Return the accuracy."""
        return {"accuracy": means[0]}

    def trivial(self, y: Tensor, y_test: Tensor) -> Tensor | None:
        """Return the logarithms of the frequencies, whose largest is the most frequent answer."""
        counts = torch.bincount(y_test.reshape(-1).cpu())
        frequencies = (counts / counts.sum()).clamp(min=1e-12).log()
        return frequencies.expand(*y_test.shape, -1)

    def expected(self, y: Tensor) -> str:
        """Return in words what a model must give for a sample."""
        each = "" if y.ndim == 1 else f", at each of {y.shape[1]} places"
        return f"one number for each of {1 + int(y.max())} classes{each}"

    def check(self, outputs: Tensor, y: Tensor) -> None:
        """Raise unless there is one number per sample and class, or more."""
        given = tuple(outputs.shape[1:])
        if len(given) != y.ndim or given[:-1] != tuple(y.shape[1:]) or given[-1] <= int(y.max()):
            raise ConfigError(f"the model gives {given} for a sample, and should {self.expected(y)}")


class NextToken(Classification):
    """The next token, or the next one at every place: cross-entropy, accuracy and perplexity.

    With an answer at every place, `outputs` are `[n, length, vocabulary]`, and a sample's loss and accuracy
    are means over its places.
    """

    name = "sequence"
    metrics = (ACCURACY, Metric("perplexity", "lower"))

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the mean cross-entropy over the places of every sample."""
        flat = functional.cross_entropy(
            outputs.reshape(-1, outputs.shape[-1]), y.reshape(-1), reduction="none"
        )
        return flat.reshape(len(y), -1).mean(1)

    def sums(self, outputs: Tensor, y: Tensor) -> Sequence[Tensor]:
        """Return the number of right answers per place."""
        right: Tensor = (outputs.argmax(-1) == y).sum() * len(y) / y.numel()
        return (right,)

    def scores(self, means: Sequence[float], loss: float) -> Mapping[str, float]:
        """Return accuracy and perplexity, the exponential of the loss."""
        return {"accuracy": means[0], "perplexity": math.exp(min(loss, 700.0))}


class Regression(Task):
    """Numbers to predict: squared error in units of the training deviation; metrics in the data's units.

    A model learns the standardised target, so that `client.lr` does not depend on the target's unit. With
    `data.normalise = "none"` it learns the target itself. Several targets count equally: `rmse` and `mae` are
    over all of them, `r2` is their mean.
    """

    name = "regression"
    metrics = (Metric("rmse", "lower"), Metric("mae", "lower"), Metric("r2", "higher"))

    def __init__(self) -> None:
        self.mean: np.ndarray = np.zeros(1, np.float32)
        self.deviation: np.ndarray = np.ones(1, np.float32)

    def fitted(self, data: Dataset, normalise: str) -> Self:
        """Return this task with the mean and the deviation of the training targets."""
        if normalise == "none":
            return self
        y = data.y.reshape(len(data.y), -1).astype(np.float64)
        task, deviation = copy.copy(self), y.std(axis=0)
        task.mean = y.mean(axis=0).astype(np.float32)
        task.deviation = np.where(deviation > 0, deviation, 1.0).astype(np.float32)
        return task

    def targets(self, y: np.ndarray) -> np.ndarray:
        """Return the standardised targets `[n, k]`."""
        return np.asarray((y.reshape(len(y), -1) - self.mean) / self.deviation, np.float32)

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the squared error of every sample, the mean over its targets."""
        return (outputs.reshape(y.shape) - y).square().mean(1)

    def sums(self, outputs: Tensor, y: Tensor) -> Sequence[Tensor]:
        """Return for each target the sums of squared and absolute errors, of targets and of their squares."""
        deviation = torch.from_numpy(self.deviation).double()
        # Targets count from their training mean, which would drown their squares.
        error = (outputs.reshape(y.shape).cpu().double() - y.cpu().double()) * deviation
        away = y.cpu().double() * deviation
        return [*error.square().sum(0), *error.abs().sum(0), *away.sum(0), *away.square().sum(0)]

    def scores(self, means: Sequence[float], loss: float) -> Mapping[str, float]:
        """Return root mean squared error, mean absolute error and R squared."""
        squared, absolute, first, second = np.reshape(np.asarray(means, np.float64), (4, -1))
        with np.errstate(invalid="ignore", divide="ignore"):
            r2 = 1 - squared / (second - first**2)
        return {"rmse": math.sqrt(squared.mean()), "mae": absolute.mean(), "r2": float(r2.mean())}

    def trivial(self, y: Tensor, y_test: Tensor) -> Tensor | None:
        """Return the mean of the training targets."""
        return y.mean(0, keepdim=True).expand(len(y_test), -1)

    def expected(self, y: Tensor) -> str:
        """Return in words what a model must give for a sample."""
        return f"one number for each of {y.shape[1]} targets" if y.shape[1] > 1 else "one number"

    def check(self, outputs: Tensor, y: Tensor) -> None:
        """Raise unless there is one number per sample and target."""
        given = tuple(outputs.shape[1:])
        if math.prod(given) != y.shape[1]:
            raise ConfigError(f"the model gives {given} for a sample, and should {self.expected(y)}")


def baseline(task: Task, data: Dataset) -> dict[str, float]:
    """Return the metrics of one and the same answer for every test sample; empty if the task knows none."""
    y, y_test = (torch.from_numpy(task.targets(part)) for part in (data.y, data.y_test))
    outputs = task.trivial(y, y_test)
    if outputs is None:
        return {}
    values = task.results([total / len(y_test) for total in task.total(outputs, y_test)])
    return {metric.name: value for metric, value in zip(task.measured, values, strict=True)}


def classification(config: object) -> Task:
    """Return the task `classification`; it has no settings."""
    return Classification()


def regression(config: object) -> Task:
    """Return the task `regression`; it has no settings."""
    return Regression()


def sequence(config: object) -> Task:
    """Return the task `sequence`; it has no settings."""
    return NextToken()
