"""The law: what stands for a model, and the closed form."""

from __future__ import annotations

import numpy as np
import pytest

from hiflash import ConfigError, expected_communications
from hiflash.core.mixing import Delta, Interpolate
from hiflash.core.weighting import Exponential
from hiflash.study.forecast.numbers import ClassNumbers

LABELS = np.array([[6, 2], [2, 6], [4, 4]])  # of three clients, 12 samples of each class


def test_an_edge_round_adds_the_share_of_a_class_relative_to_all() -> None:
    numbers = ClassNumbers(LABELS, rounds=10)
    assert numbers.step([0]).tolist() == [1.5, 0.5]  # 6/8 and 2/8, over 12/24
    assert numbers.step([0, 1]).tolist() == [1.0, 1.0]
    assert numbers.trained(np.float32([1, 1]), [1], 2).tolist() == [2.0, 4.0]  # 1 + 2 * 0.5, 1 + 2 * 1.5


def test_one_number_moves_by_one_without_labels_or_samples() -> None:
    numbers = ClassNumbers(None, rounds=10)
    assert numbers.trained(numbers.initial, [0, 1], 3).tolist() == [3.0]
    assert ClassNumbers(np.array([[0, 0], [3, 1]]), 10).step([0]).tolist() == [1.0, 1.0]
    assert ClassNumbers(LABELS, 10).step([]).tolist() == [1.0, 1.0]  # its clients have left


def test_progress_is_the_harmonic_mean_over_the_rounds() -> None:
    numbers = ClassNumbers(LABELS, rounds=1.5)
    # 1 / (0.5 / 3 + 0.5 / 1) = 1.5
    assert numbers.progress(np.float32([3, 1])) == pytest.approx(1.0, rel=1e-5)
    assert numbers.progress(np.float32([3, 0])) == 0.0  # a class that nobody trained


def test_a_class_that_nobody_holds_does_not_count() -> None:
    numbers = ClassNumbers(np.array([[4, 0], [2, 0]]), rounds=2)
    assert numbers.progress(np.float32([2, 0])) == pytest.approx(1.0, rel=1e-5)


def test_recall_rises_with_the_number_of_a_class() -> None:
    assert ClassNumbers(LABELS, 10).recall(np.float32([1, 3])) == (0.5, 0.75)  # x / (1 + x)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"weight": 1.0, "staleness": 0, "edge_rounds": 1}, 100),
        ({"weight": 0.5, "staleness": 0, "edge_rounds": 2}, 100),  # 100 * 2 / 2
        ({"weight": 0.5, "staleness": 3, "edge_rounds": 2}, 250),  # 100 * (2 + 3) / 2
        ({"weight": 0.5, "staleness": 3, "edge_rounds": 2, "accepted": 0.5}, 500),
    ],
)
def test_the_closed_form_by_hand(given: dict[str, float], expected: float) -> None:
    assert expected_communications(100, **given) == pytest.approx(expected)


def test_the_closed_form_is_what_interpolation_does_to_a_number() -> None:
    """Every upload starts from the model three versions ago and adds 2: a slope of 2 / (1/0.5 + 3) = 0.4."""
    rule, seen = Interpolate(alpha=0.5, weighting=Exponential(1.0)), [np.zeros(1, np.float32)]
    while seen[-1][0] < 400:
        base = seen[max(len(seen) - 1 - 3, 0)]
        mixed = rule.mix(seen[-1], base + np.float32(2), base, 0, 3)
        assert mixed is not None
        seen.append(mixed)
    expected = expected_communications(400, weight=0.5, staleness=3, edge_rounds=2)
    assert expected == 1000
    assert len(seen) - 1 == pytest.approx(expected, rel=0.01)


def test_under_delta_mixing_staleness_costs_nothing() -> None:
    rule, seen = Delta(alpha=0.5, weighting=Exponential(1.0)), [np.zeros(1, np.float32)]
    while seen[-1][0] < 400:
        base = seen[max(len(seen) - 1 - 3, 0)]
        mixed = rule.mix(seen[-1], base + np.float32(2), base, 0, 3)
        assert mixed is not None
        seen.append(mixed)
    assert len(seen) - 1 == 400  # a H = 1 each
    assert expected_communications(400, weight=0.5, staleness=0, edge_rounds=2) == 400


@pytest.mark.parametrize(
    ("name", "value"),
    [("rounds", 0), ("weight", 0), ("weight", 1.5), ("staleness", -1), ("edge_rounds", 0), ("accepted", 0),
     ("rounds", float("nan")), ("staleness", float("inf"))],
)  # fmt: skip
def test_a_number_outside_its_range_is_an_error_that_names_it(name: str, value: float) -> None:
    given = {"rounds": 100.0, "weight": 0.5, "staleness": 1.0, "edge_rounds": 2.0, "accepted": 1.0}
    with pytest.raises(ConfigError, match=f"^{name} is"):
        expected_communications(**{**given, name: value})  # type: ignore[misc]
