"""What goes with secure sums: everything that looks at single clients is an error that says the way out."""

from __future__ import annotations

from typing import Any

import pytest

from hiflash.config import Config
from hiflash.errors import ConfigError
from hiflash.privacy.sums.messages import MOST_CLIENTS, MOST_EXAMPLES, MOST_OF_A_CLIENT
from hiflash.sim.machines import check_clusters, check_samples

SECURE = {"edge.secure": "secagg"}
LARGE: dict[str, Any] = {"method": "hifl", "federation.clients": 20_010, "federation.edges": 10, **SECURE}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"edge.secure": "on"}, 'edge.secure must be "off" or "secagg", got "on"'),
        ({"method": "fedavg", **SECURE}, "edge.secure needs edges, and fedavg has none"),
        ({"method": "fedasync", **SECURE}, "edge.secure needs edges"),
        ({"method": "centralized", **SECURE}, "edge.secure is about clients, and centralized has none"),
        ({"edge.secure_bound": 1.0}, 'edge.secure_bound is for edge.secure = "secagg"'),
        ({"edge.secure_bound": 0.0, **SECURE}, r"edge.secure_bound must be in \[1e-12, 1e12\], got 0"),
        ({"edge.secure_bound": 1e-310, **SECURE}, r"must be in \[1e-12, 1e12\], got 1e-310"),
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
        (
            {**LARGE, "federation.clients": 10_001, "edge.clients_per_round": "all"},
            "at most 1000 clients in an edge round, and federation.clients = 10001 on federation.edges = 10 "
            "give a round of 1001; use more edges, or edge.clients_per_round = 1000 or less",
        ),
        ({**LARGE, "edge.clients_per_round": 0.5}, "give a round of 1001"),
        ({**LARGE, "edge.clients_per_round": 1001}, "give a round of 1001"),
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
        {**LARGE, "federation.clients": 10_000, "edge.clients_per_round": "all"},
        {**LARGE, "federation.clients": 20_000, "edge.clients_per_round": 0.5, "edge.secure_bound": 1e-12},
    ],
)
def test_a_configuration_with_secure_sums_comes_back_from_its_file(
    settings: dict[str, Any], tmp_path: Any
) -> None:
    config = Config(**{**settings, **SECURE})
    (tmp_path / "config.toml").write_text(config.to_toml())
    assert Config.load(tmp_path / "config.toml") == config


def test_an_edge_with_too_many_clients_for_a_sum_is_found_after_the_association() -> None:
    settings = {"federation.clients": 2_000, "federation.edges": 2, "edge.clients_per_round": "all"}
    config = Config(**settings, **SECURE)
    check_clusters(config, [range(1000), range(1000, 2000)])
    with pytest.raises(ConfigError, match="at most 1000 clients in an edge round, and edge 1 has 1001"):
        check_clusters(config, [range(999), range(999, 2000)])
    drawn = config.with_settings({"edge.clients_per_round": 10})
    check_clusters(drawn, [range(999), range(999, 2000)])
    check_clusters(config.with_settings({"edge.secure": "off"}), [range(999), range(999, 2000)])


def test_no_client_has_more_samples_than_a_sum_of_a_thousand_can_count() -> None:
    own = {"serve.data": "own", "method": "hierfavg"}
    Config(**SECURE, **own, **{"serve.client_examples": 2**21})
    with pytest.raises(ConfigError, match=r"at most 2097152 samples of a client.*lower it"):
        Config(**SECURE, **own, **{"serve.client_examples": 2**21 + 1})
    Config(**own, **{"serve.client_examples": 2**21 + 1})
    assert MOST_CLIENTS * MOST_OF_A_CLIENT <= MOST_EXAMPLES
    check_samples(Config(**SECURE), [5, 2**21])
    with pytest.raises(ConfigError, match="one has 2097153; use more clients"):
        check_samples(Config(**SECURE), [5, 2**21 + 1])
    check_samples(Config(), [2**40])


def test_without_secure_sums_digests_are_those_from_before() -> None:
    assert "edge.secure" not in Config().decisive()
    assert Config(**SECURE).decisive()["edge.secure"] == "secagg"
    assert Config(**SECURE).decisive()["edge.secure_bound"] == 8.0
    assert Config().digest() != Config(**SECURE).digest()
