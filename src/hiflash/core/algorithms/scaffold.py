"""SCAFFOLD (Karimireddy et al. 2020): control variates against the drift of clients, with option II."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hiflash.core.algorithms.algorithm import (
    ClientAlgorithm,
    CloudSide,
    Done,
    MeanOfStates,
    Traffic,
    not_robust,
)
from hiflash.core.registry import Part
from hiflash.messages import Extra, Weights

__all__ = ["PARTS", "Scaffold"]


@dataclass(frozen=True)
class Scaffold(ClientAlgorithm):
    """Every client knows its own mean gradient c_i, the cloud the mean c; steps use g - c_i + c."""

    keeps = True

    def traffic(self, trained: int, *, flat: bool, exact: bool) -> Traffic:
        """Return one vector in each direction: c down, the change of c_i up."""
        return Traffic(trained, trained, trained, trained)

    def before(self, state: Extra, extra: Extra) -> tuple[Weights | None, float]:
        """Return c - c_i."""
        c = extra["c"]
        return (c - state["c_i"] if state else c), 0.0

    def after(self, done: Done, state: Extra, extra: Extra) -> tuple[Extra, Extra]:
        """Return the new c_i = c_i - c + (w - u) / (K lr) and its change."""
        mean_step = (done.start - done.end) * np.float32(1 / (done.steps * done.lr))
        change = mean_step - extra["c"]
        return {"c_i": state["c_i"] + change if state else change}, {MeanOfStates.CHANGE: change}

    def cloud(self, trained: int, clients: int) -> CloudSide:
        """Return the keeper of c."""
        return _CloudSide(trained, clients)


class _CloudSide(MeanOfStates):
    """Keeps c, the mean of all c_i."""

    def grant(self) -> Extra:
        """Return c."""
        return {"c": self.mean}


def _problem(config: Any) -> str | None:
    if config.client.optimizer == "sgd":
        return not_robust(config)
    return (
        'client.algorithm = "scaffold" takes a client\'s mean gradient from its SGD steps, and '
        f'client.optimizer is "{config.client.optimizer}"; use "sgd"'
    )


PARTS = (
    Part(
        "scaffold",
        "SGD with control variates: each step is corrected by c - c_i (Karimireddy et al. 2020)",
        lambda _: Scaffold(),
        problem=_problem,
    ),
)
