"""The interface of trainers: they turn client tasks into weights, and only the task decides the result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hiflash.messages import ClientTask, Extra, Weights

__all__ = ["SamplePrivacy", "Solver", "TaskResult", "Trainer", "WorkerTrainer"]


@dataclass(frozen=True, slots=True)
class SamplePrivacy:
    """What keeps single samples private: the norm of their gradients, and noise in multiples of it."""

    clip: float
    noise: float


@dataclass(frozen=True, slots=True)
class Solver:
    """How a client takes its SGD steps, the same for all tasks of a run.

    `momentum` and `weight_decay` are those of torch.optim.SGD; its state starts anew in each task.
    `clip_norm` is that of torch's `clip_grad_norm_`, for the gradient of the loss. `mu` is FedProx's.
    `optimizer` is `sgd`, or the name of another optimiser of torch. With `private` steps are those of DP-SGD.
    """

    batch: int
    mu: float = 0.0
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip_norm: float = math.inf
    augment: bool = False
    optimizer: str = "sgd"
    private: SamplePrivacy | None = None


@dataclass(frozen=True, slots=True, eq=False)
class TaskResult:
    """The final weights and the mean loss of one client task.

    Only a user's own training function gives the rest: the client's new state, arrays to send beside the
    model, and metrics.
    """

    weights: Weights
    loss: float
    state: Extra = field(default_factory=dict)
    extra: Extra = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)


class Trainer(Protocol):
    """Runs client tasks: pure, so that the same task gives the same bits on any worker."""

    def train(self, tasks: Sequence[ClientTask]) -> list[TaskResult]:
        """Return the results in the order of the tasks."""
        ...


class WorkerTrainer(Trainer, Protocol):
    """The trainer of one worker. It also tests models."""

    name: str
    whole_rounds: bool
    """Whether it trains all tasks of a round faster together than one by one."""

    def evaluate(self, weights: Weights, start: int, stop: int) -> tuple[float, ...]:
        """Return the sums of the task's metrics on a span of the test set, that of the loss last."""
        ...
