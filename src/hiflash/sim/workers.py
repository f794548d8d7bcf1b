"""The workers of a run: threads of this process or a Ray cluster, with a trainer and the samples each."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hiflash.config import Config
from hiflash.data import Dataset
from hiflash.errors import ConfigError
from hiflash.execute.executor import RoundRules
from hiflash.execute.pool import WorkerPool
from hiflash.methods.plugins import import_function
from hiflash.sim.population import Population
from hiflash.sim.private import PrivacyPlan
from hiflash.sim.worker_arrays import worker_arrays

if TYPE_CHECKING:
    from torch import nn

    from hiflash.execute.ray_executor import RayExecutor
    from hiflash.train.function import OwnTraining
    from hiflash.train.task import Solver
    from hiflash.train.tasks import Task

__all__ = ["make_workers"]


def make_workers(
    config: Config,
    data: Dataset,
    population: Population,
    make: Callable[[], nn.Module],
    rules: RoundRules,
    task: Task,
    train: Callable[..., Any] | None,
    given: Sequence[np.ndarray] | None = None,
    plan: PrivacyPlan | None = None,
) -> WorkerPool | RayExecutor:
    """Return the workers of the executor that the configuration asks for; `given` are arrays of their own."""
    import torch

    from hiflash.train.choose import choose_trainer
    from hiflash.train.torch_trainer import Samples, resolve_device

    if data.x.ndim != 4 and config.data.augment:
        raise ConfigError(
            f"data.augment needs images, and these samples have shape {data.x.shape[1:]}; leave it out"
        )
    device = resolve_device(_device(config))
    x_array, y_array, *tested = given or worker_arrays(config, data, population, task)
    x_array, y_array, indices = rules.attack.poison(x_array, y_array, population.split.indices, data.classes)
    arrays = (x_array, y_array, *tested)
    x, y, x_test, y_test = (torch.from_numpy(array).to(device) for array in arrays)
    samples = Samples(x, y, indices, x_test, y_test, task)
    workers, solver = config.workers or os.cpu_count() or 1, _solver(config, plan)
    own = _own_training(config, train)
    make_trainer = choose_trainer(config.trainer, make, samples, solver, own)
    if config.executor == "local":
        return WorkerPool(make_trainer, workers, len(data.y_test), rules)
    from hiflash.execute.ray_cluster import connect
    from hiflash.execute.ray_executor import RayExecutor
    from hiflash.execute.ray_worker import Setup

    trainer, plugins = make_trainer().name, config.plugins
    if own is not None and train is None:
        plugins += (config.client.function.rpartition(":")[0],)  # the workers look the function up there
    setup = Setup(trainer, make, solver, arrays, indices, len(data.y_test), task, rules, plugins, own)
    return RayExecutor(setup, connect(config.ray.address, workers))


def _solver(config: Config, plan: PrivacyPlan | None) -> Solver:
    """Return how clients take their steps."""
    from hiflash.train.task import SamplePrivacy, Solver

    client = config.client
    return Solver(
        batch=client.batch,
        mu=client.mu,
        momentum=client.momentum,
        weight_decay=client.weight_decay,
        clip_norm=math.inf if client.clip_norm == "none" else client.clip_norm,
        augment=config.data.augment,
        optimizer=client.optimizer,
        private=SamplePrivacy(plan.clip, plan.noise) if plan is not None and plan.unit == "sample" else None,
    )


def _own_training(config: Config, train: Callable[..., Any] | None) -> OwnTraining | None:
    """Return the user's own training function, from the configuration or from Python."""
    from hiflash.train.function import OwnTraining

    client = config.client
    if client.algorithm != "function" or config.cloud.schedule == "centralized":
        return None
    if client.function == "own" and train is None:
        raise ConfigError("client.function is own: pass the function in Python, hiflash.run(..., train=...)")
    function = import_function(client.function) if train is None else train
    epochs = None if client.local_epochs == "none" else client.local_epochs
    return OwnTraining(function, epochs, client.extra_values)


def _device(config: Config) -> str:
    """Return the device to train on. Ray workers train on CPUs."""
    if config.executor == "local":
        return config.device
    if config.device not in ("auto", "cpu"):
        raise ConfigError(f'executor ray trains on processors, not on device {config.device}; use "cpu"')
    return "cpu"
