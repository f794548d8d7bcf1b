"""Chooses the trainer of client tasks: the one in the configuration, or the fastest possible."""

from __future__ import annotations

import logging
from collections.abc import Callable

from torch import nn

from hiflash.errors import ConfigError
from hiflash.train.function import FunctionTrainer, OwnTraining
from hiflash.train.native.trainer import NativeTrainer, NativeUnavailable
from hiflash.train.optimizers import check_optimizer
from hiflash.train.stacked import StackedTrainer
from hiflash.train.task import Solver, WorkerTrainer
from hiflash.train.torch_trainer import Samples, TorchTrainer

__all__ = ["choose_trainer"]

Make = Callable[[], WorkerTrainer]


def choose_trainer(
    name: str,
    make_model: Callable[[], nn.Module],
    samples: Samples,
    solver: Solver,
    own: OwnTraining | None = None,
) -> Make:
    """Return a function that makes a worker's trainer; `auto` logs why it cannot use the compiled one.

    With a training function of the user's `own`, torch runs it.
    """
    if own is not None:
        return lambda: FunctionTrainer(make_model, samples, solver, own)
    check_optimizer(solver)
    if solver.private is not None:
        from hiflash.train.private import PrivateTrainer

        private = solver.private
        PrivateTrainer(make_model, samples, solver, private)  # a model that does not fit must fail here
        return lambda: PrivateTrainer(make_model, samples, solver, private)
    if name == "torch":
        return lambda: TorchTrainer(make_model, samples, solver)
    if name == "stacked":
        return lambda: StackedTrainer(make_model, samples, solver)
    try:
        NativeTrainer(make_model, samples, solver)  # compiles, once for all workers
    except NativeUnavailable as unavailable:
        if name == "native":
            raise ConfigError(
                f'trainer native cannot run this: {unavailable.reason}; use "auto" or "torch"'
            ) from None
        logging.getLogger("hiflash").warning(
            "the compiled trainer cannot run this (%s); torch does, more slowly", unavailable.reason
        )
        return lambda: TorchTrainer(make_model, samples, solver)
    return lambda: NativeTrainer(make_model, samples, solver)
