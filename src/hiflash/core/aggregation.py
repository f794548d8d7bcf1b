"""How models become one: clients at their edge, edges at the cloud."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from hiflash.core.robust import MEAN, Rule
from hiflash.core.staleness import mixing_weight
from hiflash.core.state import Stateful
from hiflash.messages import ClientUpdate, Weights
from hiflash.weights import finite

__all__ = ["Delta", "Interpolate", "Mixing", "combine_clients", "interpolate"]


def combine_clients(
    updates: Sequence[ClientUpdate], quorum: int, base: Weights, rule: Rule = MEAN
) -> tuple[Weights, tuple[int, ...]] | None:
    """Return what a rule makes of the usable client models and whose they are, None below the quorum.

    One NaN poisons a mean for ever, so a client whose model is not finite counts as one that never
    answered, and the weights of the others are renormalised. `base` is the model they started from.
    """
    usable = sorted((u for u in updates if finite(u.weights)), key=lambda u: u.client)
    if len(usable) < max(quorum, rule.least):
        return None
    model = rule.combine([u.weights for u in usable], [u.examples for u in usable], base)
    return model, tuple(u.client for u in usable)


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


def interpolate(weights: Weights, update: Weights, a: float) -> Weights:
    """Return `(1 - a) w + a w_edge` (Eq. 8)."""
    if a == 1:  # exactly the edge model, down to the sign of its zeros
        return update.astype(np.float32)
    return (np.float32(1 - a) * weights + np.float32(a) * update).astype(np.float32)


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
        return interpolate(weights, update, a)


class Delta(Stateful):
    """Adds what the edge changed: `u <- momentum u + (w_edge - w_base); w <- w + a u`.

    Interpolation drags the global model back towards the stale base; the difference does not. Only the
    first `trained` entries are a sum of gradients, though: running statistics behind them are
    interpolated, because a sum of differences of variances may turn negative.
    """

    STATE = ("direction",)

    def __init__(
        self, alpha: float, penalty: float, momentum: float = 0.0, trained: int | None = None
    ) -> None:
        self.alpha = alpha
        self.penalty = penalty
        self.momentum = momentum
        self.trained = trained
        self.direction: Weights | None = None

    def mix(
        self, weights: Weights, update: Weights, base: Weights, edge: int, staleness: int
    ) -> Weights | None:
        """Return the global model moved by the edge's difference."""
        a = mixing_weight(staleness, alpha=self.alpha, penalty=self.penalty)
        direction = (update - base)[: self.trained]
        if self.momentum and self.direction is not None:
            direction += np.float32(self.momentum) * self.direction
        moved = weights[: self.trained] + np.float32(a) * direction
        statistics = interpolate(weights[len(moved) :], update[len(moved) :], a)
        mixed = np.concatenate([moved, statistics])
        if finite(mixed):  # a refused update must leave no trace in the momentum either
            self.direction = direction if self.momentum else None
        return mixed
