"""Groups are formed by latency, stay together, and never depend on labels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hiflash
from hiflash.core.association.greedy import Problem
from hiflash.core.association.groups import expand, form_groups, group_latency_ms, group_reach
from hiflash.errors import ConfigError


def test_groups_are_near_the_same_edge_and_similarly_fast() -> None:
    #                 near edge 0: 0 1 2 5 6 8         near edge 1: 3 4 7
    latency_ms = np.array([[1, 9, 2, 50, 50, 8, 3, 50, 7], [40, 40, 40, 5, 6, 40, 40, 7, 40]], float)
    # Edge 0 by latency: 0 (1), 2 (2), 6 (3) and then 8 (7), 5 (8), 1 (9).
    assert form_groups(latency_ms, 3) == [[0, 2, 6], [1, 5, 8], [3, 4, 7]]


def test_those_who_are_left_meet_at_their_next_nearest_edge_or_join_a_group() -> None:
    #                              0  1  2   3   4  5
    latency_ms = np.array([[1, 1, 1, 30, 31, 4], [9, 9, 9, 2, 3, 8]], float)
    # Edge 0 has 0, 1, 2 and leaves 5, its slowest; edge 1 has 3 and 4. They meet at edge 1.
    assert form_groups(latency_ms, 3) == [[0, 1, 2], [3, 4, 5]]
    # Without 5, clients 3 and 4 are too few, and the only group is at edge 0.
    latency_ms = latency_ms[:, :5]
    assert form_groups(latency_ms, 3) == [[0, 1, 2, 3, 4]]
    reachable = np.ones((2, 5), bool)
    reachable[0, 3] = False
    with pytest.raises(ConfigError, match="client 3 finds no group of 3"):
        form_groups(latency_ms[:2], 3, reachable)


def test_fewer_clients_than_a_group_are_an_error() -> None:
    with pytest.raises(ConfigError, match="2 clients are no group of 3"):
        form_groups(np.zeros((1, 2)), 3)


@given(st.integers(1, 6), st.integers(3, 40), st.integers(3, 5), st.integers(0, 2**32 - 1))
def test_every_client_is_in_one_group_that_is_large_enough(edges, clients, size, seed) -> None:
    if clients < size:
        return
    latency_ms = np.random.default_rng(seed).uniform(1, 100, (edges, clients))
    groups = form_groups(latency_ms, size)
    assert sorted(client for group in groups for client in group) == list(range(clients))
    assert min(map(len, groups)) >= size
    assert len(groups) == clients // size  # all edges reach all clients, so few are left


def test_a_group_has_the_latency_of_its_slowest_client_and_is_reached_if_all_of_it_are() -> None:
    latency_ms = np.array([[10.0, 20.0, 60.0, 4.0], [1.0, 2.0, 3.0, 8.0]])
    groups = [[0, 1, 2], [3]]
    assert group_latency_ms(latency_ms, groups).tolist() == [[60.0, 4.0], [3.0, 8.0]]
    reachable = np.array([[True, True, False, True], [True, True, True, False]])
    assert group_reach(reachable, groups).tolist() == [[False, True], [True, False]]
    assert group_reach(None, groups) is None
    assert expand([[0], [1]], None) == [[0], [1]]


@pytest.mark.parametrize("strategy", ["heterogeneity", "data", "edge-iid", "edge-noniid"])
def test_groups_stay_together_in_every_strategy(strategy) -> None:
    settings = {"federation.association": strategy, "privacy.histograms": "group", "privacy.group": 4}
    config = hiflash.Config(**settings)
    (clusters,) = hiflash.associate(config).clusters
    from hiflash.sim.clusters import groups_of
    from hiflash.sim.federation import survey

    groups = groups_of(config, survey(config)[1].resources)
    assert groups is not None
    assert min(map(len, groups)) >= 4
    for group in groups:
        assert sum(set(group) <= set(cluster) for cluster in clusters) == 1


def test_capacity_and_reach_hold_for_groups() -> None:
    settings = {"federation.association": "heterogeneity", "privacy.histograms": "group"}
    config = hiflash.Config(**settings, **{"federation.capacity": 16, "federation.reach": 8})
    assert max(hiflash.associate(config).rows[0].cluster_sizes) <= 16
    with pytest.raises(ConfigError, match="2 edges with a capacity of 1 have no room for 3 groups"):
        Problem(np.zeros((2, 3)), np.ones((3, 2), int), 1.0, np.full(2, 0.5), None, 1, "group")
    with pytest.raises(ConfigError, match=r"no room for 3. groups of up to"):
        hiflash.associate(hiflash.Config(**settings, **{"federation.capacity": 10}))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"federation.association": "random"}, "federation.association"),
        ({"federation.clients": 20}, r"privacy.group \(3\) x federation.edges \(10\) exceeds"),
        ({"mobility.repair_s": 1.0}, "places single clients"),
        ({"privacy.group": 2}, "privacy.group must be"),
        ({"privacy.noise": "gaussian"}, "privacy.epsilon is no number"),
        ({"privacy.epsilon": 1.0, "privacy.delta": 1e-6}, "privacy.delta is for privacy.noise"),
    ],
)
def test_settings_that_contradict_groups_are_refused(settings, said) -> None:
    usual = {"federation.association": "heterogeneity", "privacy.histograms": "group"}
    with pytest.raises(ConfigError, match=said):
        hiflash.Config(**{**usual, **settings})


def test_an_association_of_ones_own_does_not_get_groups() -> None:
    with pytest.raises(ConfigError, match="leave it out"):
        hiflash.Config(**{"privacy.histograms": "group", "federation.association": "latency"})
