"""Mixing rules and thresholds of a user's own: what they may return, and whose error is whose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hiflash
from hiflash import Part
from hiflash.core.state import Stateful
from hiflash.errors import ConfigError, ProtocolError

pytestmark = pytest.mark.usefixtures("parts_as_before")


class Rule(Stateful):
    """Gives whatever a function makes of the edge model."""

    def __init__(self, give: Callable[[np.ndarray], Any]) -> None:
        self.give = give

    def mix(self, weights: Any, update: Any, base: Any, edge: int, staleness: int) -> Any:
        return self.give(update)


class Policy(Stateful):
    """Gives whatever a function makes of an edge."""

    def __init__(self, give: Callable[[int], Any]) -> None:
        self.give = give

    def decide(self, view: Any, edge: int) -> Any:
        return self.give(edge)


@pytest.mark.parametrize(
    ("give", "got"),
    [
        (lambda update: update[:-1], r"float32 of shape \(208,\)"),
        (lambda update: update[None], r"float32 of shape \(1, 209\)"),
        (lambda update: np.float32(3), "float32$"),
        (lambda update: update.tolist(), "list"),
        (lambda update: "mixed", "str"),
        (lambda update: update.astype(np.int64), r"int64 of shape \(209,\)"),
    ],
)
def test_a_rule_that_returns_no_model_is_named_with_both_shapes(
    give: Callable[[np.ndarray], Any], got: str, run_tiny: Any
) -> None:
    hiflash.register("mixing", Part("odd", "mine", lambda config, trained: Rule(give)))
    # 36 x 5 and 5 x 4 weights, 5 and 4 biases
    said = rf"Rule.mix must return the next model, float32 of shape \(209,\), or None.*, got {got}"
    with pytest.raises(ProtocolError, match=said):
        run_tiny(**{"cloud.mixing": "odd"})


def test_a_model_in_double_precision_is_the_same_in_single(run_tiny: Any) -> None:
    hiflash.register("mixing", Part("single", "mine", lambda config, trained: Rule(np.copy)))
    hiflash.register("mixing", Part("double", "mine", lambda config, trained: Rule(np.float64)))
    runs = [run_tiny(**{"cloud.mixing": name}) for name in ("single", "double")]
    assert runs[0].digest == runs[1].digest
    assert runs[1].weights.dtype == np.float32


def test_a_rule_may_buffer_everything(run_tiny: Any) -> None:
    hiflash.register("mixing", Part("never", "mine", lambda config, trained: Rule(lambda update: None)))
    assert run_tiny(**{"cloud.mixing": "never"}).version == 0


@pytest.mark.parametrize("threshold", ["2", None, -3, float("nan"), [1], 1j])
def test_a_threshold_that_is_none_is_named(threshold: Any, run_tiny: Any) -> None:
    hiflash.register("threshold", Part("odd", "mine", lambda config: Policy(lambda edge: threshold)))
    with pytest.raises(ProtocolError, match=r"Policy.decide must return a number >= 0, or -1 .*, got"):
        run_tiny(**{"cloud.threshold": "odd"})


@pytest.mark.parametrize("threshold", [2, 2.0, np.int64(2), np.float32(2)])
def test_any_kind_of_number_is_a_threshold(threshold: Any, run_tiny: Any, tmp_path: Any) -> None:
    hiflash.register("threshold", Part("two", "mine", lambda config: Policy(lambda edge: threshold)))
    mine = run_tiny(directory=tmp_path / "two", checkpoint_s=1e-6, **{"cloud.threshold": "two"})
    assert mine.digest == run_tiny(**{"cloud.threshold": 2}).digest


@pytest.mark.parametrize("made", [None, 3, Rule, object()])
def test_what_makes_a_part_must_return_one(made: Any, run_tiny: Any) -> None:
    hiflash.register("mixing", Part("odd", "mine", lambda config, trained: made))
    hiflash.register("threshold", Part("odd", "mine", lambda config: made))
    with pytest.raises(ConfigError, match="an object with the methods mix, snapshot, restore, got"):
        run_tiny(**{"cloud.mixing": "odd"})
    with pytest.raises(ConfigError, match="an object with the methods decide, snapshot, restore, got"):
        run_tiny(**{"cloud.threshold": "odd"})


def test_a_part_is_made_by_a_function_and_a_method_of_settings() -> None:
    with pytest.raises(ConfigError, match="needs a function that makes one, got Rule"):
        hiflash.register("mixing", Part("odd", "mine", Rule(np.copy)))
    with pytest.raises(ConfigError, match="needs a function that makes one, got int"):
        hiflash.register("threshold", Part("odd", "mine", 3))
    with pytest.raises(ConfigError, match="the method odd needs settings by key, got list"):
        hiflash.register_method("odd", "about", ["cloud.alpha"])
    with pytest.raises(ConfigError, match="has lower-case letters"):
        hiflash.register("mixing", Part(3, "mine", lambda config, trained: Rule(np.copy)))


def raise_mine(*_: object) -> Any:
    raise KeyError("mine")


def test_what_a_part_raises_passes_through(run_tiny: Any) -> None:
    hiflash.register("mixing", Part("mine", "mine", lambda config, trained: Rule(raise_mine)))
    hiflash.register("threshold", Part("mine", "mine", lambda config: Policy(raise_mine)))
    for key in ("cloud.mixing", "cloud.threshold"):
        with pytest.raises(KeyError, match="mine"):
            run_tiny(**{key: "mine"})


def test_a_part_with_a_state_is_resumed(tmp_path: Any, run_tiny: Any, resume_tiny: Any) -> None:
    class Counting(Stateful):
        """Lets every second upload count half."""

        STATE = ("taken",)

        def __init__(self) -> None:
            self.taken = 0

        def mix(self, weights: Any, update: Any, base: Any, edge: int, staleness: int) -> np.ndarray:
            self.taken += 1
            share = np.float32(0.5 if self.taken % 2 else 1)
            return np.asarray((1 - share) * weights + share * update)

    hiflash.register("mixing", Part("counting", "mine", lambda config, trained: Counting()))
    whole = run_tiny(**{"cloud.mixing": "counting"})
    asked = iter([False] * 33 + [True])
    with pytest.raises(hiflash.errors.Paused):
        run_tiny(directory=tmp_path / "r", pause=lambda: next(asked), **{"cloud.mixing": "counting"})
    assert resume_tiny(tmp_path / "r").digest == whole.digest
