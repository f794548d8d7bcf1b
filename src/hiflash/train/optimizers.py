"""`client.optimizer`: torch's optimisers by name, with the settings of a client."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from hiflash.errors import ConfigError
from hiflash.train.task import Solver

__all__ = ["check_optimizer", "make_optimizer", "optimizer_names"]

# They need a closure, sparse gradients, or matrices only.
UNSUITABLE = ("Optimizer", "LBFGS", "SparseAdam", "Muon")


def optimizer_names() -> dict[str, type[torch.optim.Optimizer]]:
    """Return the optimisers of this torch that take a gradient step, by their names in lower case."""
    found = {
        name.lower(): kind
        for name, kind in vars(torch.optim).items()
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and name not in UNSUITABLE
    }
    return dict(sorted(found.items()))


def check_optimizer(solver: Solver) -> None:
    """Raise if torch has no optimiser of this name, or if it has no momentum or weight decay to set."""
    if solver.optimizer == "sgd":
        return
    known = optimizer_names()
    kind = known.get(solver.optimizer)
    if kind is None:
        raise ConfigError(
            f'client.optimizer must be one of {", ".join(known)}, got "{solver.optimizer}" '
            f"(torch {torch.__version__.split('+')[0]})"
        )
    takes = inspect.signature(kind).parameters
    for name, value in (("momentum", solver.momentum), ("weight_decay", solver.weight_decay)):
        if value and name not in takes:
            raise ConfigError(
                f"client.{name} has no effect with client.optimizer = {solver.optimizer}; leave it out"
            )


def make_optimizer(solver: Solver, module: nn.Module, lr: float) -> torch.optim.Optimizer | None:
    """Return a new optimiser for one task, None for plain SGD, which the trainers take themselves.

    All settings that the configuration does not have are torch's defaults. Frozen parameters stay as they
    are.
    """
    if solver.optimizer == "sgd":
        return None
    kind: Any = optimizer_names()[solver.optimizer]
    takes = inspect.signature(kind).parameters
    wanted = {"momentum": solver.momentum, "weight_decay": solver.weight_decay}
    settings = {name: value for name, value in wanted.items() if name in takes}
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return kind(trained, lr=lr, **settings)  # type: ignore[no-any-return]
