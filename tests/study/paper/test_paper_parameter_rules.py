"""Rules about thresholds and mixing weights on results worked out by hand."""

from __future__ import annotations

import pytest

from hiflash.study.paper.parameter_rules import mixing_claims, threshold_claims
from hiflash.study.paper.runs import Runs
from paper_cells import cell, verdicts


def test_thresholds() -> None:
    taus = {"tau-0": 1000, "tau-2": 2000, "tau-8": 8000, "tau-inf": 20000}
    found = verdicts(threshold_claims(), Runs([cell(k, [(v, 0.9)]) for k, v in taus.items()], 0.9))
    assert found["tau2_below_inf"] == (True, pytest.approx(0.1))
    assert found["tau2_steps"] == (True, 20_000)
    assert found["inf_steps"] == (True, 200_000)
    assert found["computing_rises"][0] is True
    assert found["time_falls"] == (False, 0.0)  # here more communications take more time
    assert found["inf_fluctuates"][0] is None  # one evaluation


def test_a_threshold_that_did_not_arrive_within_a_budget_that_was_too_small() -> None:
    found = verdicts(threshold_claims(), Runs([cell("tau-2", [(9000, 0.5)])], 0.9))
    assert found["tau2_steps"] == (None, None)  # 90,000 of 98,000 steps
    found = verdicts(threshold_claims(), Runs([cell("tau-2", [(9900, 0.5)])], 0.9))
    assert found["tau2_steps"] == (False, None)


@pytest.mark.parametrize(("spent", "holds"), [(6000, True), (4000, None)])
def test_a_fifth_of_what_was_spent_in_vain_is_a_fifth_of_what_is_needed(spent: int, holds: bool) -> None:
    cells = [cell("tau-2", [(1000, 0.9)]), cell("tau-inf", [(spent, 0.5)])]
    assert verdicts(threshold_claims(), Runs(cells, 0.9))["tau2_below_inf"] == (holds, None)


def test_the_grid_of_mixing_weights() -> None:
    cells = [cell("0.7/0.99", [(800, 0.9)]), cell("0.9/0.99", [(500, 0.905)]), cell("0.5/0.9", [(9, 0.92)])]
    found = verdicts(mixing_claims(), Runs(cells[:2], 0.9))
    assert found["converges_within_1000"] == found["chosen_converges_within_1000"] == (True, 800)
    assert found["chosen_is_best"] == (None, pytest.approx(-0.5))  # the grid is flat: any point would do
    worst = cell("1/1", [(1200, 0.8)])
    found = verdicts(mixing_claims(), Runs([*cells[:2], worst], 0.9))
    assert found["chosen_is_best"] == (True, pytest.approx(-0.5))
    assert found["converges_within_1000"] == (False, None)
    assert verdicts(mixing_claims(), Runs(cells, 0.9))["chosen_is_best"] == (False, pytest.approx(-2.0))


def test_alphas_in_the_middle_are_before_all_others() -> None:
    needs = {"0.5/0.99": 890, "0.7/0.99": 815, "0.9/0.99": 806, "0.95/0.99": 830, "1/0.99": 845}

    def verdict(**changed: int) -> tuple[bool | None, float | None]:
        cells = [cell(label, [(at, 0.9)]) for label, at in {**needs, **changed}.items()]
        return verdicts(mixing_claims(), Runs(cells, 0.9))["alpha_in_the_middle"]

    assert verdict() == (True, pytest.approx(100 * (815 / 830 - 1)))
    assert verdict(**{"1/0.99": 810}) == (False, pytest.approx(100 * (815 / 810 - 1)))


def test_fluctuations_that_grow_with_the_threshold() -> None:
    def verdict(*falls: float) -> tuple[bool | None, float | None]:
        taus = ("tau-0", "tau-2", "tau-8", "tau-inf")
        cells = [
            cell(tau, [(1, 0.5), (2, 0.5), (3, 0.9), (4, 0.9 - fall)])
            for tau, fall in zip(taus, falls, strict=True)
        ]
        return verdicts(threshold_claims(), Runs(cells, 0.9))["fluctuations_rise"]

    assert verdict(0.1, 0.2, 0.3, 0.4) == (True, 100)
    assert verdict(0.1, 0.2, 0.4, 0.3) == (False, pytest.approx(200 / 3))


def test_a_share_that_is_too_large_already() -> None:
    cells = [cell("tau-2", [(20_000, 0.5)]), cell("tau-inf", [(1000, 0.9)])]
    assert verdicts(threshold_claims(), Runs(cells, 0.9))["tau2_below_inf"] == (False, None)
