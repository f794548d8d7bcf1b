"""Costs come from dp-accounting: the same numbers, whatever the order of charges."""

import importlib

import dp_accounting
import pytest
from dp_accounting.rdp import RdpAccountant

from hiflash.errors import ConfigError
from hiflash.privacy import accounting
from hiflash.privacy.accounting import Mechanism, epsilon, noise_for

DELTA = 1e-5


def by_hand(*events):
    accountant = RdpAccountant()
    for event in events:
        accountant.compose(event)
    return accountant.get_epsilon(DELTA)


def test_epsilons_are_those_of_the_library():
    gaussian = dp_accounting.GaussianDpEvent(1.3)
    sampled = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(1.1))
    laplace = dp_accounting.LaplaceDpEvent(2.0)
    spent = [(Mechanism(1.3), 7), (Mechanism(1.1, sampling=0.1), 20), (Mechanism(2.0, "laplace"), 1)]
    assert epsilon(spent, DELTA) == pytest.approx(
        by_hand(*[gaussian] * 7, *[sampled] * 20, laplace), abs=1e-6
    )
    assert epsilon(spent[::-1], DELTA) == pytest.approx(epsilon(spent, DELTA), abs=1e-9)


def test_nothing_spent_costs_nothing():
    assert epsilon([], DELTA) == epsilon([(Mechanism(1.0), 0)], DELTA) == 0


def test_calibrated_noise_keeps_the_budget_and_little_less_does_not():
    for count, sampling in ((1, 1.0), (100, 1.0), (50, 0.05)):
        noise = noise_for(8.0, DELTA, count, sampling)
        assert epsilon([(Mechanism(noise, sampling=sampling), count)], DELTA) <= 8.0
        assert epsilon([(Mechanism(noise - 3e-4, sampling=sampling), count)], DELTA) > 8.0


def test_a_budget_that_no_noise_can_keep_is_refused():
    with pytest.raises(ConfigError, match=r"plan fewer rounds \(dp.rounds\)"):
        noise_for(0.001, DELTA, 10_000)


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    real = importlib.import_module

    def missing(name, *more):
        if name.startswith("dp_accounting"):
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(accounting.importlib, "import_module", missing)
    with pytest.raises(ConfigError, match=r"hiflash\[dp\]"):
        epsilon([(Mechanism(1.23456), 3)], DELTA)
