"""What goes with which algorithm or optimiser: everything else is an error that says why."""

from __future__ import annotations

from typing import Any

import pytest

from hiflash.config import Config
from hiflash.config.describe import describe_method, describe_parts
from hiflash.control.surrogate.stand_in import check_representable
from hiflash.errors import ConfigError

ALGORITHM = "client.algorithm"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({ALGORITHM: "scafold"}, 'client.algorithm must be .*"scaffold".*got "scafold"'),
        (
            {"method": "feddyn", "client.feddyn_alpha": 0.0},
            r"feddyn_alpha must be in \(0, 1e6\], got 0",
        ),
        ({"client.feddyn_alpha": 0.1}, 'is for client.algorithm = "feddyn"'),
        ({"method": "fedprox", ALGORITHM: "feddyn"}, "has its own proximal term.*client.mu is 0.01"),
        (
            {"method": "fedat", ALGORITHM: "feddyn", "client.mu": 0.0},
            'cloud.mixing = "tiers" uses',
        ),
        ({ALGORITHM: "feddyn", "edge.aggregate": "median"}, 'edge.aggregate = "median" protects models'),
        ({"method": "scaffold", "cloud.aggregate": "krum"}, 'cloud.aggregate = "krum" protects models'),
        ({ALGORITHM: "scaffold", "client.optimizer": "adam"}, 'client.optimizer is "adam"; use "sgd"'),
        ({ALGORITHM: "fednova", "client.optimizer": "Adam"}, 'steps of client.optimizer = "adam"'),
        ({ALGORITHM: "fednova", "edge.aggregate": "median"}, "is itself a mean; leave out edge.aggregate"),
        ({"method": "fednova", "cloud.aggregate": "median"}, "is itself a mean; leave out cloud.aggregate"),
        ({"method": "fedasync", ALGORITHM: "fednova"}, "a flat asynchronous method averages none"),
        ({"method": "centralized", ALGORITHM: "scaffold"}, "is about clients, and centralized has none"),
        ({ALGORITHM: "function"}, 'needs client.function = "package.module:name"'),
        ({"client.function": "a:b"}, 'client.function is for client.algorithm = "function"'),
        ({ALGORITHM: "function", "client.function": "a:b", "trainer": "native"}, "runs in PyTorch"),
        ({ALGORITHM: "function", "client.function": "a:b", "client.momentum": 0.5}, "client.momentum is for"),
        ({"method": "fedprox", ALGORITHM: "function", "client.function": "a:b"}, "use client.mu = 0"),
        ({"client.optimizer": "not a name"}, 'client.optimizer must be "sgd", or another optimiser of torch'),
        ({"cloud.optimizer": "adam"}, "cloud.optimizer is for synchronous methods, and hifl is asynchronous"),
        ({"method": "fedavg", "cloud.beta1": 0.5}, 'cloud.beta1 is for cloud.optimizer = "adam" or "yogi"'),
        ({"method": "fedavg", "cloud.lr": 0.5}, 'cloud.lr is for cloud.optimizer = "momentum" or "adam"'),
        ({"method": "fedavg", "cloud.momentum": 0.5}, 'cloud.momentum is for cloud.optimizer = "momentum"'),
        ({"method": "fedadam", "cloud.momentum": 0.5}, 'cloud.momentum is for cloud.optimizer = "momentum"'),
        ({"cloud.momentum": 0.5}, 'cloud.momentum is for cloud.mixing = "delta"'),
        ({"method": "fedadam", "cloud.beta2": 1.0}, r"cloud.beta2 must be in \[0, 1\), got 1"),
    ],
)
def test_what_does_not_go_together_is_said(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Config(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "hierfavg", ALGORITHM: "scaffold", "client.mu": 0.1, "client.momentum": 0.5},
        {"method": "fedat", ALGORITHM: "scaffold"},
        {"method": "fedbuff", ALGORITHM: "feddyn"},
        {"method": "fedavg", ALGORITHM: "feddyn", "client.optimizer": "AdamW"},
        {"method": "hifl", ALGORITHM: "fednova", "attack.kind": "noise"},
        {"method": "feddyn", "cloud.optimizer": "yogi", "cloud.lr": 0.1},
        {"method": "hierfavg", "cloud.optimizer": "momentum", "cloud.momentum": 0.5},
        {"method": "hifl", ALGORITHM: "function", "client.function": "a:b", "edge.aggregate": "median"},
        {"method": "centralized", "client.optimizer": "adam"},
    ],
)
def test_a_configuration_with_an_algorithm_comes_back_from_its_file(
    settings: dict[str, Any], tmp_path: Any
) -> None:
    config = Config(**settings)
    (tmp_path / "config.toml").write_text(config.to_toml())
    assert Config.load(tmp_path / "config.toml") == config


def test_the_name_of_an_optimiser_may_have_capitals() -> None:
    config = Config(**{"client.optimizer": "AdamW"})
    assert config.client.optimizer == "adamw"
    assert config == Config(**{"client.optimizer": "adamw"})


def test_the_description_of_a_method_names_algorithm_and_optimiser() -> None:
    assert describe_method("scaffold")["client"] == "scaffold"
    assert describe_method("fedprox")["client"] == "SGD (mu 0.01)"
    assert describe_method("fedadam")["mixing"] == "mean by samples"
    assert describe_method("fedadam")["optimizer"] == "adam"
    assert describe_parts()["optimizer"]["parts"]["yogi"]["keys"]  # also those that adam declares


@pytest.mark.parametrize("algorithm", ["scaffold", "feddyn", "fednova"])
def test_a_surrogate_stands_in_for_plain_sgd_only(algorithm: str) -> None:
    check_representable(Config(method="hifl"))
    with pytest.raises(ConfigError, match=f'leave out client.algorithm = "{algorithm}"'):
        check_representable(Config(method="hifl", **{ALGORITHM: algorithm}))
