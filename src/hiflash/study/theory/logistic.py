"""Regularised multinomial logistic regression with full gradients: a task whose constants are known.

The loss of client k is the mean cross-entropy of its samples plus `l2 / 2 |w|^2`. Samples are centred by the
mean of all clients' samples and scaled so that their mean squared length is 1. There is no intercept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hiflash.errors import ConfigError

__all__ = [
    "Floats",
    "LogisticTask",
    "Optimum",
    "find_optimum",
    "largest_eigenvalue",
    "logistic_task",
    "product",
]

Floats = npt.NDArray[np.float64]

MODELS_AT_ONCE = 20  # evaluated in one pass over the samples: one pass per model would wait for the memory


@dataclass(frozen=True, eq=False)
class LogisticTask:
    """Samples in the order of their clients, labels, and the first sample of every client.

    A model is a flat vector of `classes` rows of `features` values.
    """

    x: Floats
    y: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    classes: int
    l2: float

    @property
    def size(self) -> int:
        """Return the number of values of a model."""
        return self.classes * int(self.x.shape[1])

    @property
    def examples(self) -> npt.NDArray[np.int64]:
        """Return the number of samples of every client."""
        return np.diff(self.starts)

    def rows(self, client: int) -> slice:
        """Return the samples of a client."""
        return slice(int(self.starts[client]), int(self.starts[client + 1]))

    def client_gradient(self, client: int, model: Floats) -> Floats:
        """Return the gradient of a client's loss."""
        rows = self.rows(client)
        x, weights = self.x[rows], model.reshape(self.classes, -1)
        wrong = _probabilities(product(x, weights.T))
        wrong[np.arange(len(x)), self.y[rows]] -= 1
        gradient: Floats = (product(wrong.T, x) / len(x) + self.l2 * weights).ravel()
        return gradient

    def cluster_loss(self, clients: Sequence[int], model: Floats) -> float:
        """Return the loss of an edge: the mean over the samples of its clients."""
        total, count = 0.0, 0
        for client in clients:
            rows = self.rows(client)
            logits = product(self.x[rows], model.reshape(self.classes, -1).T)
            total += float(_losses(logits, self.y[rows]).sum())
            count += len(self.y[rows])
        return total / count + self.l2 / 2 * float(model @ model)

    def losses(self, models: Sequence[Floats] | Floats) -> Floats:
        """Return the loss of each model over all samples."""
        found = []
        for some in _groups(models):
            logits = self._logits(some)
            found += [_losses(logits[:, place], self.y).mean() for place in range(len(some))]
        squares = [float(model @ model) for model in np.asarray(models, np.float64)]
        return np.array(found) + self.l2 / 2 * np.array(squares)

    def gradients(self, models: Sequence[Floats] | Floats) -> Floats:
        """Return the gradient over all samples at each model."""
        found = []
        for some in _groups(models):
            wrong = _probabilities(self._logits(some))
            wrong[np.arange(len(self.y)), :, self.y] -= 1
            flat = product(wrong.reshape(len(self.y), -1).T, self.x) / len(self.y)
            found.append(flat.reshape(len(some), -1) + self.l2 * some)
        return np.concatenate(found)

    def _logits(self, models: Floats) -> Floats:
        """Return the logits of every sample under every model: `[samples, models, classes]`."""
        stacked = models.reshape(len(models) * self.classes, -1)
        return product(self.x, stacked.T).reshape(len(self.x), len(models), self.classes)


@dataclass(frozen=True, eq=False)
class Optimum:
    """The model with the smallest loss, and by how much its loss may exceed the true minimum."""

    model: Floats
    loss: float
    error: float


def logistic_task(
    x: npt.NDArray[np.float32],
    y: npt.NDArray[np.int64],
    indices: Sequence[npt.NDArray[np.int64]],
    classes: int,
    l2: float,
) -> LogisticTask:
    """Return the task of a federation; `indices` are the samples of every client, which may overlap."""
    order = np.concatenate(indices)
    samples = x[order].reshape(len(order), -1).astype(np.float64)
    samples -= samples.mean(axis=0)
    samples = np.ascontiguousarray(samples[:, samples.any(axis=0)])  # a constant feature says nothing
    length = float(np.sqrt(np.square(samples).sum() / len(samples)))
    if not length:
        raise ConfigError("all samples are equal, so there is nothing to learn; use other data")
    samples /= length
    starts = np.concatenate([[0], np.cumsum([len(part) for part in indices])])
    return LogisticTask(samples, y[order], starts, classes, l2)


def find_optimum(task: LogisticTask) -> Optimum:
    """Return the optimum by L-BFGS; strong convexity tells its error: |gradient|^2 / (2 l2)."""
    from scipy.optimize import minimize

    def value(model: Floats) -> tuple[float, Floats]:
        return float(task.losses([model])[0]), task.gradients([model])[0]

    options = {"maxiter": 5000, "ftol": 0.0, "gtol": 1e-8, "maxcor": 30}
    found = minimize(value, np.zeros(task.size), jac=True, method="L-BFGS-B", options=options)
    loss, gradient = value(found.x)
    return Optimum(found.x, loss, float(gradient @ gradient) / (2 * task.l2))


def product(one: Floats, other: Floats) -> Floats:
    """Return the matrix product on one thread: two add in another order, and wait for each other."""
    import torch

    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)
    found: Floats = (torch.from_numpy(one) @ torch.from_numpy(other)).numpy()
    return found


def largest_eigenvalue(matrix: Floats) -> float:
    """Return the largest eigenvalue of a symmetric matrix, computed on one thread."""
    import torch

    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)
    return float(torch.linalg.eigvalsh(torch.from_numpy(matrix))[-1])


def _groups(models: Sequence[Floats] | Floats) -> Iterator[Floats]:
    for first in range(0, len(models), MODELS_AT_ONCE):
        yield np.asarray(models[first : first + MODELS_AT_ONCE], np.float64)


def _probabilities(logits: Floats) -> Floats:
    """Return the softmax over the last axis."""
    powers: Floats = np.exp(logits - logits.max(axis=-1, keepdims=True))
    powers /= powers.sum(axis=-1, keepdims=True)
    return powers


def _losses(logits: Floats, y: npt.NDArray[np.int64]) -> Floats:
    """Return the cross-entropy of every sample."""
    top = logits.max(axis=-1)
    sums: Floats = np.log(np.exp(logits - top[:, None]).sum(axis=-1)) + top
    return sums - logits[np.arange(len(y)), y]
