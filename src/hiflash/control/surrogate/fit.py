"""Fits a surrogate to real runs: their applied updates, the staleness of these, and the accuracies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from hiflash.control.surrogate.model import Surrogate
from hiflash.core.mixing import Mixing
from hiflash.errors import ConfigError

__all__ = ["RunLog", "fit_surrogate"]

Floats = npt.NDArray[np.float64]

START = (-4.0, 0.0, math.log(0.5), math.log(0.05), 0.0)  # intercept; logs of slope, bias, smoothing; logit
PRIOR = np.array([0.0, 0.0, 0.02, 0.02, 0.02])  # keeps parameters near START that the runs do not determine
SPEED_PRIOR = 0.1  # keeps the speeds of federations near 1
EARLY, LATE = 0.8, 0.9  # of a run's best accuracy: the fit is for the last stretch, not the first steps
EARLY_WEIGHT = 0.001  # models hardly learn at first; fitting that closely would slow the last stretch


@dataclass(frozen=True)
class RunLog:
    """One real run: the edges' labels, and the applied updates and evaluations in order.

    An update is (edge, version it started from, edge rounds), an evaluation (version, accuracy). `seed` is
    the federation's seed.
    """

    shares: Floats
    overall: Floats
    updates: Sequence[tuple[int, int, int]]
    evaluations: Sequence[tuple[int, float]]
    mixing: Mixing
    seed: int = 0

    def models(self) -> Floats:
        """Return the surrogate model at every evaluation, `[evaluations, 2 M]`; no fit needed."""
        edges = len(self.shares)
        versions: list[Any] = [np.zeros(2 * edges)]  # in double precision, unlike real models
        for edge, base, rounds in self.updates:
            trained = versions[base].copy()
            trained[edge] += rounds
            trained[edges:] = 0.0
            trained[edges + edge] = 1.0
            staleness = len(versions) - 1 - base
            mixed = self.mixing.mix(versions[-1], trained, versions[base], edge, staleness)
            versions.append(versions[-1] if mixed is None else mixed)
        return np.array([versions[version] for version, _ in self.evaluations], np.float64)


def fit_surrogate(logs: Sequence[RunLog]) -> Surrogate:
    """Return the surrogate that fits these runs best, with one speed for each federation.

    Runs with the same clients, data and initial model have the same speed, whatever their thresholds.
    """
    if not logs or any(len(log.evaluations) < 3 for log in logs):
        raise ConfigError("a surrogate needs runs with at least three evaluations each; let them run longer")
    models = [log.models() for log in logs]
    seeds = sorted({log.seed for log in logs})
    place = [len(START) + seeds.index(log.seed) for log in logs]
    seen = [_logit(np.array([accuracy for _, accuracy in log.evaluations])) for log in logs]
    late = [_beyond(EARLY, log) for log in logs]
    weights = [np.sqrt(np.where(mask, 1.0, EARLY_WEIGHT) / len(mask)) for mask in late]

    def errors(point: Floats) -> list[Floats]:
        surrogate = _surrogate(point)
        return [
            odds - _predicted(surrogate, log, made, math.exp(point[where]))
            for log, made, odds, where in zip(logs, models, seen, place, strict=True)
        ]

    def residuals(point: Floats) -> Floats:
        weighted = [weight * error for weight, error in zip(weights, errors(point), strict=True)]
        prior = PRIOR * (point[: len(START)] - START)
        speeds = SPEED_PRIOR / math.sqrt(len(seeds)) * point[len(START) :]
        return np.concatenate([*weighted, prior, speeds])

    best = least_squares(residuals, np.array([*START, *[0.0] * len(seeds)])).x
    surrogate, speeds = _surrogate(best), best[len(START) :]
    left = [error[_beyond(LATE, log)] for error, log in zip(errors(best), logs, strict=True)]
    pairs = np.concatenate([np.stack([error[:-1], error[1:]]) for error in left], axis=1)
    noise = float(np.sqrt(np.mean(np.concatenate(left) ** 2)))
    memory = float((pairs[0] * pairs[1]).mean() / max((pairs**2).mean(), 1e-12)) if pairs.size else 0.0
    return Surrogate(
        intercept=surrogate.intercept,
        slope=surrogate.slope,
        bias=surrogate.bias,
        smoothing=surrogate.smoothing,
        shared=surrogate.shared,
        run_spread=float(np.std(speeds, ddof=1)) if len(seeds) > 1 else 0.0,
        noise=noise,
        noise_memory=min(max(memory, 0.0), 0.95),
    )


def _beyond(share: float, log: RunLog) -> npt.NDArray[np.bool_]:
    """Return a mask of the evaluations above a share of the best accuracy."""
    accuracies = np.array([accuracy for _, accuracy in log.evaluations])
    above: npt.NDArray[np.bool_] = accuracies > share * accuracies.max()
    return above


def _surrogate(point: Floats) -> Surrogate:
    intercept, slope, bias, smoothing, shared = point[: len(START)].tolist()
    return Surrogate(
        intercept, math.exp(slope), math.exp(bias), math.exp(smoothing), 1 / (1 + math.exp(-shared))
    )


def _predicted(surrogate: Surrogate, log: RunLog, models: Floats, speed: float) -> Floats:
    edges = len(log.shares)
    skills, leans = surrogate.tables(log.shares, log.overall)
    odds = surrogate.log_odds(speed * models[:, :edges] @ skills, models[:, edges:] @ leans)
    return _logit((log.overall / (1 + np.exp(-odds))).sum(axis=1))


def _logit(accuracy: Floats | float) -> Floats:
    clipped = np.clip(accuracy, 0.02, 0.99)
    odds: Floats = np.log(clipped / (1 - clipped))
    return odds
