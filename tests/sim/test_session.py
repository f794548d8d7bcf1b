from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from hiflash.sim.record import Goals
from hiflash.sim.session import Session


class Scripted:
    """An engine whose model's accuracy is given for every communication."""

    def __init__(self, accuracies: list[float]) -> None:
        self.rejections: dict[str, int] = {}
        self.accuracies = accuracies
        self.communications = 0
        self.version = 0

    @property
    def weights(self) -> Any:
        return np.float32([self.accuracies[self.communications - 1] if self.communications else 0.0])

    def start(self) -> None: ...

    def step(self) -> None:
        self.communications += 1
        self.version += 1

    def evaluations_due(self, every: int) -> int:
        return self.communications // every

    def used(self) -> dict[str, float]:
        return {"budget": self.communications / len(self.accuracies)}

    def totals(self) -> dict[str, Any]:
        names = ("client_steps", "wan_bytes", "virtual_s", "total_cost", "lan_bytes")
        return {"communications": self.communications, **dict.fromkeys(names, 10 * self.communications)}

    def figures(self) -> dict[str, Any]:
        return {"staleness": {"mean": 0.0}, "rejections": self.rejections}

    def snapshot(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Any) -> None: ...


def session(accuracies: list[float], every: int = 1, target: float | None = None) -> Session:
    return Session(
        Scripted(accuracies), lambda weights: (round(float(weights[0]), 3), 0.5), Goals(every, target)
    )


def test_evaluations_happen_at_multiples_and_at_the_end() -> None:
    run = session([0.1] * 25, every=10)
    assert run.run() == "budget used up"
    assert [row["communications"] for row in run.evaluations] == [10, 20, 25]


def test_a_target_counts_at_the_first_evaluation_at_or_above_it() -> None:
    run = session([0.1, 0.7, 0.75, 0.6, 0.9, 0.9])
    run.run()
    found = {goal: where and where["communications"] for goal, where in run.targets.items()}
    assert found == {"0.7": 2, "0.8": 5, "0.85": 5, "0.9": 5, "0.95": None}


def test_a_stable_target_needs_the_mean_of_five_evaluations() -> None:
    # Means of the last five from the fifth on: 0.72, 0.76, 0.798, 0.8.
    run = session([0.4, 0.8, 0.8, 0.8, 0.8, 0.6, 0.99, 0.81])
    run.run()
    stable = {goal: where and where["communications"] for goal, where in run.targets_stable.items()}
    assert stable["0.7"] == 5
    assert stable["0.8"] == 8
    assert stable["0.85"] is None


def test_a_run_stops_at_its_own_target() -> None:
    run = session([0.1, 0.33, 0.5, 0.9], target=0.33)
    assert run.run() == "target 0.33 reached"
    assert run.evaluations[-1]["communications"] == 2
    assert run.targets["0.33"] == {
        "communications": 2, "client_steps": 20, "virtual_s": 20, "wan_bytes": 20, "total_cost": 20,
    }  # fmt: skip


def test_a_loss_that_is_no_number_is_null() -> None:
    run = session([0.1])
    run.evaluate = lambda weights: (0.1, float("nan"))
    run.run()
    assert run.evaluations[-1]["loss"] is None
    assert "NaN" not in json.dumps(run.evaluations)


def test_a_model_that_did_not_change_is_not_tested_again() -> None:
    tested = []
    run = session([0.1] * 4)
    run.evaluate = lambda weights: (tested.append(1) or 0.1, 0.0)  # type: ignore[func-returns-value]
    engine: Any = run.engine

    def step() -> None:
        engine.communications += 1  # an upload arrived and was refused

    engine.step = step
    run.run()
    assert len(run.evaluations) == 4
    assert len(tested) == 1


# Runs that do not learn say so.


def losing(accuracies: list[float], losses: list[float], **rejections: int) -> Session:
    """Return a session whose evaluations have these accuracies and losses, with a chance of one in ten."""
    engine = Scripted(accuracies)
    engine.rejections = {reason.replace("_", " "): count for reason, count in rejections.items()}
    told = iter(losses)
    return Session(engine, lambda weights: (round(float(weights[0]), 3), next(told)), Goals(1, None, 0.1))


def test_a_loss_that_is_not_finite_is_a_warning() -> None:
    run = losing([0.5, 0.5], [2.0, float("nan")])
    run.run()
    assert run.warnings() == ["the test loss is not finite: try a smaller client.lr, or client.clip_norm"]
    assert run.status()["warnings"] == run.warnings()


def test_a_run_at_chance_whose_loss_does_not_fall_did_not_learn() -> None:
    run = losing([0.1, 0.09, 0.1, 0.1, 0.08], [2.0, 3.0, 4.0, 4.0, 5.0])
    run.run()
    assert run.warnings() == ["did not learn: accuracy 10.0%, always the same answer gives 10.0%"]


@pytest.mark.parametrize(
    ("accuracies", "losses"),
    [
        ([0.1, 0.1, 0.1, 0.1, 0.1], [2.3, 2.29, 2.28, 2.27, 2.26]),  # slow, but the loss falls
        ([0.1, 0.1, 0.1, 0.1], [2.0, 3.0, 4.0, 5.0]),  # too few evaluations to tell
        ([0.1, 0.1, 0.1, 0.1, 0.2], [2.0, 2.0, 2.0, 2.0, 2.0]),
    ],
)
def test_a_run_that_may_still_learn_is_no_warning(accuracies: list[float], losses: list[float]) -> None:
    run = losing(accuracies, losses)
    run.run()
    assert run.warnings() == []


def test_many_updates_that_did_not_count_are_a_warning_and_a_few_are_none() -> None:
    few, many = losing([0.5], [1.0], not_finite=9), losing([0.5], [1.0], not_finite=8072)
    few.run(), many.run()
    assert few.warnings() == []
    assert many.warnings() == ["8,072 updates did not count: not finite (client.lr may be too large)"]


def validated(tested: list[float], validation: list[float], target: float = 0.9) -> Session:
    """Return a session with scripted accuracies on both sets."""
    engine = Scripted(tested)

    def evaluate(weights: Any) -> tuple[float, ...]:
        place = engine.communications - 1
        return tested[place], 0.5, validation[place], 0.25

    return Session(engine, evaluate, Goals(1, target, validated=True))


def test_the_validation_set_alone_ends_a_run() -> None:
    run = validated([0.95, 0.95, 0.85, 0.7], [0.1, 0.75, 0.9, 0.95])
    assert run.run() == "target 0.9 reached on the validation set"
    assert len(run.evaluations) == 3
    last = run.evaluations[-1]
    assert (last["accuracy"], last["loss"]) == (0.85, 0.5)
    assert (last["validation_accuracy"], last["validation_loss"]) == (0.9, 0.25)
    tested = {goal: where and where["communications"] for goal, where in run.targets.items()}
    assert tested == {"0.7": 1, "0.8": 1, "0.85": 1, "0.9": 1, "0.95": 1}
    found = {goal: where and where["communications"] for goal, where in run.validation_targets.items()}
    assert found == {"0.7": 2, "0.8": 3, "0.85": 3, "0.9": 3, "0.95": None}
    assert run.status()["validation"] == {"scores": {"accuracy": 0.9}}
    assert (run.latest, run.watched) == (0.85, 0.9)


def test_a_run_may_end_on_the_validation_set_before_the_test_set_is_there() -> None:
    run = validated([0.5, 0.8, 0.99], [0.5, 0.92, 0.99])
    assert run.run() == "target 0.9 reached on the validation set"
    assert run.targets["0.9"] is None
    assert run.reached


def test_a_restored_session_knows_what_the_validation_set_has_reached() -> None:
    run = validated([0.1, 0.2], [0.8, 0.91])
    run.run()
    again = validated([0.1, 0.2], [0.8, 0.91])
    assert not again.reached
    again.restore(run.snapshot())
    assert again.reached
    assert again.validation_targets == run.validation_targets


def test_without_a_validation_set_nothing_speaks_of_one() -> None:
    run = session([0.1, 0.9], target=0.9)
    assert run.run() == "target 0.9 reached"
    assert not [name for name in (*run.evaluations[-1], *run.status()) if "validation" in name]
    assert run.validation_targets == {}
