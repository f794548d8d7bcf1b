"""Client tasks run by torch, one model and one thread each: the readable reference trainer."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from hiflash.errors import ConfigError
from hiflash.messages import ClientTask, Weights
from hiflash.seeding import rng
from hiflash.train.models import FlatModel, check_output
from hiflash.train.optimizers import make_optimizer
from hiflash.train.task import Solver, TaskResult
from hiflash.train.tasks import Classification, Task

__all__ = ["Samples", "TorchTrainer", "clip_factor", "drawing", "resolve_device", "task_batches"]

EVALUATION_BATCH = 500
PROBE_SAMPLES = 4

_drawing = threading.Lock()


@dataclass(frozen=True)
class Samples:
    """The data as prepared tensors that all workers share, and the task.

    `indices` has the samples of every client.
    """

    x: Tensor
    y: Tensor
    indices: list[np.ndarray]
    x_test: Tensor
    y_test: Tensor
    task: Task = field(default_factory=Classification)


def resolve_device(name: str) -> torch.device:
    """Return the device to train on; `auto` is a GPU if there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f'device {name} is not available here; use "auto" or "cpu"')
    return torch.device(name)


def task_batches(task: ClientTask, part: np.ndarray, batch: int) -> list[np.ndarray]:
    """Return the samples of every step of a task: an epoch is a permutation, its last batch may be short."""
    per_epoch = math.ceil(len(part) / batch)
    batches: list[np.ndarray] = []
    drawn, order = -1, part
    for step in range(task.first_step, task.first_step + task.steps):
        epoch, position = divmod(step, per_epoch)
        if epoch != drawn:
            drawn, order = epoch, part[rng(task.seed, "client", task.client, epoch).permutation(len(part))]
        batches.append(order[position * batch : (position + 1) * batch])
    return batches


@contextmanager
def drawing(device: torch.device) -> Iterator[None]:
    """Give this thread torch's generator, which all threads share, and restore it afterwards."""
    with _drawing, torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield


def clip_factor(gradient: Tensor, clip_norm: float) -> Tensor:
    """Return the factor that clips each gradient to the norm `clip_norm`, as torch's `clip_grad_norm_` does.

    It is for the gradient of the loss: proximal term and weight decay are added afterwards. For a gradient
    with a NaN the factor is NaN, so that the NaN stays visible.
    """
    norm = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True)
    return torch.clamp(clip_norm / (norm + 1e-6), max=1.0)


class TorchTrainer:
    """Trains and evaluates with autograd. Not thread-safe: every worker has one of its own."""

    name = "torch"
    whole_rounds = False

    def __init__(self, make_model: Callable[[], nn.Module], samples: Samples, solver: Solver) -> None:
        self.samples = samples
        self.solver = solver
        self.flat = FlatModel(make_model(), samples.x.device)
        self._draws = self._probe()

    def train(self, tasks: Sequence[ClientTask]) -> list[TaskResult]:
        """Return the results in the order of the tasks."""
        return [self._train(task) for task in tasks]

    @torch.inference_mode()
    def evaluate(self, weights: Weights, start: int, stop: int) -> tuple[float, ...]:
        """Return the sums of the task's metrics on a span of the test set, that of the loss last."""
        self.flat.load(weights)
        self.flat.module.eval()
        samples, sums = self.samples, []
        for first in range(start, stop, EVALUATION_BATCH):
            span = slice(first, min(first + EVALUATION_BATCH, stop))
            sums.append(samples.task.total(self.flat.module(samples.x_test[span]), samples.y_test[span]))
        if not sums:  # a class without samples: as many zeros as a sample has sums
            one = samples.task.total(self.flat.module(samples.x_test[:1]), samples.y_test[:1])
            return tuple(0.0 for _ in one)
        return tuple(map(sum, zip(*sums, strict=True)))

    def _train(self, task: ClientTask) -> TaskResult:
        flat, solver, part = self.flat, self.solver, self.samples.indices[task.client]
        flat.load(task.weights)
        flat.module.train()
        trained = flat.values[: flat.trainable]
        mu = solver.mu + task.mu
        anchor = trained.clone() if mu else None
        correction = None if task.correction is None else torch.from_numpy(task.correction).to(trained.device)
        optimizer = make_optimizer(solver, flat.module, task.lr)
        velocity: Tensor | None = None
        loss_sum = 0.0
        for number, batch in enumerate(task_batches(task, part, solver.batch)):
            index = torch.from_numpy(batch)
            x = self.samples.x[index]
            if solver.augment:
                x = _crop_and_flip(x, rng(task.seed, "augment", task.client, task.first_step + number))
            flat.gradient.zero_()
            outputs = self._forward(x, task, task.first_step + number)
            loss = self.samples.task.loss(outputs, self.samples.y[index])
            loss.backward()  # type: ignore[no-untyped-call]  # torch has no annotation for it
            loss_sum += loss.item()
            if solver.clip_norm < math.inf:
                flat.gradient.mul_(clip_factor(flat.gradient, solver.clip_norm))
            if correction is not None:  # an algorithm's: u -= eta (g + v + mu (u - w))
                flat.gradient.add_(correction)
            if anchor is not None:  # FedProx: u -= eta (g + mu (u - w))
                flat.gradient.add_(trained - anchor, alpha=mu)
            if optimizer is not None:
                optimizer.step()
                continue
            if solver.weight_decay:
                flat.gradient.add_(trained, alpha=solver.weight_decay).masked_fill_(flat.frozen, 0)
            if solver.momentum:  # as in torch.optim.SGD, anew in every task
                velocity = (
                    flat.gradient.clone()
                    if velocity is None
                    else velocity.mul_(solver.momentum).add_(flat.gradient)
                )
            trained.add_(flat.gradient if velocity is None else velocity, alpha=-task.lr)
        return TaskResult(flat.weights(), loss_sum / task.steps)

    def _forward(self, x: Tensor, task: ClientTask, step: int) -> Tensor:
        """Return the outputs. If the model draws random numbers, task and step seed them."""
        if not self._draws:
            return self.flat.module(x)  # type: ignore[no-any-return]
        seed = int(rng(task.seed, "layers", task.client, step).integers(2**63))
        with drawing(x.device):
            torch.manual_seed(seed)
            return self.flat.module(x)  # type: ignore[no-any-return]

    @torch.no_grad()
    def _probe(self) -> bool:
        """Return whether the model draws random numbers when it trains; raise if it does not fit the data."""
        x = self.samples.x
        start = self.flat.weights()
        self.flat.module.train()
        try:
            with drawing(x.device):
                before = _generator_state(x.device)
                outputs = self.flat.module(x[_probe_rows(x)])
                draws = not torch.equal(before, _generator_state(x.device))
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            problem = str(error).split("\n")[0]
            raise ConfigError(
                f"the model cannot run samples of shape {tuple(x.shape[1:])}: {problem}"
            ) from error
        y = torch.cat([self.samples.y, self.samples.y_test])
        check_output(outputs, self.samples.task.expected(y))
        self.samples.task.check(outputs, y)
        self._probe_batch_of_one()
        self.flat.load(start)
        return draws

    def _probe_batch_of_one(self) -> None:
        """Raise if a client has a batch of one sample and the model cannot train on it, as with BatchNorm."""
        sizes = [len(part) for part in self.samples.indices]
        short = [
            client
            for client, size in enumerate(sizes)
            if size % self.solver.batch == 1 or self.solver.batch == 1
        ]
        if not short:
            return
        x = self.samples.x
        try:
            with drawing(x.device):
                self.flat.module(x[:1])
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                raise
            size = sizes[short[0]]
            raise ConfigError(
                "BatchNorm cannot train on a batch of one sample, and with client.batch = "
                f"{self.solver.batch} the last batch of client {short[0]}, with {size} samples, is one; "
                "choose another client.batch or data.partition, or use GroupNorm"
            ) from error


def _probe_rows(x: Tensor) -> Tensor:
    """Return a few samples. Of token ids the last has the highest, which an embedding may lack."""
    rows = torch.arange(PROBE_SAMPLES) % len(x)
    if not x.is_floating_point():
        rows[-1] = x.reshape(len(x), -1).amax(1).argmax()
    return rows


def _generator_state(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _crop_and_flip(x: Tensor, stream: np.random.Generator, pad: int = 4) -> Tensor:
    """Return every image shifted by up to `pad` pixels in each direction, half of them mirrored."""
    count, _, height, width = x.shape
    top, left = stream.integers(2 * pad + 1, size=(2, count))
    mirror = stream.random(count) < 0.5
    columns = left[:, None] + np.where(mirror[:, None], np.arange(width)[::-1], np.arange(width))
    rows = top[:, None] + np.arange(height)
    padded = functional.pad(x, (pad, pad, pad, pad))
    which = torch.arange(count)[:, None, None]
    # Indexing by (sample, row, column) around the channel axis puts that axis last.
    moved = padded[which, :, torch.from_numpy(rows)[:, :, None], torch.from_numpy(columns)[:, None, :]]
    return moved.permute(0, 3, 1, 2).contiguous()
