"""Client tasks whose steps keep single samples private: DP-SGD (Abadi et al. 2016) through Opacus.

Every sample of a client joins a step by itself, with probability batch / samples. Opacus clips the gradient
of each and adds noise to their sum, which is divided by the expected number. Names decide batches and noise,
as they do in every other trainer.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from hiflash.errors import ConfigError
from hiflash.messages import ClientTask
from hiflash.seeding import rng
from hiflash.train.task import SamplePrivacy, Solver, TaskResult
from hiflash.train.torch_trainer import Samples, TorchTrainer

__all__ = ["PrivateTrainer", "joining_samples"]


def joining_samples(task: ClientTask, part: np.ndarray, batch: int, step: int) -> np.ndarray:
    """Return the samples of a step: each joins by itself, with probability batch / samples."""
    stream = rng(task.seed, "private batch", task.client, step)
    return part[stream.random(len(part)) < batch / len(part)]


class PrivateTrainer(TorchTrainer):
    """Trains with clipped gradients of single samples, and noise. Models with BatchNorm do not fit."""

    def __init__(
        self, make_model: Callable[[], nn.Module], samples: Samples, solver: Solver, private: SamplePrivacy
    ) -> None:
        super().__init__(make_model, samples, solver)
        self.private = private
        opacus = _opacus()
        # Inputs need no gradients, which torch mentions once per layer.
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        try:
            self.wrapped = opacus.GradSampleModule(self.flat.module)
        except (NotImplementedError, ValueError) as error:
            reason = str(error).split("\n")[0]
            raise ConfigError(f'dp.unit = "sample" cannot clip the samples of this model: {reason}') from None
        self._optimizers = importlib.import_module("opacus.optimizers")

    def _train(self, task: ClientTask) -> TaskResult:
        flat, solver, part = self.flat, self.solver, self.samples.indices[task.client]
        flat.load(task.weights)
        self.wrapped.train()
        trained = flat.values[: flat.trainable]
        mu = solver.mu + task.mu
        anchor = trained.clone() if mu else None
        optimizer, losses = self._optimizer(task, len(part)), []
        for step in range(task.first_step, task.first_step + task.steps):
            batch = joining_samples(task, part, solver.batch, step)
            seed = int(rng(task.seed, "sample noise", task.client, step).integers(2**63))
            optimizer.generator.manual_seed(seed)
            optimizer.zero_grad()
            losses.append(self._gradients(task, batch, step))
            optimizer.pre_step()  # clips, adds up, adds noise, divides
            if anchor is not None:  # of the noised gradient, so it costs nothing
                self._add(mu * (trained - anchor))
            optimizer.original_optimizer.step()
        return TaskResult(flat.weights(), sum(losses) / len(losses))

    def _optimizer(self, task: ClientTask, samples: int) -> Any:
        plain = torch.optim.SGD(
            self.wrapped.parameters(),
            lr=task.lr,
            momentum=self.solver.momentum,
            weight_decay=self.solver.weight_decay,
        )
        return self._optimizers.DPOptimizer(
            plain,
            noise_multiplier=self.private.noise,
            max_grad_norm=self.private.clip,
            expected_batch_size=min(self.solver.batch, samples),
            generator=torch.Generator(self.samples.x.device),
        )

    def _gradients(self, task: ClientTask, batch: np.ndarray, step: int) -> float:
        """Compute the gradient of every sample and return the mean loss; without samples there is noise."""
        if not len(batch):
            for parameter in self.wrapped.parameters():
                parameter.grad_sample = torch.zeros((0, *parameter.shape), device=parameter.device)
            return 0.0
        index = torch.from_numpy(batch)
        outputs = self._forward(self.samples.x[index], task, step)
        loss = self.samples.task.loss(outputs, self.samples.y[index])
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no annotation for it
        return float(loss.item())

    def _add(self, values: torch.Tensor) -> None:
        start = 0
        for parameter in self.wrapped.parameters():
            stop = start + parameter.numel()
            if parameter.grad is not None:
                parameter.grad.add_(values[start:stop].view_as(parameter))
            start = stop


def _opacus() -> Any:
    try:
        return importlib.import_module("opacus")
    except ImportError:
        raise ConfigError('dp.unit = "sample" needs the package opacus: pip install "hiflash[dp]"') from None
