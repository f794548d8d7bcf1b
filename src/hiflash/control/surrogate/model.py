"""A model of training progress: predicts accuracy from the applied updates, their order and staleness.

The surrogate reduces a model to two numbers for every edge: its *skill*, the edge rounds of that edge's work
in the model, and its *lean*, the share of that edge in the latest updates. The cloud mixes these numbers with
the same rule and the same staleness as real models. So the cost of a stale update is a result, not an
assumption. So is the cost of leaving an edge out: the skill in classes that only this edge holds does not
grow, and the lean drifts away from them.
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

    The log-odds of getting a sample of class c right are `intercept + slope * log(1 + skill_c) + bias *
    lean_c`. A round at edge m counts for class c as `shared + (1 - shared) * LD^m(c) / LD(c)`: the share
    `shared` of its learning serves all classes. Its lean to c is `log((LD^m(c) + smoothing) / (LD(c) +
    smoothing))`.
    Runs differ: each has a speed of `exp(N(0, run_spread))`. Evaluations are noisy, with standard deviation
    `noise` in log-odds and autocorrelation `noise_memory`.
    """

    intercept: float
    slope: float
    bias: float
    smoothing: float
    shared: float
    run_spread: float = 0.0
    noise: float = 0.0
    noise_memory: float = 0.0

    def __post_init__(self) -> None:
        inside = {
            "intercept": math.isfinite(self.intercept),
            "slope": 0 < self.slope < math.inf,
            "bias": 0 <= self.bias < math.inf,
            "smoothing": 0 < self.smoothing < math.inf,
            "shared": 0 <= self.shared <= 1,
            "run_spread": 0 <= self.run_spread < math.inf,
            "noise": 0 <= self.noise < math.inf,
            "noise_memory": 0 <= self.noise_memory < 1,
        }
        for name, fits in inside.items():
            if not fits:
                raise ConfigError(
                    f"a surrogate cannot have {name} = {getattr(self, name)}; calibrate it again"
                )

    @classmethod
    def from_dict(cls, numbers: Mapping[str, Any]) -> Surrogate:
        """Return the surrogate with these numbers; a missing or unknown one is an error."""
        names = [field.name for field in fields(cls)]
        if set(numbers) != set(names) or not all(isinstance(n, int | float) for n in numbers.values()):
            raise ConfigError(f"a surrogate has the numbers {', '.join(names)}; calibrate it again")
        return cls(**numbers)

    def to_dict(self) -> dict[str, float]:
        """Return the numbers by name."""
        return asdict(self)

    def skill_for(self, accuracy: float) -> float:
        """Return the skill in every class that gives this accuracy without any lean."""
        odds = math.log(accuracy / (1 - accuracy))
        return max(math.exp(min((odds - self.intercept) / self.slope, 50.0)) - 1, 0.0)

    def tables(self, shares: Floats, overall: Floats) -> tuple[Floats, Floats]:
        """Return the weights of each edge's skill and lean in every class, `[edges, classes]` each.

        `shares` are the label distributions of the edges, `overall` the global one.
        """
        skills = self.shared + (1 - self.shared) * shares / np.maximum(overall, 1e-12)
        leans = self.bias * np.log((shares + self.smoothing) / (overall + self.smoothing))
        return skills, leans

    def log_odds(self, skill: Floats, lean: Floats) -> Floats:
        """Return the log-odds of a right answer, class by class; `lean` already includes `bias`."""
        odds: Floats = self.intercept + self.slope * np.log1p(np.maximum(skill, 0.0)) + lean
        return odds


class SurrogateRun:
    """One run under a surrogate: trains and evaluates surrogate models, and measures their progress.

    A model is a vector of M skills and M leans.
    """

    def __init__(
        self, surrogate: Surrogate, shares: Floats, overall: Floats, *, target: float, seed: int
    ) -> None:
        self.surrogate = surrogate
        self.overall = overall
        self.edges = len(shares)
        self.seed = seed
        self.initial: Weights = np.zeros(2 * self.edges, np.float32)
        self._speed = math.exp(surrogate.run_spread * rng(seed, "surrogate speed").standard_normal())
        self._skills, self._leans = surrogate.tables(shares, overall)
        self._needed = surrogate.skill_for(target)
        if self._needed == 0:
            start = 1 / (1 + math.exp(-surrogate.intercept))
            raise ConfigError(
                f"the surrogate starts at {start:.1%} accuracy, so stop.target = {target:g} leaves nothing "
                "to learn; raise it"
            )
        self._no_lean = np.zeros(len(overall))
        self._evaluations = 0
        self._noise = 0.0

    def train(self, edge: int, received: Weights, rounds: int) -> Weights:
        """Return a model after `rounds` edge rounds of training at an edge."""
        trained = received.copy()
        trained[edge] += self._speed * rounds
        trained[self.edges :] = 0.0
        trained[self.edges + edge] = 1.0
        return trained

    def evaluate(self, weights: Weights) -> tuple[float, float]:
        """Return the accuracy and loss of a test, with noise."""
        surrogate, accuracy = self.surrogate, self._accuracy(weights)
        memory = surrogate.noise_memory if self._evaluations else 0.0
        self._evaluations += 1
        drawn = once(self.seed, "surrogate noise", self._evaluations).standard_normal()
        self._noise = memory * self._noise + surrogate.noise * math.sqrt(1 - memory**2) * drawn
        odds = math.log(accuracy / (1 - accuracy)) + self._noise
        seen = 1 / (1 + math.exp(-odds))
        return seen, -math.log(seen)

    def progress(self, weights: Weights) -> float:
        """Return the model's skill as a share of the skill that the target needs, at most 1.

        Skills differ between classes. The one that counts is the equal skill in all classes with the same
        accuracy, so skill in few classes counts for little. The lean is left out: it swings with every update
        and says little about the progress of training.
        """
        odds = self.surrogate.log_odds(weights[: self.edges] @ self._skills, self._no_lean)
        return min(self.surrogate.skill_for(self._mean_recall(odds)) / self._needed, 1.0)

    def _accuracy(self, weights: Weights) -> float:
        edges = self.edges
        odds = self.surrogate.log_odds(weights[:edges] @ self._skills, weights[edges:] @ self._leans)
        return self._mean_recall(odds)

    def _mean_recall(self, odds: Floats) -> float:
        return float((self.overall / (1 + np.exp(-odds))).sum())
