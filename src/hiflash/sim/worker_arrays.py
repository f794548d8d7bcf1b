"""The samples as workers hold them: those to train on, then all that models are tested on, in one array."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hiflash.config import Config
from hiflash.data import Dataset
from hiflash.sim.population import Population

if TYPE_CHECKING:
    from hiflash.train.tasks import Task

__all__ = ["worker_arrays"]


def worker_arrays(config: Config, data: Dataset, population: Population, task: Task) -> list[np.ndarray]:
    """Return samples and answers as the workers take them: training, and test with what is held back."""
    validation = population.validation
    x, x_test = data.normalised(config.data.normalise, validation if len(validation) else None)
    y, y_test = task.targets(data.y), task.targets(data.y_test)
    if not data.numeric and data.y.ndim == 1:
        by_class = np.argsort(data.y_test, kind="stable")  # each class is one span: see `Federation.recall`
        x_test, y_test = x_test[by_class], y_test[by_class]
        validation = validation[np.argsort(data.y[validation], kind="stable")]
    if len(validation) or population.held_out:
        held = np.concatenate([validation, *population.held_out])  # after the test set, each client one span
        x_test, y_test = np.concatenate([x_test, x[held]]), np.concatenate([y_test, y[held]])
    return [x, y, x_test, y_test]
