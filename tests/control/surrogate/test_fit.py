"""A fit finds the numbers of the surrogate that made the runs."""

import numpy as np
import pytest

from hiflash.control.surrogate.fit import RunLog, fit_surrogate
from hiflash.control.surrogate.model import Surrogate, SurrogateRun
from hiflash.core.mixing import Delta, Interpolate
from hiflash.core.weighting import Exponential
from hiflash.errors import ConfigError
from hiflash.seeding import rng

TRUE = Surrogate(intercept=-3.0, slope=1.2, bias=0.6, smoothing=0.05, shared=0.4)
OVERALL = np.full(4, 0.25)
SHARES = np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.7, 0.1, 0.1], [0.0, 0.0, 0.5, 0.5]])


def made_log(surrogate: Surrogate, seed: int, edges: tuple[int, ...], updates: int = 120) -> RunLog:
    """Return the log of a run in which these edges took part, up to three versions late."""
    stream = rng(seed, "made log")
    run = SurrogateRun(surrogate, SHARES, OVERALL, target=0.9, seed=seed)
    mixing = Interpolate(0.7, Exponential(0.99))
    versions, applied, evaluations = [run.initial], [], []
    for number in range(updates):
        edge, rounds = int(stream.choice(edges)), int(stream.integers(1, 4))
        base = max(len(versions) - 1 - int(stream.integers(4)), 0)
        staleness = len(versions) - 1 - base
        trained = run.train(edge, versions[base], rounds)
        versions.append(mixing.mix(versions[-1], trained, versions[base], edge, staleness))
        applied.append((edge, base, rounds))
        if number % 2:
            evaluations.append((number + 1, run.evaluate(versions[-1])[0]))
    return RunLog(SHARES, OVERALL, applied, evaluations, mixing, seed)


def test_the_models_of_a_log_are_those_of_the_run_by_hand():
    shares = np.array([[1.0, 0.0], [0.0, 1.0]])
    log = RunLog(
        shares,
        np.array([0.5, 0.5]),
        [(0, 0, 2), (1, 0, 1)],
        [(0, 0.1), (2, 0.5)],
        Interpolate(0.5, lambda _: 1),
    )
    # version 1: half of [2, 0 | 1, 0] = [1, 0 | 0.5, 0]
    # version 2: half of that and half of [0, 1 | 0, 1], which started from version 0
    assert log.models().tolist() == [[0, 0, 0, 0], [0.5, 0.5, 0.25, 0.5]]


def test_differences_are_mixed_as_the_run_mixed_them():
    shares = np.array([[1.0, 0.0], [0.0, 1.0]])
    log = RunLog(
        shares, np.array([0.5, 0.5]), [(0, 0, 2), (1, 0, 1)], [(2, 0.5)], Delta(1.0, lambda _: 1, trained=4)
    )
    # [2, 0 | 1, 0] plus the difference of [0, 1 | 0, 1] from zeros
    assert log.models().tolist() == [[2, 1, 1, 1]]


def test_a_fit_recovers_the_numbers_that_made_the_runs():
    taking_part = [(0, 1, 2), (0, 1, 2), (0, 1), (1, 2), (0, 2), (0,), (1,), (2,)]
    fitted = fit_surrogate([made_log(TRUE, seed, edges) for seed, edges in enumerate(taking_part)])
    # nearly exact: there is no noise, and what holds the numbers at their start is weak
    assert fitted.intercept == pytest.approx(TRUE.intercept, abs=0.15)
    assert fitted.slope == pytest.approx(TRUE.slope, rel=0.05)
    assert fitted.bias == pytest.approx(TRUE.bias, rel=0.1)
    assert fitted.shared == pytest.approx(TRUE.shared, abs=0.05)
    assert fitted.noise < 0.01
    assert fitted.run_spread < 0.02


def test_a_fit_tells_noise_and_speed_from_the_curve():
    true = Surrogate(**{**TRUE.to_dict(), "run_spread": 0.3, "noise": 0.1, "noise_memory": 0.5})
    fitted = fit_surrogate([made_log(true, seed, (0, 1, 2)) for seed in range(6)])
    assert fitted.noise == pytest.approx(0.1, rel=0.35)
    assert 0.2 < fitted.noise_memory < 0.8
    speeds = [0.3 * rng(seed, "surrogate speed").standard_normal() for seed in range(6)]
    assert fitted.run_spread == pytest.approx(np.std(speeds, ddof=1), rel=0.3)


def test_runs_without_evaluations_cannot_be_fitted():
    log = made_log(TRUE, 0, (0, 1, 2))
    for logs in ([], [log, RunLog(SHARES, OVERALL, log.updates, log.evaluations[:2], log.mixing)]):
        with pytest.raises(ConfigError, match="at least three evaluations each; let them run longer"):
            fit_surrogate(logs)


def test_runs_that_never_get_far_can_be_fitted():
    assert fit_surrogate([made_log(TRUE, 0, (0,), updates=8)]).noise < 0.05
