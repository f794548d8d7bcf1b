"""Optimisers of a synchronous cloud: a round's change of the model is a gradient (Reddi et al. 2021)."""

from __future__ import annotations

from typing import Any

import numpy as np

from hiflash.core.registry import Key, Part, by_name
from hiflash.core.state import Stateful
from hiflash.messages import Weights

__all__ = ["OPTIMIZERS", "Adaptive", "CloudOptimizer", "Momentum"]


class CloudOptimizer(Stateful):
    """Takes the combined model of a round as it is; the base of other optimisers.

    An optimiser may change its state freely: if it raises, or if its result is not finite, the cloud restores
    the snapshot from before.
    """

    def step(self, weights: Weights, combined: Weights) -> Weights:
        """Return the next global model from the present one and the combination of a round's models."""
        return combined


class _OnChange(CloudOptimizer):
    """Moves the first `trained` entries. The running statistics after them become those of the round."""

    def __init__(self, trained: int | None, lr: float) -> None:
        self.trained = trained
        self.lr = lr

    def step(self, weights: Weights, combined: Weights) -> Weights:
        """Return the model moved along the direction that the round's change gives."""
        old = weights[: self.trained]
        direction = self._direction(combined[: self.trained] - old)
        return np.concatenate([old + np.float32(self.lr) * direction, combined[len(old) :]])

    def _direction(self, change: Weights) -> Weights:
        raise NotImplementedError


class Momentum(_OnChange):
    """FedAvgM (Hsu et al. 2019): `m <- momentum m + (combined - w); w <- w + lr m`."""

    STATE = ("direction",)

    def __init__(self, trained: int | None, lr: float = 1.0, momentum: float = 0.9) -> None:
        super().__init__(trained, lr)
        self.momentum = momentum
        self.direction: Weights | None = None

    def _direction(self, change: Weights) -> Weights:
        if self.direction is not None:
            change = np.float32(self.momentum) * self.direction + change
        self.direction = change
        return change


class Adaptive(_OnChange):
    """FedAdam and FedYogi: `w <- w + lr m / (sqrt(v) + adaptivity)`, `m <- beta1 m + (1 - beta1) d`.

    d is the round's change. FedAdam: `v <- beta2 v + (1 - beta2) d^2`. With `yogi`: `v <- v - (1 - beta2) d^2
    sign(v - d^2)`. m starts at 0 and v at adaptivity^2; there is no bias correction.
    """

    STATE = ("m", "v")

    def __init__(
        self,
        trained: int | None,
        lr: float = 0.01,
        betas: tuple[float, float] = (0.9, 0.99),
        adaptivity: float = 1e-3,
        *,
        yogi: bool = False,
    ) -> None:
        super().__init__(trained, lr)
        self.betas = betas
        self.adaptivity = adaptivity
        self.yogi = yogi
        self.m: Weights | None = None
        self.v: Weights | None = None

    def _direction(self, change: Weights) -> Weights:
        beta1, beta2 = (np.float32(beta) for beta in self.betas)
        square = change * change
        m = np.zeros_like(change) if self.m is None else self.m
        v = np.full_like(change, self.adaptivity**2) if self.v is None else self.v
        self.m = beta1 * m + (1 - beta1) * change
        if self.yogi:
            self.v = v - (1 - beta2) * square * np.sign(v - square)
        else:
            self.v = beta2 * v + (1 - beta2) * square
        root: Weights = np.sqrt(self.v)
        return self.m / (root + np.float32(self.adaptivity))


def _lr(config: Any, usual: float) -> float:
    return usual if config.cloud.lr == "auto" else float(config.cloud.lr)


def _momentum(config: Any, trained: int) -> Momentum:
    return Momentum(trained, _lr(config, 1.0), config.cloud.momentum)


def _adaptive(config: Any, trained: int, *, yogi: bool) -> Adaptive:
    cloud = config.cloud
    return Adaptive(trained, _lr(config, 0.01), (cloud.beta1, cloud.beta2), cloud.adaptivity, yogi=yogi)


OPTIMIZERS = by_name(
    Part("none", "the combined model of a round is the next global model", lambda *_: CloudOptimizer()),
    Part(
        "momentum",
        "adds the changes of rounds with `momentum` (FedAvgM: Hsu et al. 2019)",
        _momentum,
        keys=(
            Key(
                "lr",
                float,
                default="auto",
                above=0,
                high=1e12,
                words=("auto",),
                about="optimizer: learning rate; auto is 1 for momentum, 0.01 for adam and yogi",
            ),
        ),
    ),
    Part(
        "adam",
        "scales the changes of rounds as Adam scales gradients (FedAdam: Reddi et al. 2021)",
        lambda config, trained: _adaptive(config, trained, yogi=False),
        keys=(
            Key(
                "beta1",
                float,
                default=0.9,
                low=0,
                below=1,
                about="optimizer adam and yogi: decay of the mean change",
            ),
            Key(
                "beta2",
                float,
                default=0.99,
                low=0,
                below=1,
                about="optimizer adam and yogi: decay of the mean square",
            ),
            Key(
                "adaptivity",
                float,
                default=1e-3,
                low=1e-12,
                high=1e6,
                about="optimizer adam and yogi: tau, added to the root of the mean square",
            ),
        ),
        reads=("lr",),
    ),
    Part(
        "yogi",
        "as adam, with a mean square that falls slowly (FedYogi: Reddi et al. 2021)",
        lambda config, trained: _adaptive(config, trained, yogi=True),
        reads=("lr", "beta1", "beta2", "adaptivity"),
    ),
)
