"""Trains all client tasks of a call together: one batched kernel instead of one kernel per client.

Made for GPUs: a single small model leaves them idle. Results equal those of `TorchTrainer` up to rounding.
Batched kernels add in another order, so the last bits depend on which tasks share a call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from hiflash.errors import ConfigError
from hiflash.messages import ClientTask
from hiflash.seeding import rng
from hiflash.train.task import Solver, TaskResult
from hiflash.train.torch_trainer import (
    PROBE_SAMPLES,
    Samples,
    TorchTrainer,
    _crop_and_flip,
    clip_factor,
    task_batches,
)

__all__ = ["StackedTrainer"]

# Constants, not the free memory: the same call must always be split, and so rounded, the same way.
MOST_TASKS = 64
MEMORY = 4 * 2**30  # bytes for activations and weights of the tasks trained together, roughly
TOLERANCE = 0.05  # of the norm: far above the rounding of reduced-precision kernels, far below a wrong result


class StackedTrainer(TorchTrainer):
    """Trains many tasks as one. Not thread-safe: every worker has one of its own.

    A model that cannot be stacked (dropout, control flow that depends on values) raises `ConfigError`.
    """

    name = "stacked"
    whole_rounds = True

    def __init__(self, make_model: Callable[[], nn.Module], samples: Samples, solver: Solver) -> None:
        if solver.optimizer != "sgd":
            raise ConfigError(
                f'trainer stacked takes SGD steps, and client.optimizer is "{solver.optimizer}"; '
                'use trainer = "torch"'
            )
        super().__init__(make_model, samples, solver)
        module = self.flat.module
        self._parameters = dict(module.named_parameters())
        self._statistics = {n: b for n, b in module.named_buffers() if b.is_floating_point()}
        self._counters = {n: b for n, b in module.named_buffers() if not b.is_floating_point()}
        self._gradients = vmap(grad_and_value(self._loss, has_aux=True), randomness="error")
        module.train()
        start = self.flat.values.clone()
        probe = torch.arange(PROBE_SAMPLES) % len(samples.x)
        x, y = samples.x[probe], samples.y[probe]
        self._coupled = self._couples_samples(x)
        self.flat.values.copy_(start)
        saved = self._check(x, y, start)
        largest = min(solver.batch, max(len(part) for part in samples.indices))
        task_bytes = saved * largest // PROBE_SAMPLES + 6 * start.nbytes
        self.at_once = max(1, min(MOST_TASKS, MEMORY // task_bytes))

    def train(self, tasks: Sequence[ClientTask]) -> list[TaskResult]:
        """Return the results in the order of the tasks."""
        self.flat.module.train()
        # Longest first: the tasks with steps left are then always the first rows of a stack.
        order = sorted(range(len(tasks)), key=lambda i: -tasks[i].steps)
        results: dict[int, TaskResult] = {}
        for first in range(0, len(order), self.at_once):
            chosen = order[first : first + self.at_once]
            results.update(zip(chosen, self._train_stack([tasks[i] for i in chosen]), strict=True))
        return [results[i] for i in range(len(tasks))]

    def _train_stack(self, tasks: Sequence[ClientTask]) -> list[TaskResult]:
        device, trainable, solver = self.samples.x.device, self.flat.trainable, self.solver
        models = {id(task.weights): task.weights for task in tasks}  # usually one: send it once
        place = {key: number for number, key in enumerate(models)}
        stacked = torch.from_numpy(np.stack(list(models.values()), dtype=np.float32)).to(device)
        values = stacked[[place[id(task.weights)] for task in tasks]]
        corrections = self._corrections(tasks)
        mus = torch.tensor([solver.mu + task.mu for task in tasks], device=device)[:, None]
        anchors = values[:, :trainable].clone() if mus.any() else None
        velocity = torch.zeros_like(values[:, :trainable]) if solver.momentum else None
        rates = torch.tensor([task.lr for task in tasks], dtype=torch.float32, device=device)[:, None]
        losses = torch.zeros(len(tasks), tasks[0].steps, device=device)
        plans = [task_batches(task, self.samples.indices[task.client], solver.batch) for task in tasks]
        for step in range(tasks[0].steps):
            batches = [plan[step] for plan in plans if len(plan) > step]
            for rows in self._groups(batches):
                x, y, shares = self._stack_batches([tasks[i] for i in rows], [batches[i] for i in rows], step)
                state, trained = values[rows], values[rows, :trainable]
                change, loss, statistics = self._step(state, x, y, shares)
                if solver.clip_norm < math.inf:
                    change.mul_(clip_factor(change, solver.clip_norm))
                if corrections is not None:  # an algorithm's: u -= eta (g + v + mu (u - w))
                    change.add_(corrections[rows])
                if anchors is not None:  # FedProx: u -= eta (g + mu (u - w))
                    change.add_(mus[rows] * (trained - anchors[rows]))
                if solver.weight_decay:
                    change.add_(trained, alpha=solver.weight_decay).masked_fill_(self.flat.frozen, 0)
                if velocity is not None:  # as in torch.optim.SGD, zero at the start of every task
                    velocity[rows] = change.add_(velocity[rows], alpha=solver.momentum)
                values[rows] = torch.cat([trained - rates[rows] * change, statistics], 1)
                losses[rows, step] = loss
        sums = losses.cpu().double().sum(1).tolist()
        return [
            TaskResult(row.copy(), total / task.steps)
            for row, total, task in zip(values.cpu().numpy(), sums, tasks, strict=True)
        ]

    def _corrections(self, tasks: Sequence[ClientTask]) -> Tensor | None:
        """Return the tasks' corrections, a row for each task, None if no task has one."""
        if all(task.correction is None for task in tasks):
            return None
        none = np.zeros(self.flat.trainable, np.float32)
        rows = [none if task.correction is None else task.correction for task in tasks]
        return torch.from_numpy(np.stack(rows)).to(self.samples.x.device)

    def _groups(self, batches: Sequence[np.ndarray]) -> list[list[int]]:
        """Return groups of rows that can train together: all rows, unless padding enters batch statistics."""
        groups: dict[int, list[int]] = {}
        for row, batch in enumerate(batches):
            groups.setdefault(len(batch) if self._coupled else 0, []).append(row)
        return list(groups.values())

    def _stack_batches(
        self, tasks: Sequence[ClientTask], batches: Sequence[np.ndarray], step: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return samples, labels and every sample's share in its task's loss (0 for padding)."""
        device, width = self.samples.x.device, max(len(batch) for batch in batches)
        # Padding repeats the batch's own samples, so it cannot add a new value or a new overflow.
        index = torch.from_numpy(np.stack([np.resize(batch, width) for batch in batches])).to(device)
        x = self.samples.x[index]
        if self.solver.augment:
            for row, (task, batch) in enumerate(zip(tasks, batches, strict=True)):
                stream = rng(task.seed, "augment", task.client, task.first_step + step)
                x[row, : len(batch)] = _crop_and_flip(x[row, : len(batch)], stream)
        sizes = torch.tensor([[len(batch)] for batch in batches], device=device)
        return x, self.samples.y[index], (torch.arange(width, device=device) < sizes) / sizes

    def _step(self, state: Tensor, x: Tensor, y: Tensor, shares: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return gradients, losses and new running statistics, a row for each row of `state`."""
        count, start, buffers = len(state), self.flat.trainable, {}
        for name, buffer in self._statistics.items():
            piece = state[:, start : start + buffer.numel()].reshape(count, *buffer.shape)
            # A contiguous copy: vmap's BatchNorm updates it in place, and silently skips strided tensors.
            buffers[name] = piece.clone(memory_format=torch.contiguous_format)
            start += buffer.numel()
        for name, buffer in self._counters.items():
            buffers[name] = buffer.expand(count, *buffer.shape).clone()
        gradient, (loss, new) = self._gradients(state[:, : self.flat.trainable], buffers, x, y, shares)
        flat = [new[name].reshape(count, -1) for name in self._statistics]
        return gradient, loss, torch.cat(flat, 1) if flat else state[:, :0]

    def _loss(
        self, trained: Tensor, buffers: dict[str, Tensor], x: Tensor, y: Tensor, shares: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return one task's loss and its new running statistics."""
        state = dict(buffers)
        # One split instead of many slices: its backward pass writes the flat gradient once.
        pieces = torch.split(trained, [parameter.numel() for parameter in self._parameters.values()])
        for (name, parameter), piece in zip(self._parameters.items(), pieces, strict=True):
            value = piece.view(parameter.shape)
            state[name] = value if parameter.requires_grad else value.detach()
        outputs = functional_call(self.flat.module, state, (x,))
        losses = self.samples.task.losses(outputs, y)
        return (losses * shares).sum(), {name: state[name] for name in self._statistics}

    @torch.no_grad()
    def _couples_samples(self, x: Tensor) -> bool:
        """Return whether a sample changes the output of another sample, or the running statistics.

        A NaN passes every layer, even a weight of 0; only comparisons stop it. This spoils the running
        statistics: the caller restores them.
        """
        if not x.is_floating_point():  # there is no token that is not a number: assume the worst
            return True
        outputs = self.flat.module(torch.cat([x[:1], torch.full_like(x[1:], torch.nan)]))
        seen = outputs[0], self.flat.values[self.flat.trainable :]
        return any(bool(tensor.isnan().any()) for tensor in seen)

    def _check(self, x: Tensor, y: Tensor, start: Tensor) -> int:
        """Raise if a stacked step differs from an ordinary step; return the bytes that this step kept."""
        flat, saved = self.flat, 0

        def pack(tensor: Tensor) -> Tensor:
            nonlocal saved
            if tensor.untyped_storage().data_ptr() != flat.values.untyped_storage().data_ptr():
                saved += tensor.nbytes
            return tensor

        flat.gradient.zero_()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = self.samples.task.loss(flat.module(x), y)
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no annotation for it
        problem = "its steps differ from those of torch"
        try:
            shares = torch.full((2, len(x)), 1 / len(x), device=x.device)
            state, x, y = (torch.stack([tensor, tensor]) for tensor in (start, x, y))
            gradient, _, statistics = self._step(state, x, y, shares)
        except RuntimeError as error:
            problem = str(error).split("\n")[0]
        else:
            kept, before = flat.values[flat.trainable :], start[flat.trainable :]
            pairs = [(gradient, flat.gradient), (statistics - before, kept - before)]
            if all((a - b).norm(dim=1).max() <= TOLERANCE * b.norm() + 1e-6 for a, b in pairs):
                return saved
        raise ConfigError(f'trainer stacked cannot run this model ({problem}); use trainer = "torch"')
