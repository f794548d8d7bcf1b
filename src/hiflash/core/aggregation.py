"""How models become one: clients at their edge, edges at the cloud."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from hiflash.core.staleness import mixing_weight
from hiflash.core.state import Stateful
from hiflash.messages import ClientUpdate, Weights
from hiflash.weights import finite, weighted_mean

__all__ = ["Delta", "Interpolate", "Mixing", "average_clients"]


def average_clients(updates: Sequence[ClientUpdate], quorum: int) -> Weights | None:
    """Return the mean of the usable client models weighted by samples, None below the quorum.

    One NaN poisons a mean for ever, so a client whose model is not finite counts as one that never
    answered, and the weights of the others are renormalised.
    """
    usable = sorted((u for u in updates if finite(u.weights)), key=lambda u: u.client)
    if len(usable) < quorum:
        return None
    if len(usable) == 1:  # its own mean; the clients of flat methods are all alone
        return np.asarray(usable[0].weights, np.float32)
    return weighted_mean([u.weights for u in usable], [u.examples for u in usable])


class Mixing(Protocol):
    """How the cloud takes in an edge model."""

    def mix(
        self, weights: Weights, update: Weights, base: Weights, edge: int, staleness: int
    ) -> Weights | None:
        """Return the next global model, or None where the update is only buffered."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """Return what a resumed run needs."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back a snapshot."""
        ...


class Interpolate(Stateful):
    """The paper's rule: `w <- (1 - a) w + a w_edge` with `a = alpha * penalty ** staleness`."""

    def __init__(self, alpha: float, penalty: float) -> None:
        self.alpha = alpha
        self.penalty = penalty

    def mix(
        self, weights: Weights, update: Weights, base: Weights, edge: int, staleness: int
    ) -> Weights | None:
        """Return the interpolation of the global and the edge model."""
        a = mixing_weight(staleness, alpha=self.alpha, penalty=self.penalty)
        if a == 1:  # exactly the edge model, down to the sign of its zeros
            return update.astype(np.float32)
        return (np.float32(1 - a) * weights + np.float32(a) * update).astype(np.float32)  # Eq. 8


class Delta(Stateful):
    """Adds what the edge changed: `u <- momentum u + (w_edge - w_base); w <- w + a u`.

    Interpolation drags the global model back towards the stale base; the difference does not.
    """

    STATE = ("direction",)

    def __init__(self, alpha: float, penalty: float, momentum: float = 0.0) -> None:
        self.alpha = alpha
        self.penalty = penalty
        self.momentum = momentum
        self.direction: Weights | None = None

    def mix(
        self, weights: Weights, update: Weights, base: Weights, edge: int, staleness: int
    ) -> Weights | None:
        """Return the global model moved by the edge's difference."""
        a = mixing_weight(staleness, alpha=self.alpha, penalty=self.penalty)
        direction = update - base
        if self.momentum and self.direction is not None:
            direction += np.float32(self.momentum) * self.direction
        mixed = weights + np.float32(a) * direction
        if finite(mixed):  # a refused update must leave no trace in the momentum either
            self.direction = direction if self.momentum else None
        return mixed
