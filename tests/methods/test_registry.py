"""Parts of one's own, and what the methods are made of."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import hiflash
from hiflash.cli import main
from hiflash.core.state import Stateful
from hiflash.core.thresholds.fixed import FixedThreshold
from hiflash.errors import ConfigError
from hiflash.methods import registry
from hiflash.methods.recipes import METHODS


class Newest(Stateful):
    """Takes over the newest edge model."""

    def mix(self, weights: Any, update: Any, base: Any, edge: int, staleness: int) -> np.ndarray:
        return np.array(update)


pytestmark = pytest.mark.usefixtures("parts_as_before")


def test_a_mixing_rule_of_ones_own_runs_and_may_use_any_setting(run_tiny: Any) -> None:
    hiflash.register_mixing("newest", lambda config, trained: Newest())
    hiflash.register_method("latest", "the newest edge model", {"cloud.mixing": "newest"})
    same = run_tiny("hifl", **{"cloud.alpha": 1.0, "cloud.penalty": 1.0})
    assert run_tiny("latest", **{"cloud.alpha": 0.3}).digest == same.digest
    assert registry.registered()


def test_a_threshold_of_ones_own_runs(run_tiny: Any) -> None:
    hiflash.register_threshold("one", lambda config: FixedThreshold(1))
    assert run_tiny(**{"cloud.threshold": "one"}).digest == run_tiny(**{"cloud.threshold": 1}).digest


def test_a_method_with_wrong_settings_is_refused_and_not_kept() -> None:
    with pytest.raises(ConfigError, match=r"unknown key cloud\.mixin"):
        hiflash.register_method("wrong", "a typing error", {"cloud.mixin": "delta"})
    assert "wrong" not in METHODS
    with pytest.raises(ConfigError, match="method must be"):
        hiflash.Config(method="wrong")


@pytest.mark.parametrize("name", ["Upper", "", "a b", "../x", "9lives"])
def test_names_are_plain(name: str) -> None:
    with pytest.raises(ConfigError, match="is named with lower-case letters"):
        hiflash.register_mixing(name, lambda config, trained: Newest())


def test_what_comes_with_hiflash_cannot_be_replaced_by_accident() -> None:
    with pytest.raises(ConfigError, match="choose another name"):
        hiflash.register_mixing("delta", lambda config, trained: Newest())
    hiflash.register_mixing("mine", lambda config, trained: Newest())
    hiflash.register_mixing("mine", lambda config, trained: Newest())  # a notebook cell runs twice


def test_every_method_is_listed_with_its_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert set(rows) == set(METHODS)
    assert rows["fedbuff"]["parts"] == {
        "association": "none (flat)",
        "schedule": "async (10 at a time)",
        "mixing": "buffer (1, polynomial)",
        "threshold": "random",
        "client": "SGD",
    }
    assert rows["hierfavg"]["settings"]["cloud.participants"] == 2
    assert main(["methods"]) == 0
    shown = capsys.readouterr().out
    assert all(f"{name} " in shown for name in METHODS)
