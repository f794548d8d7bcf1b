"""What goes with secure sums: everything that looks at single clients is an error that says the way out."""

from __future__ import annotations

from typing import Any

import pytest

from hiflash.config import Config
from hiflash.errors import ConfigError

SECURE = {"edge.secure": "secagg"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"edge.secure": "on"}, 'edge.secure must be "off" or "secagg", got "on"'),
        ({"method": "fedavg", **SECURE}, "edge.secure needs edges, and fedavg has none"),
        ({"method": "fedasync", **SECURE}, "edge.secure needs edges"),
        ({"method": "centralized", **SECURE}, "edge.secure is about clients, and centralized has none"),
        ({"edge.secure_bound": 1.0}, 'edge.secure_bound is for edge.secure = "secagg"'),
        ({"edge.secure_bound": 0.0, **SECURE}, r"edge.secure_bound must be in \(0, 1e12\], got 0"),
        ({"edge.aggregate": "median", **SECURE}, 'edge.aggregate = "median" looks at single clients'),
        ({"edge.aggregate": "trimmed_mean", **SECURE}, 'use "mean" .cloud.norm_bound still bounds'),
        ({"edge.aggregate": "krum", **SECURE}, "looks at single clients"),
        ({"edge.aggregate": "norm_clip", "edge.clip_norm": 1.0, **SECURE}, "looks at single clients"),
        ({"client.algorithm": "scaffold", **SECURE}, 'client.algorithm = "scaffold" adds up'),
        ({"client.algorithm": "feddyn", **SECURE}, 'client.algorithm = "feddyn" adds up'),
        ({"client.algorithm": "fednova", **SECURE}, '"fednova" weighs every client by its own steps'),
        (
            {"client.algorithm": "function", "client.function": "a:b", "client.extra_values": 2, **SECURE},
            'client.algorithm = "function" adds up',
        ),
        ({"client.local_epochs": 1, **SECURE}, "client.local_epochs = 1 tell it; use client.local_steps"),
        ({"edge.clients_per_round": 2, **SECURE}, "needs 3 clients in an edge round.*clients_per_round is 2"),
        (
            {"federation.clients": 29, "federation.edges": 10, **SECURE},
            "federation.clients = 29 on federation.edges = 10 have fewer; use fewer edges",
        ),
    ],
)
def test_what_does_not_go_together_is_said(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Config(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "hierfavg"},
        {"method": "hifl", "cloud.norm_bound": 5.0, "wan.upload": "int8"},
        {"method": "fedat"},
        {"method": "hifl", "client.algorithm": "function", "client.function": "a:b"},
        {"method": "hifl", "edge.clients_per_round": 0.5, "edge.secure_bound": 1.0},
    ],
)
def test_a_configuration_with_secure_sums_comes_back_from_its_file(
    settings: dict[str, Any], tmp_path: Any
) -> None:
    config = Config(**settings, **SECURE)
    (tmp_path / "config.toml").write_text(config.to_toml())
    assert Config.load(tmp_path / "config.toml") == config


def test_without_secure_sums_digests_are_those_from_before() -> None:
    assert "edge.secure" not in Config().decisive()
    assert Config(**SECURE).decisive()["edge.secure"] == "secagg"
    assert Config(**SECURE).decisive()["edge.secure_bound"] == 8.0
    assert Config().digest() != Config(**SECURE).digest()
