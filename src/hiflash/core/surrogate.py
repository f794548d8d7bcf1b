"""A stand-in for training: how the global model's accuracy follows from whose updates were applied, and when.

A model is reduced to one number for what it can do at all, its *skill*, and one per class for how much it
leans towards that class. Training at an edge adds skill with every edge round and draws the lean towards
that edge's labels. The cloud mixes these few numbers by the same rule, and with the same staleness, as it
would mix models: what a stale update costs is not assumed but follows. What an edge that has not contributed
for long costs follows too: the lean drifts to the labels of those that have, and accuracy on its labels falls.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from hiflash.errors import ConfigError
from hiflash.messages import Weights
from hiflash.seeding import once, rng

__all__ = ["Surrogate", "SurrogateRun"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Surrogate:
    """The fitted numbers.

    The log-odds of getting a sample of class c right are `intercept + slope * log(1 + skill / scale) +
    bias * lean_c`. H rounds at an edge add `H ** rounds_power * (1 - divergence_loss * distance)` to the
    skill, where the distance is the total variation between its labels and everyone's, and move the lean by
    the share `1 - exp(-pull * H)` towards `log((LD^m + smoothing) / (LD + smoothing))`. Runs differ: one
    learns `exp(N(0, run_spread))` times as fast as another, and its evaluations lie around the curve with
    standard deviation `noise` in log-odds, each remembering `noise_memory` of the one before.
    """

    intercept: float
    slope: float
    scale: float
    bias: float
    pull: float
    smoothing: float
    rounds_power: float = 1.0
    divergence_loss: float = 0.0
    run_spread: float = 0.0
    noise: float = 0.0
    noise_memory: float = 0.0

    def __post_init__(self) -> None:
        for name in ("slope", "scale", "pull", "smoothing", "rounds_power"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"a surrogate's {name} must be > 0, got {getattr(self, name)}")
        for name in ("bias", "run_spread", "noise"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"a surrogate's {name} must be >= 0, got {getattr(self, name)}")
        if not (math.isfinite(self.intercept) and 0 <= self.divergence_loss < 1 and 0 <= self.noise_memory < 1):
            raise ConfigError(
                "a surrogate needs a finite intercept, and divergence_loss and noise_memory in [0, 1), got "
                f"{self.intercept}, {self.divergence_loss}, {self.noise_memory}"
            )

    @classmethod
    def from_dict(cls, numbers: Mapping[str, Any]) -> Surrogate:
        """Return the surrogate of these numbers, if they are just those it has."""
        names = {field.name for field in fields(cls)}
        if set(numbers) != names or not all(isinstance(value, int | float) for value in numbers.values()):
            raise ConfigError(f"a surrogate has the numbers {', '.join(sorted(names))}; calibrate it again")
        return cls(**numbers)

    def to_dict(self) -> dict[str, float]:
        """Return the numbers by name."""
        return asdict(self)

    def log_odds(self, skill: Any) -> Any:
        """Return the log-odds of a right answer without any lean."""
        log1p = np.log1p if isinstance(skill, np.ndarray) else math.log1p
        return self.intercept + self.slope * log1p(skill / self.scale)

    def skill_for(self, accuracy: float) -> float:
        """Return the skill that gives this accuracy without any lean."""
        odds = math.log(accuracy / (1 - accuracy))
        exponent = min((odds - self.intercept) / self.slope, 50.0)
        return self.scale * max(math.exp(exponent) - 1, 0.0)

    def lean_of(self, shares: Floats, overall: Floats) -> Floats:
        """Return what training on labels with these shares leans towards."""
        lean: Floats = np.log((shares + self.smoothing) / (overall + self.smoothing))
        return lean

    def gains(self, shares: Floats, overall: Floats) -> Floats:
        """Return the skill that one edge round adds at each edge."""
        distance = np.abs(shares - overall).sum(axis=-1) / 2
        return 1 - self.divergence_loss * distance

    def accuracy(self, skill: Floats, lean: Floats, overall: Floats) -> Floats:
        """Return the accuracy of models, one a row, on samples with the labels of everyone."""
        odds = self.log_odds(skill)[:, None] + self.bias * lean
        accuracy: Floats = (overall / (1 + np.exp(-odds))).sum(axis=1)
        return accuracy


class SurrogateRun:
    """One run's learning under a surrogate: trains, evaluates and tells the progress of tiny models.

    A model is the vector (skill, lean of every class). `shares` are the label distributions of the edges,
    `overall` the global one.
    """

    def __init__(
        self, surrogate: Surrogate, shares: Floats, overall: Floats, *, target: float, seed: int
    ) -> None:
        self.surrogate = surrogate
        self.overall = overall
        self.seed = seed
        speed = math.exp(surrogate.run_spread * rng(seed, "surrogate speed").standard_normal())
        self._gain = (speed * surrogate.gains(shares, overall)).tolist()
        self._leans = surrogate.lean_of(shares, overall).astype(np.float32)
        self._needed = surrogate.skill_for(target)
        self._evaluations = 0
        self._noise = 0.0
        self._measured: tuple[Weights | None, float] = (None, 0.0)  # the last model and its accuracy

    @property
    def initial(self) -> Weights:
        """Return the model that knows nothing."""
        return np.zeros(1 + len(self.overall), np.float32)

    def train(self, edge: int, received: Weights, rounds: int) -> Weights:
        """Return what an edge makes of a model in so many rounds."""
        surrogate = self.surrogate
        trained = received.copy()
        trained[0] += self._gain[edge] * rounds**surrogate.rounds_power
        drawn = 1 - math.exp(-surrogate.pull * rounds)
        lean = trained[1:]
        lean += np.float32(drawn) * (self._leans[edge] - lean)
        return trained

    def evaluate(self, weights: Weights) -> tuple[float, float]:
        """Return accuracy and loss as a test would find them, its noise included."""
        surrogate, accuracy = self.surrogate, self._accuracy(weights)
        memory = surrogate.noise_memory if self._evaluations else 0.0
        self._evaluations += 1
        drawn = once(self.seed, "surrogate noise", self._evaluations).standard_normal()
        self._noise = memory * self._noise + surrogate.noise * math.sqrt(1 - memory**2) * drawn
        odds = math.log(accuracy / (1 - accuracy)) + self._noise
        seen = 1 / (1 + math.exp(-odds))
        return seen, -math.log(seen)

    def progress(self, weights: Weights) -> float:
        """Return how much of the skill that the target needs a model is worth, by its accuracy, at most 1."""
        return min(self.surrogate.skill_for(self._accuracy(weights)) / self._needed, 1.0)

    def _accuracy(self, weights: Weights) -> float:
        """Return the true accuracy; the sum over classes is spelled out because it is asked for every slot."""
        if self._measured[0] is not weights:  # nothing changes a model in place
            surrogate = self.surrogate
            odds = np.exp(-surrogate.bias * weights[1:]) * math.exp(-surrogate.log_odds(float(weights[0])))
            self._measured = weights, float(np.add.reduce(self.overall / (1 + odds)))
        return self._measured[1]
