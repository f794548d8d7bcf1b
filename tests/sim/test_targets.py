"""Targets between two evaluations."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiflash.core.metrics import ACCURACY, Metric
from hiflash.sim.targets import FIGURES, interpolated


def row(accuracy: float | None, *figures: float) -> dict[str, Any]:
    return {**dict(zip(FIGURES, figures, strict=True)), "accuracy": accuracy}


ROWS = [
    row(0.60, 10, 300, 2.0, 1000, 50.0),
    row(0.80, 20, 700, 4.0, 2000, 90.0),
    row(0.76, 30, 900, 6.0, 3000, 130.0),
    row(0.92, 40, 1300, 8.0, 4000, 170.0),
]


def test_figures_lie_on_the_line_between_the_two_evaluations_around_the_crossing() -> None:
    found = interpolated(ROWS, ACCURACY, ["0.75", "0.84"])
    # 0.75 is three quarters of the way from 0.6 to 0.8.
    assert found["0.75"] == pytest.approx(
        {"communications": 17.5, "client_steps": 600, "virtual_s": 3.5, "wan_bytes": 1750, "total_cost": 80}
    )
    # 0.84 is half of the way from 0.76 to 0.92: from the evaluation just before, not from the best so far.
    assert found["0.84"] == pytest.approx(
        {"communications": 35, "client_steps": 1100, "virtual_s": 7, "wan_bytes": 3500, "total_cost": 150}
    )


def test_the_first_crossing_counts_and_a_value_at_the_goal_is_one() -> None:
    found = interpolated(ROWS, ACCURACY, ["0.78", "0.8", "0.92"])
    assert found["0.78"] is not None
    assert found["0.78"]["communications"] == pytest.approx(19)  # and not 31.25, after the fall to 0.76
    assert found["0.8"] is not None
    assert found["0.8"]["communications"] == pytest.approx(20)
    assert found["0.92"] is not None
    assert found["0.92"]["communications"] == pytest.approx(40)


def test_goals_that_are_never_reached_have_no_figures() -> None:
    assert interpolated(ROWS, ACCURACY, ["0.95"]) == {"0.95": None}
    assert interpolated([], ACCURACY, ["0.5"]) == {"0.5": None}


def test_a_goal_at_the_first_evaluation_has_its_figures() -> None:
    own = {"communications": 10, "client_steps": 300, "virtual_s": 2.0, "wan_bytes": 1000, "total_cost": 50.0}
    assert interpolated(ROWS, ACCURACY, ["0.5"]) == {"0.5": own}


def test_an_unknown_value_before_the_crossing_is_no_end_of_a_line() -> None:
    rows = [ROWS[0], row(None, 20, 700, 4.0, 2000, 90.0), ROWS[3]]
    found = interpolated(rows, ACCURACY, ["0.9"])["0.9"]
    assert found is not None
    assert found["communications"] == 40


def test_a_metric_may_be_better_when_lower() -> None:
    rows = [{**ROWS[0], "rmse": 30.0}, {**ROWS[1], "rmse": 20.0}]
    found = interpolated(rows, Metric("rmse", "lower"), ["26.0"])["26.0"]
    assert found is not None
    assert found["communications"] == pytest.approx(14)  # 4 / 10 of the way from 10 to 20


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.floats(0.01, 1))
def test_a_crossing_lies_between_its_evaluations(accuracies: list[float], goal: float) -> None:
    rows = [row(value, *[10.0 * (at + 1)] * 5) for at, value in enumerate(accuracies)]
    found = interpolated(rows, ACCURACY, [str(goal)])[str(goal)]
    reached = [at for at, value in enumerate(accuracies) if value >= goal]
    assert (found is None) == (not reached)
    if found is not None:
        assert 10 * max(reached[0], 1) - 1e-9 <= found["communications"] <= 10 * (reached[0] + 1) + 1e-9
