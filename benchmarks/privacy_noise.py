"""Noise for a budget, and what computing it takes: `python -m benchmarks.privacy_noise`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from itertools import count

import dp_accounting
import numpy as np
from dp_accounting.pld import PLDAccountant

from hiflash.privacy.accounting import Mechanism, epsilon, noise_for
from hiflash.privacy.discrete import discrete_gaussian
from hiflash.privacy.mechanism import grid_of
from hiflash.privacy.randomness import SystemRandomness

__all__ = ["main"]

EPSILON, DELTA, PARAMETERS = 8.0, 1e-5, 21_840
_others = count()  # epsilons are remembered: ask for others


def main() -> None:
    """Print two tables."""
    print("| Rounds | Noise (Rényi) | Noise (exact curve) | More | Seconds (Rényi) | Seconds (PLD) |")
    print("| --- | --- | --- | --- | --- | --- |")
    for rounds in (20, 100, 500):
        ours = noise_for(EPSILON, DELTA, rounds)
        # So many Gaussian rounds are one with sqrt(rounds) less noise, whose curve is known exactly.
        exact = math.sqrt(rounds) * dp_accounting.get_sigma_gaussian(EPSILON, DELTA)
        quick_s = _seconds(partial(_renyi, ours, rounds))
        slow_s = _seconds(partial(_pld, ours, rounds))
        print(
            f"| {rounds} | {ours:.2f} | {exact:.2f} | {ours / exact - 1:.1%} | {quick_s:.4f} | {slow_s:.2f} |"
        )
    variance, stream = grid_of(1.0, 1.0).variance(1.0), SystemRandomness().stream()
    exact_s = _seconds(lambda: discrete_gaussian(variance, PARAMETERS, stream))
    float_s = _seconds(lambda: np.random.default_rng().normal(size=PARAMETERS))
    print(
        f"\nnoise for {PARAMETERS:,} values: {1e3 * exact_s:.1f} ms exact, {1e3 * float_s:.1f} ms in doubles"
    )


def _renyi(noise: float, rounds: int) -> float:
    return epsilon([(Mechanism(noise + 1e-6 * next(_others)), rounds)], DELTA)


def _pld(noise: float, rounds: int) -> float:
    accountant = PLDAccountant()
    accountant.compose(dp_accounting.GaussianDpEvent(noise), rounds)
    return float(accountant.get_epsilon(DELTA))


def _seconds(work: Callable[[], object]) -> float:
    """Return the shortest of three times."""
    took = []
    for _ in range(3):
        begun = time.perf_counter()
        work()
        took.append(time.perf_counter() - begun)
    return min(took)


if __name__ == "__main__":
    main()
