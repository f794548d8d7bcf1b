"""A metric knows which direction is better."""

import math

import pytest

from hiflash.core.metrics import ACCURACY, LOSS, Metric, find_metric
from hiflash.errors import ConfigError

RMSE = Metric("rmse", "lower")


@pytest.mark.parametrize(
    ("metric", "value", "target", "reached"),
    [
        (ACCURACY, 0.9, 0.9, True),
        (ACCURACY, 0.89, 0.9, False),
        (RMSE, 0.4, 0.4, True),
        (RMSE, 0.41, 0.4, False),
        (RMSE, -3.0, -2.0, True),
        (RMSE, math.nan, 0.4, False),
        (RMSE, None, 0.4, False),
    ],
)
def test_a_target_is_reached_from_the_metrics_own_side(
    metric: Metric, value: float | None, target: float, reached: bool
) -> None:
    assert metric.reached(value, target) is reached


def test_the_best_is_the_highest_or_the_lowest_known_value() -> None:
    assert ACCURACY.best([0.2, None, 0.8, math.nan]) == 0.8
    assert RMSE.best([3.0, None, 2.0, math.inf]) == 2.0
    assert RMSE.best([None]) is None


def test_a_share_has_targets_in_percent_and_a_number_any() -> None:
    assert (ACCURACY.text(0.913), RMSE.text(57.4376)) == ("91.3%", "57.44")
    RMSE.check_target(-40.0)
    for target in (0.0, -1.0, 1.5):
        with pytest.raises(ConfigError, match=r"stop.target must be in \(0, 1\]"):
            ACCURACY.check_target(target)


def test_a_metric_is_found_by_name_and_a_slip_gets_a_hint() -> None:
    assert find_metric("auto", (RMSE, LOSS), "regression") == RMSE
    assert find_metric("loss", (RMSE, LOSS), "regression") == LOSS
    with pytest.raises(ConfigError, match="task regression has rmse, loss; did you mean rmse"):
        find_metric("rsme", (RMSE, LOSS), "regression")
    with pytest.raises(ConfigError, match="has rmse, loss; choose one"):
        find_metric("accuracy", (RMSE, LOSS), "regression")
