"""FedDyn (Acar et al. 2021): a linear term that each client learns, and a proximal term."""

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
from hiflash.core.registry import Key, Part
from hiflash.messages import Extra, Weights

__all__ = ["PARTS", "FedDyn"]


@dataclass(frozen=True)
class FedDyn(ClientAlgorithm):
    """A client's state h_i approaches its own gradient; steps use g - h_i + alpha (u - w)."""

    alpha: float
    keeps = True

    def traffic(self, trained: int, *, flat: bool, exact: bool) -> Traffic:
        """Return one vector from edge to cloud: the sum of the changes of its clients' h_i.

        A client sends nothing: whoever gets its model u computes -alpha (u - w). So a flat method needs
        nothing either, as long as the cloud gets u itself.
        """
        return Traffic() if flat and exact else Traffic(wan_up=trained)

    def before(self, state: Extra, extra: Extra) -> tuple[Weights | None, float]:
        """Return -h_i and alpha."""
        return (-state["h_i"] if state else None), self.alpha

    def after(self, done: Done, state: Extra, extra: Extra) -> tuple[Extra, Extra]:
        """Return the new h_i = h_i - alpha (u - w) and its change."""
        change = (done.start - done.end) * np.float32(self.alpha)
        return {"h_i": state["h_i"] + change if state else change}, {MeanOfStates.CHANGE: change}

    def cloud(self, trained: int, clients: int) -> CloudSide:
        """Return the keeper of h."""
        return _CloudSide(trained, clients, self.alpha)


class _CloudSide(MeanOfStates):
    """Keeps h, the mean of all h_i."""

    def __init__(self, trained: int, clients: int, alpha: float) -> None:
        super().__init__(trained, clients)
        self.alpha = alpha

    def correct(self, model: Weights) -> Weights:
        """Return the model minus h / alpha; running statistics stay."""
        corrected = model.copy()
        corrected[: len(self.mean)] -= self.mean * np.float32(1 / self.alpha)
        return corrected


def _problem(config: Any) -> str | None:
    if config.client.mu:
        return (
            'client.algorithm = "feddyn" has its own proximal term, client.feddyn_alpha, and client.mu is '
            f"{config.client.mu:g}; use client.mu = 0"
        )
    if config.cloud.schedule == "async" and config.cloud.mixing == "tiers":
        return (
            'client.algorithm = "feddyn" corrects a model once, when it arrives, and cloud.mixing = "tiers" '
            'uses the models of slow tiers again and again; use "interpolate", "delta" or "buffer"'
        )
    return not_robust(config)


PARTS = (
    Part(
        "feddyn",
        "SGD with a proximal term `feddyn_alpha` and a linear term that a client learns (Acar et al. 2021)",
        lambda config: FedDyn(config.client.feddyn_alpha),
        keys=(
            Key(
                "feddyn_alpha",
                float,
                default=0.1,
                above=0,
                high=1e6,
                about="feddyn: alpha, weight of the proximal term; the cloud divides by it",
            ),
        ),
        problem=_problem,
    ),
)
