"""Parts of one's own, and what the methods are made of."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import hiflash
from hiflash import Part
from hiflash.cli import main
from hiflash.core.state import Stateful
from hiflash.core.thresholds.fixed import FixedThreshold
from hiflash.errors import ConfigError
from hiflash.methods import registry
from hiflash.methods.kinds import KINDS
from hiflash.methods.recipes import METHODS


class Newest(Stateful):
    """Takes over the newest edge model."""

    def mix(self, weights: Any, update: Any, base: Any, edge: int, staleness: int) -> np.ndarray:
        return np.array(update)


pytestmark = pytest.mark.usefixtures("parts_as_before")


def test_a_mixing_rule_of_ones_own_runs_and_may_use_any_setting(run_tiny: Any) -> None:
    hiflash.register("mixing", Part("newest", "mine", lambda config, trained: Newest()))
    hiflash.register_method("latest", "the newest edge model", {"cloud.mixing": "newest"})
    same = run_tiny("hifl", **{"cloud.alpha": 1.0, "cloud.penalty": 1.0})
    assert run_tiny("latest", **{"cloud.alpha": 0.3}).digest == same.digest
    assert registry.registered()


def test_a_threshold_of_ones_own_runs(run_tiny: Any) -> None:
    hiflash.register("threshold", Part("one", "mine", lambda config: FixedThreshold(1)))
    assert run_tiny(**{"cloud.threshold": "one"}).digest == run_tiny(**{"cloud.threshold": 1}).digest


def test_a_method_with_wrong_settings_is_refused_and_not_kept() -> None:
    with pytest.raises(ConfigError, match=r"unknown key cloud\.mixin"):
        hiflash.register_method("wrong", "a typing error", {"cloud.mixin": "delta"})
    assert "wrong" not in METHODS
    with pytest.raises(ConfigError, match="method must be"):
        hiflash.Config(method="wrong")


@pytest.mark.parametrize("name", ["Upper", "", "a b", "../x", "9lives"])
def test_names_are_plain(name: str) -> None:
    with pytest.raises(ConfigError, match=r"the name of a .* has lower-case letters"):
        hiflash.register("mixing", Part(name, "mine", lambda config, trained: Newest()))


def test_what_comes_with_hiflash_cannot_be_replaced_by_accident() -> None:
    with pytest.raises(ConfigError, match="choose another name"):
        hiflash.register("mixing", Part("delta", "mine", lambda config, trained: Newest()))
    with pytest.raises(ConfigError, match="choose another name"):
        hiflash.register("mixing", Part("delta", "mine", lambda config, trained: Newest()), replace=True)


def test_a_name_registered_twice_is_replaced_on_purpose_only() -> None:
    again = (
        r"mine is a .* that you registered already; choose another name, or give replace=True to replace it"
    )
    hiflash.register("mixing", Part("mine", "mine", lambda config, trained: Newest()))
    hiflash.register("threshold", Part("mine", "mine", lambda config: FixedThreshold(1)))
    hiflash.register_method("mine", "first", {"client.lr": 0.5})
    with pytest.raises(ConfigError, match=again):
        hiflash.register("mixing", Part("mine", "mine", lambda config, trained: Newest()))
    with pytest.raises(ConfigError, match=again):
        hiflash.register("threshold", Part("mine", "mine", lambda config: FixedThreshold(2)))
    with pytest.raises(ConfigError, match=again):
        hiflash.register_method("mine", "second", {"client.lr": 0.25})
    assert hiflash.Config(method="mine").client.lr == 0.5
    hiflash.register("mixing", Part("mine", "mine", lambda config, trained: Newest()), replace=True)
    hiflash.register("threshold", Part("mine", "mine", lambda config: FixedThreshold(2)), replace=True)
    policy = registry.threshold_policy(hiflash.Config(**{"cloud.threshold": "mine"}))
    assert policy.threshold == 2  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"client\.lr must be"):
        hiflash.register_method("mine", "wrong", {"client.lr": -1}, replace=True)
    assert hiflash.Config(method="mine").client.lr == 0.5
    hiflash.register_method("mine", "second", {"client.lr": 0.25}, replace=True)
    assert hiflash.Config(method="mine").client.lr == 0.25


def test_a_threshold_of_ones_own_is_named_in_errors_and_may_stand_beside_any_key() -> None:
    hiflash.register("threshold", Part("mine", "mine", lambda config: FixedThreshold(config.cloud.skipped)))
    config = hiflash.Config(**{"cloud.threshold": "mine", "cloud.skipped": 5})
    assert registry.threshold_policy(config).threshold == 5  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match='"agent" or "mine", got "nobody"'):
        hiflash.Config(**{"cloud.threshold": "nobody"})


def test_every_method_is_listed_with_its_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    rows, kinds = printed["methods"], printed["parts"]
    assert set(rows) == set(METHODS)
    assert set(kinds) == set(KINDS)
    assert kinds["aggregate"]["keys"] == ["edge.aggregate", "cloud.aggregate"]
    assert kinds["aggregate"]["parts"]["trimmed_mean"]["keys"] == ["edge.trim", "cloud.trim"]
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
    assert all(f"{name} " in shown for kind in KINDS.values() for name in kind.parts)
