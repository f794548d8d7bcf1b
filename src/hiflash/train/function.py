"""`client.algorithm = "function"`: the user's own training of a client (docs/client_algorithms.md)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hiflash.errors import ProtocolError
from hiflash.messages import ClientTask, Extra, Weights
from hiflash.seeding import rng
from hiflash.train.task import Solver, TaskResult
from hiflash.train.torch_trainer import Samples, TorchTrainer, drawing, task_batches

__all__ = ["Batch", "Context", "FunctionTrainer", "OwnTraining"]

KINDS = "fiub"  # numbers and truth values: what a checkpoint can hold


@dataclass(frozen=True)
class OwnTraining:
    """A user's function, the passes over the data that it is asked for, and the values that it may send."""

    function: Callable[..., Any]
    epochs: int | None = None
    extra_values: int = 0


@dataclass(frozen=True)
class Batch:
    """Samples and labels of a client, or of one step. They are copies: a function may change them."""

    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Context:
    """What a training function may want to know beside model and data.

    `state` is the client's own dictionary of arrays. What the function leaves in it, the client has in its
    next task. `extra` has the arrays that the cloud sent: the mean of what clients sent before. `epochs` is
    None unless `client.local_epochs` is set. `rng` and `generator` are streams of this task; torch's own
    generator is seeded too.
    """

    client: int
    first_step: int
    steps: int
    epochs: int | None
    batch: int
    lr: float
    state: dict[str, np.ndarray]
    extra: Mapping[str, np.ndarray]
    rng: np.random.Generator
    generator: torch.Generator
    _task: ClientTask

    def batches(self, data: Batch) -> Iterator[Batch]:
        """Yield the mini-batches that plain SGD would use in this task, one per step."""
        for chosen in task_batches(self._task, np.arange(len(data.y)), self.batch):
            index = torch.from_numpy(chosen)
            yield Batch(data.x[index], data.y[index])


class FunctionTrainer(TorchTrainer):
    """Trains with a user's function and evaluates with torch. Not thread-safe: every worker has its own.

    Each task gets a new module, so nothing but `context.state` outlives a task. Torch has one generator for
    all threads, and the function may draw from it: so the threads of a process run one function at a time.
    """

    def __init__(
        self, make_model: Callable[[], nn.Module], samples: Samples, solver: Solver, own: OwnTraining
    ) -> None:
        super().__init__(make_model, samples, solver)
        self.own = own
        self._pristine = make_model().to(samples.x.device)

    def _train(self, task: ClientTask) -> TaskResult:
        stream, device = rng(task.seed, "function", task.client, task.first_step), self.samples.x.device
        seeds = stream.integers(2**63, size=2).tolist()
        part = torch.from_numpy(self.samples.indices[task.client])
        module = copy.deepcopy(self._pristine)
        self._load(module, task.weights)
        module.train()
        context = Context(
            client=task.client,
            first_step=task.first_step,
            steps=task.steps,
            epochs=self.own.epochs,
            batch=self.solver.batch,
            lr=task.lr,
            state={name: array.copy() for name, array in task.state.items()},
            extra={name: array.copy() for name, array in task.extra.items()},
            rng=stream,
            generator=torch.Generator().manual_seed(seeds[0]),
            _task=task,
        )
        data = Batch(self.samples.x[part], self.samples.y[part])
        with drawing(device), torch.enable_grad():
            torch.manual_seed(seeds[1])
            returned = self.own.function(module, data, context)
        metrics, extra = self._returned(returned)
        state = {_name(name): _array(name, value) for name, value in context.state.items()}
        loss = metrics.get("loss", math.nan)
        return TaskResult(self._weights(module), loss, state, extra, metrics)

    def _load(self, module: nn.Module, weights: Weights) -> None:
        tensors = _tensors(module)
        with torch.no_grad():
            for name, values in self.flat.spec.split(weights).items():
                tensors[name].copy_(torch.from_numpy(values))

    def _weights(self, module: nn.Module) -> Weights:
        """Return the model that a function left; raise if it has other tensors than before."""
        tensors = _tensors(module)
        for name, shape in self.flat.spec.tensors:
            got = tensors.get(name)
            if got is None or tuple(got.shape) != shape:
                what = "has none" if got is None else f"it has shape {tuple(got.shape)}"
                raise ProtocolError(
                    f"train must leave the model's tensors as they are: {name} had shape {shape}, and now "
                    f"{what}; change values only"
                )
        parts = [
            tensors[name].detach().to("cpu", torch.float32).reshape(-1).numpy()
            for name, _ in self.flat.spec.tensors
        ]
        return np.concatenate(parts)

    def _returned(self, returned: object) -> tuple[dict[str, float], Extra]:
        """Return the finite metrics and the arrays among what a function returned."""
        if returned is None:
            return {}, {}
        if not isinstance(returned, Mapping):
            raise ProtocolError(
                "train must return None, or numbers (metrics) and arrays by name, got "
                f"{type(returned).__name__}"
            )
        metrics: dict[str, float] = {}
        extra: dict[str, Weights] = {}
        for name, value in returned.items():
            array = _array(name, value)
            if array.ndim == 0:
                if np.isfinite(array):  # JSON has no NaN, and one would spoil the mean of all
                    metrics[_name(name)] = float(array)
            else:
                extra[_name(name)] = array.astype(np.float32)
        values = sum(array.size for array in extra.values())
        if values > self.own.extra_values:
            raise ProtocolError(
                f"train returned arrays with {values:,} numbers, and client.extra_values is "
                f"{self.own.extra_values:,}; set client.extra_values = {values}"
            )
        return metrics, extra


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _name(name: object) -> str:
    if isinstance(name, str):
        return name
    raise ProtocolError(f"train must give its numbers and arrays names, got {name!r}")


def _array(name: object, value: object) -> np.ndarray:
    """Return a copy of a user's value as an array of numbers."""
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    try:
        array = np.array(value)
    except ValueError:
        array = np.array(None)
    if array.dtype.kind not in KINDS:
        raise ProtocolError(f"train gave {name!r} as {type(value).__name__}; numbers and arrays are possible")
    return array
