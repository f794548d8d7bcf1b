"""Client steps per second of the compiled trainer against the bare loop, one thread each."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from benchmarks.loop import BareLoop
from hiflash.messages import ClientTask
from hiflash.train.models import cnn, femnist_cnn, initial_weights, lenet
from hiflash.train.native.trainer import NativeTrainer
from hiflash.train.task import Solver
from hiflash.train.torch_trainer import Samples

__all__ = ["trainer_cnn_vs_loop", "trainer_femnist_vs_loop", "trainer_lenet_vs_loop"]

REPEATS = 9


def trainer_lenet_vs_loop() -> float:
    """Return how many times faster the compiled trainer is on LeNet, batch 60."""
    ours, theirs = _step_s(lenet, classes=10, steps=30)
    return theirs / ours


def trainer_femnist_vs_loop() -> float:
    """Return how many times faster the compiled trainer is on the FEMNIST CNN, batch 60."""
    ours, theirs = _step_s(femnist_cnn, classes=62, steps=9)
    return theirs / ours


def trainer_cnn_vs_loop() -> dict[str, float]:
    """Return how many times faster the compiled trainer is on `cnn`, 3x32x32, and ms per step of both."""
    ours, theirs = _step_s(cnn, classes=10, steps=9, shape=(3, 32, 32))
    return {
        "trainer_cnn_vs_loop": theirs / ours,
        "trainer_cnn_step_ms": 1e3 * ours,
        "loop_cnn_step_ms": 1e3 * theirs,
    }


def _step_s(
    make_model: Callable[[], nn.Module], classes: int, steps: int, shape: tuple[int, ...] = (1, 28, 28)
) -> tuple[float, float]:
    """Return median seconds per step of the compiled trainer and of the bare loop, batch 60."""
    stream = np.random.default_rng(0)
    x = torch.from_numpy(stream.normal(size=(600, *shape)).astype(np.float32))
    y = torch.from_numpy(stream.integers(classes, size=600))
    trainer = NativeTrainer(make_model, Samples(x, y, [np.arange(600)], x, y), Solver(batch=60))
    weights, _, _ = initial_weights(make_model, 0)
    loop = BareLoop(make_model, x, y, 60)
    task = ClientTask(client=0, first_step=0, steps=steps, lr=0.01, weights=weights, seed=0)
    ours, theirs = [], []
    for _ in range(REPEATS):  # in turns, so that a busy neighbour slows both
        begun = time.perf_counter()
        trainer.train([task])
        ours.append(time.perf_counter() - begun)
        theirs.append(loop.train_s(steps))
    return statistics.median(ours) / steps, statistics.median(theirs) / steps
