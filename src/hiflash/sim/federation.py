"""Builds everything a run needs from a configuration and data: clients, model, workers, `Engine`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from hiflash.config import Config
from hiflash.core.algorithms.algorithm import ClientAlgorithm, Steps
from hiflash.core.attack import Attack, draw_malicious
from hiflash.core.metrics import Metric, find_metric
from hiflash.data import Dataset, Partition, training_part
from hiflash.data.arrays import as_answers, as_samples
from hiflash.errors import ConfigError, DataError
from hiflash.execute.executor import RoundRules
from hiflash.execute.pool import WorkerPool
from hiflash.execute.secure import PrivateRounds, SecureRules
from hiflash.messages import Weights
from hiflash.methods.kinds import KINDS
from hiflash.methods.registry import aggregate, threshold_policy, usual_model
from hiflash.methods.registry import make as make_part
from hiflash.privacy.randomness import SeededRandomness
from hiflash.privacy.sums.packages import require_packages
from hiflash.sim.build import Materials, simulator
from hiflash.sim.centralized import Centralized
from hiflash.sim.events import Log
from hiflash.sim.machines import StartModel, check_clusters, check_samples, workload_of
from hiflash.sim.plan_privacy import plan_of
from hiflash.sim.population import Population, populate, validation_of
from hiflash.sim.private import PrivacyPlan
from hiflash.sim.session import Engine
from hiflash.sim.workers import make_workers
from hiflash.weights import Spans, Spec

if TYPE_CHECKING:
    from torch import nn

    from hiflash.execute.ray_executor import RayExecutor
    from hiflash.train.tasks import Task

__all__ = ["Federation", "build", "build_client", "outline", "survey"]


@dataclass(frozen=True)
class Federation:
    """The fixed parts of a run. Without a pool nothing is trained.

    `local` are the spans of a model that clients do not share.
    """

    config: Config
    data: Dataset | None
    population: Population
    model_name: str
    start: StartModel
    pool: WorkerPool | RayExecutor | None
    task: Task
    local: Spans = ()

    @property
    def trainer(self) -> str:
        """Return the name of the trainer."""
        return "none" if self.pool is None else self.pool.name

    @property
    def parameters(self) -> int:
        """Return the number of trained values of the model."""
        return self.start.trained

    def engine(self, log: Log) -> Engine:
        """Return the `Engine` of this configuration, before its first event."""
        if self.config.cloud.schedule == "centralized" and self.pool is not None:
            workload = workload_of(self.config, int(self.population.examples[0]))
            steps, seed = self.config.stop.steps, self.config.seed
            return Centralized(self.start.weights, workload, self.pool, steps=steps, seed=seed, log=log)
        recall = None if self.pool is None else self.watched_recall
        materials = Materials(executor=self.pool, recall=recall, log=log)
        return simulator(self.config, self.population, self.start, materials)

    @property
    def metric(self) -> Metric:
        """Return the metric of the target and of the tables."""
        return find_metric(self.config.stop.metric, self.task.measured, self.task.name)

    @property
    def validated(self) -> bool:
        """Return whether there is a validation set, whose metric decides while a run goes on."""
        return self.pool is not None and len(self.population.validation) > 0

    def evaluate(self, weights: Weights) -> tuple[float, ...]:
        """Return the value of every metric on the test set, and on the validation set if there is one."""
        if self.pool is None:
            raise ConfigError('trainer "none" has no model to measure')
        sizes = [self.pool.test_size] + [len(self.population.validation)] * self.validated
        means = self.pool.means(weights, sizes)
        return tuple(value for part in means for value in self.task.results(part))

    def chance(self) -> float | None:
        """Return the metric of a model that always gives the same answer, None if unknown."""
        if self.data is None or self.pool is None:
            return None
        from hiflash.train.tasks import baseline

        return baseline(self.task, self.data).get(self.metric.name)

    def recall(self, weights: Weights) -> tuple[float, ...]:
        """Return a model's accuracy on the test samples of each class; 0 for a class without samples."""
        return self._recall(weights, validation=False)

    def watched_recall(self, weights: Weights) -> tuple[float, ...]:
        """Return the recall of each class that a cloud may look at: on the validation set if there is one."""
        return self._recall(weights, validation=self.validated)

    def _recall(self, weights: Weights, *, validation: bool) -> tuple[float, ...]:
        if self.pool is None or self.data is None:
            raise ConfigError('trainer "none" has no model to measure')
        labels = self.data.y[self.population.validation] if validation else self.data.y_test
        counts = np.bincount(labels, minlength=self.data.classes)
        first = self.pool.test_size if validation else 0
        ends = (first + np.cumsum(counts)).tolist()  # the workers' sets are in the order of the classes
        tested = self.pool.sums(weights, list(pairwise([first, *ends])))
        return tuple(sums[0] / max(count, 1) for sums, count in zip(tested, counts.tolist(), strict=True))

    def client_sums(self, weights: Weights, clients: Sequence[int]) -> list[tuple[float, ...]]:
        """Return the task's sums over the held-out samples of some clients."""
        if self.pool is None:
            raise ConfigError('trainer "none" has no model to measure')
        sizes = [len(part) for part in self.population.held_out]
        first = self.pool.test_size + len(self.population.validation)
        ends = [first + int(end) for end in np.cumsum([0, *sizes])]
        return self.pool.sums(weights, [(ends[client], ends[client + 1]) for client in clients])

    def close(self) -> None:
        """End the workers."""
        if self.pool is not None:
            self.pool.close()


def build(
    config: Config,
    data: Dataset | None = None,
    model: nn.Module | Callable[[], nn.Module] | None = None,
    indices: Sequence[Any] | None = None,
    train: Callable[..., Any] | None = None,
    *,
    elsewhere: bool = False,
) -> Federation:
    """Return the federation of a configuration, with a user's own `data`, `model` and `indices` if given.

    `train` is a user's own training function, where the configuration names none. If the clients' samples are
    `elsewhere`, the training data only say what a sample looks like.
    """
    from hiflash.train.models import initial_weights

    data, name, make = _materials(config, data, model)
    data, task = _task(config, data)
    initial, spec, trainable = initial_weights(make, config.seed)
    population = populate(config, None if elsewhere else data, indices, spec.size)
    check_clusters(config, population.clusters)
    check_samples(config, population.examples.tolist())
    if config.cloud.schedule == "async":
        threshold_policy(config)  # an unusable agent must fail before any file is written
    local = _local_spans(config, make, name)
    if config.trainer == "none" or data is None:
        nothing = np.zeros(1, np.float32)  # a placeholder: without training nothing reads the model
        return Federation(config, data, population, name, StartModel(nothing, spec, trainable), None, task)
    start = StartModel(initial, spec, trainable)
    plan = _privacy_plan(config, population, start)
    sums = None if plan is None else plan.edge_sums(SeededRandomness(config.seed))
    rules = _round_rules(config, local, trainable, sums)
    pool = make_workers(config, data, population, make, rules, task, train, plan=plan)
    return Federation(config, data, population, name, start, pool, task, local)


def build_client(config: Config, client: int, x: Any, y: Any) -> Federation:
    """Return the federation as a client sees it that brings its own samples `x` with answers `y`.

    The configuration's dataset says what a sample looks like, and how it is scaled.
    """
    from hiflash.train.models import initial_weights

    data, name, make = _materials(config, None, None)
    data, task = _task(config, data)
    if data is None:
        raise ConfigError('data.name = "none" does not say what a sample looks like; name a dataset')
    where = f"samples of client {client}"
    own = replace(data, x_test=as_samples(x, task.name, where), y_test=as_answers(y, task.name, where))
    start = StartModel(*initial_weights(make, config.seed))
    held = [np.arange(len(own.y_test) if each == client else 0) for each in range(config.federation.clients)]
    population = replace(populate(config, None, None, start.spec.size), split=Partition(held, 0.0, "own"))
    scaled = [each.normalised(config.data.normalise)[1] for each in (own, data)]
    arrays = [scaled[0], task.targets(own.y_test), scaled[1], task.targets(data.y_test)]
    rules = _round_rules(config, _local_spans(config, make, name), start.trained)
    pool = make_workers(config, data, population, make, rules, task, None, arrays)
    return Federation(config, data, population, name, start, pool, task, rules.local)


def survey(config: Config) -> tuple[Dataset | None, Population]:
    """Return the data and the clients of a configuration under the random association, without workers."""
    data, spec = outline(config)
    anywhere = {"federation.association": "random"}
    if config.federation.files:
        anywhere["trainer"] = "none"  # labels may be given that are not those of the dataset
    return data, populate(config.with_choices(anywhere), data, None, spec.size)


def outline(config: Config) -> tuple[Dataset | None, Spec]:
    """Return the data of a configuration and the shapes of its model; no seed changes them."""
    from hiflash.train.models import initial_weights

    data, _, make = _materials(config, None, None)
    return data, initial_weights(make, config.seed)[1]


def _materials(
    config: Config, data: Dataset | None, model: nn.Module | Callable[[], nn.Module] | None
) -> tuple[Dataset | None, str, Callable[[], nn.Module]]:
    """Return the data, the name of the model, and a function that makes the model."""
    from hiflash.train.models import build_model

    if config.data.name == "own" and data is None:
        raise ConfigError("data.name is own: pass the data in Python, hiflash.run(..., data=...)")
    if data is None and config.data.name != "none":
        made = make_part("dataset", config)
        data = made if made.name == config.data.name else replace(made, name=config.data.name)
    name: str = config.model.name if model is None else "own"
    if name == "auto":
        name = usual_model(data.name if data else config.data.name)
    if name == "own" and model is None:
        raise ConfigError("model.name is own: pass the model in Python, hiflash.run(..., model=...)")
    shape = (1, 28, 28) if data is None else tuple(data.x.shape[1:])
    outputs = 10 if data is None else data.outputs
    tokens = data is not None and data.x.dtype.kind == "i"
    # `make` must not hold the data, because Ray sends `make` to other processes.
    if model is not None:
        return data, name, partial(_own_model, model)
    part = KINDS["model"].parts[name]
    return data, name, partial(build_model, part, config, shape, outputs, tokens=tokens)


def _task(config: Config, data: Dataset | None) -> tuple[Dataset | None, Task]:
    """Return the data in the form of the task, and the task with its metric checked."""
    name, tasks = config.data.task, KINDS["task"].parts
    if name == "auto":
        name = "classification" if data is None else data.task
        if name != "classification":  # the target was chosen for classes
            raise ConfigError(
                f"the dataset {config.data.name} has the task {name}, and its entry does not say so; set "
                f'data.task = "{name}", or give its Part settings={{"data.task": "{name}"}}'
            )
    if name not in tasks:
        raise ConfigError(
            f'the task {name} of the data is not known; register it with hiflash.register("task", ...), '
            f"or use {', '.join(tasks)}"
        )
    if data is not None and name != data.task:
        try:
            data = replace(data, task=name)
        except DataError as error:
            raise ConfigError(f"data.task = {name} does not suit this data: {error}") from error
    task = tasks[name].build(config)
    if data is not None:
        task = task.fitted(training_part(data, validation_of(config, data)), config.data.normalise)
    metric = find_metric(config.stop.metric, task.measured, name)
    if config.stop.target != "none":
        metric.check_target(config.stop.target)
    if problem := _needs_classes(config, name):
        raise ConfigError(f"{problem} needs one class per sample, and the task here is {name}; leave it out")
    return data, task


def _needs_classes(config: Config, task: str) -> str:
    """Return the setting that works on classes alone, if the task has none."""
    if task == "classification":
        return ""
    if config.cloud.schedule == "sync" and config.cloud.selection == "tiers":
        return 'cloud.selection = "tiers" (it measures each class)'
    return 'attack.kind = "label_flip"' if config.attack.kind == "label_flip" else ""


def _local_spans(config: Config, make: Callable[[], nn.Module], name: str) -> Spans:
    """Return the parts of a model that clients do not share."""
    from hiflash.train.models import batch_norm_spans

    if config.client.batch_norm != "local":
        return ()
    local = batch_norm_spans(make())
    if not local:
        raise ConfigError(
            f'client.batch_norm = "local" needs a model with BatchNorm, and {name} has none; leave it out'
        )
    return local


def _own_model(model: nn.Module | Callable[[], nn.Module]) -> nn.Module:
    """Return another instance of a user's own model."""
    from torch import nn

    return copy.deepcopy(model) if isinstance(model, nn.Module) else model()


def _privacy_plan(config: Config, population: Population, start: StartModel) -> PrivacyPlan | None:
    """Return what a run does for privacy, None for nothing; raise if its model cannot have noise."""
    plan = plan_of(config, population, start.spec.size)
    if plan is None:
        return None
    if start.trained < start.spec.size:
        raise ConfigError(
            "dp.unit needs a model without running statistics such as those of BatchNorm: noise would make "
            "their variances negative, and they mix samples; use GroupNorm, or another model.name"
        )
    return plan


def _round_rules(
    config: Config, local: Spans, trained: int, private: PrivateRounds | None = None
) -> RoundRules:
    client = config.client
    algorithm: ClientAlgorithm = make_part("client algorithm", config)
    counter = Steps(client.momentum, client.mu) if client.optimizer == "sgd" else Steps()
    rule = algorithm.rule(aggregate(config, "edge"), trained)
    secure = None
    if config.edge.secure != "off":
        require_packages('edge.secure = "secagg"')
        secure, private = SecureRules(config.edge.secure_bound, config.seed, private), None
    return RoundRules(rule, _attack(config), local, algorithm, counter, trained, private, secure)


def _attack(config: Config) -> Attack:
    share = 0.0 if config.attack.kind == "none" else config.attack.share
    malicious = draw_malicious(config.federation.clients, share, config.seed)
    attack: Attack = make_part("attack", config, malicious)
    return attack
