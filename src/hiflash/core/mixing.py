"""How the cloud mixes one edge model into the global model (paper, Eq. 8 and 9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from hiflash.core.registry import Key, Part, by_name
from hiflash.core.state import Stateful
from hiflash.core.weighting import Weighting, weighting
from hiflash.messages import Weights
from hiflash.weights import finite

__all__ = ["MIXINGS", "Buffer", "Delta", "Interpolate", "Mixing", "TierWeighting", "interpolate"]


class Mixing(Protocol):
    """How the cloud takes in an edge model.

    A rule may change its state freely: if it raises, or if the cloud refuses its result, the cloud restores
    the snapshot from before.
    """

    def mix(
        self, weights: Weights, update: Weights, base: Weights, edge: int, staleness: int
    ) -> Weights | None:
        """Return the next global model, or None where the update is only buffered."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """Return the state that a resumed run needs."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back a snapshot."""
        ...


def interpolate(weights: Weights, update: Weights, a: float) -> Weights:
    """Return `(1 - a) w + a w_edge` (Eq. 8)."""
    if a == 1:  # exactly the edge model, down to the sign of its zeros
        return update.astype(np.float32)
    return (np.float32(1 - a) * weights + np.float32(a) * update).astype(np.float32, copy=False)


class Interpolate(Stateful):
    """The paper's rule, and FedAsync's: `w <- (1 - a) w + a w_edge`, `a = alpha * weighting(staleness)`."""

    def __init__(self, alpha: float, weighting: Weighting) -> None:
        self.alpha = alpha
        self.weighting = weighting

    def mix(
        self, weights: Weights, update: Weights, base: Weights, edge: int, staleness: int
    ) -> Weights | None:
        """Return the interpolation of the global and the edge model."""
        return interpolate(weights, update, self.alpha * self.weighting(staleness))  # Eq. 9


class Delta(Stateful):
    """Adds the change of the edge model: `u <- momentum u + (w_edge - w_base); w <- w + a u`.

    Interpolation drags the global model back towards the stale base; adding the change does not. Only the
    first `trained` entries are updated so. The running statistics after them are interpolated, because added
    changes could make a variance negative.
    """

    STATE = ("direction",)

    def __init__(
        self, alpha: float, weighting: Weighting, momentum: float = 0.0, trained: int | None = None
    ) -> None:
        self.alpha = alpha
        self.weighting = weighting
        self.momentum = momentum
        self.trained = trained
        self.direction: Weights | None = None

    def mix(
        self, weights: Weights, update: Weights, base: Weights, edge: int, staleness: int
    ) -> Weights | None:
        """Return the global model moved by the edge's change."""
        a = self.alpha * self.weighting(staleness)
        direction = (update - base)[: self.trained]
        if self.momentum and self.direction is not None:
            direction += np.float32(self.momentum) * self.direction
        moved = weights[: self.trained] + np.float32(a) * direction
        statistics = interpolate(weights[len(moved) :], update[len(moved) :], a)
        self.direction = direction if self.momentum else None
        return np.concatenate([moved, statistics])


class Buffer(Stateful):
    """FedBuff (Nguyen et al. 2022): `w <- w + alpha / K * sum of weighting(staleness) * (w_edge - w_base)`.

    The first K - 1 updates only enter the buffer; the K-th moves the model. A change is relative to the
    downloaded version, however old that is. The entries after the first `trained` are interpolated, as in
    `Delta`, with the mean of the K updates.
    """

    STATE = ("total", "count")

    def __init__(self, alpha: float, weighting: Weighting, size: int, trained: int | None = None) -> None:
        self.alpha = alpha
        self.weighting = weighting
        self.size = size
        self.trained = trained
        self.total: Weights | None = None
        self.count = 0

    def mix(
        self, weights: Weights, update: Weights, base: Weights, edge: int, staleness: int
    ) -> Weights | None:
        """Return the global model moved by the buffer's mean once it is full, None before."""
        difference = np.float32(self.weighting(staleness)) * (update - base)[: self.trained]
        total = np.concatenate([difference, update[len(difference) :]])
        if self.total is not None:
            total += self.total
        if self.count + 1 < self.size and finite(total):
            self.total, self.count = total, self.count + 1
            return None
        moved = weights[: self.trained] + np.float32(self.alpha / self.size) * total[: self.trained]
        seen = np.float32(1 / self.size) * total[len(moved) :]
        self.total, self.count = None, 0
        return np.concatenate([moved, interpolate(weights[len(moved) :], seen, self.alpha)])


class TierWeighting(Stateful):
    """FedAT (Chai et al. 2021): `w = sum_i T_{M+1-i} / T * w_i`, tier 1 being the fastest.

    T_i counts the reports of tier i. The last model of a fast tier is weighted by the count of a slow one and
    vice versa, so slow tiers keep their influence. A tier that never reported holds the initial model.
    """

    STATE = ("initial", "models", "counts")

    def __init__(self, tiers: int) -> None:
        self.initial: Weights | None = None
        self.models: dict[int, Weights] = {}
        self.counts = [0] * tiers

    def mix(
        self, weights: Weights, update: Weights, base: Weights, edge: int, staleness: int
    ) -> Weights | None:
        """Return the tiers' last models, weighted by the counts in reverse."""
        initial = weights if self.initial is None else self.initial
        models, counts = {**self.models, edge: update}, list(self.counts)
        counts[edge] += 1
        mixed = np.zeros_like(weights)
        for tier, count in enumerate(reversed(counts)):
            if count:
                mixed += np.float32(count / sum(counts)) * models.get(tier, initial)
        self.initial, self.models, self.counts = initial, models, counts
        return mixed


def _without_tiers(config: Any) -> str | None:
    federation = config.federation
    if federation.association == "latency" and not federation.flat:
        return None
    return (
        'cloud.mixing = "tiers" weights tiers by their latency, and needs federation.association = '
        f'"latency" and edges, got "{federation.association}"'
        f"{' and federation.flat' if federation.flat else ''}"
    )


ALPHA = Key("alpha", float, default=0.7, above=0, high=1, about="async: weight of a fresh edge model")
MOMENTUM = Key(
    "momentum",
    float,
    default=0.0,
    low=0,
    below=1,
    about="mixing delta (async) or optimizer momentum (sync): momentum of the changes",
)
BUFFER = Key(
    "buffer", int, default=10, low=1, high=10_000_000, about="mixing buffer: K, updates in one group"
)

MIXINGS = by_name(
    Part(
        "interpolate",
        "moves the global model towards the edge model (the paper, FedAsync)",
        lambda config, trained: Interpolate(config.cloud.alpha, weighting(config)),
        keys=(ALPHA,),
        reads=("weighting",),
    ),
    Part(
        "delta",
        "adds the change of the edge model, with `momentum`",
        lambda config, trained: Delta(config.cloud.alpha, weighting(config), config.cloud.momentum, trained),
        keys=(MOMENTUM,),
        reads=("alpha", "weighting"),
    ),
    Part(
        "buffer",
        "adds the mean change of `buffer` updates at a time (FedBuff)",
        lambda config, trained: Buffer(config.cloud.alpha, weighting(config), config.cloud.buffer, trained),
        keys=(BUFFER,),
        reads=("alpha", "weighting"),
    ),
    Part(
        "tiers",
        "weights the last models of latency tiers by their counts in reverse (FedAT)",
        lambda config, trained: TierWeighting(config.units),
        problem=_without_tiers,
    ),
)
