"""The learner on a task that is not ours: `python -m benchmarks cartpole_return` runs it in full."""

from __future__ import annotations

import pytest
from benchmarks.cartpole import STEPS, CartPole

GOOD = 450  # of 500


@pytest.mark.slow
def test_the_learner_solves_cartpole() -> None:
    run, best = CartPole(0), 0.0

    def solved() -> bool:
        """Evaluate once the network that training chose has become better, and good enough there."""
        nonlocal best
        if run.best.mean_return <= max(best, 300):
            return False
        best = run.best.mean_return
        return run.evaluate() >= GOOD

    run.train(STEPS, solved)
    assert run.steps <= STEPS
    assert run.evaluate() >= GOOD  # in yet another 100 episodes
