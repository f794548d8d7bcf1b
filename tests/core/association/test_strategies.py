"""Who belongs to which edge, and how balanced the clusters are."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hiflash.core.association.strategies import (
    edge_iid,
    edge_noniid,
    js_divergence,
    js_per_edge,
    label_distribution,
    latency_per_edge_ms,
    latency_tiers,
    mean_of_peopled,
    random_association,
    waiting_per_edge_ms,
)
from hiflash.errors import ConfigError
from hiflash.seeding import rng


@given(clients=st.integers(1, 120), edges=st.integers(1, 20), seed=st.integers(0, 10**6))
@settings(max_examples=80, deadline=None)
def test_random_association_places_every_client_once_in_sizes_within_one(clients, edges, seed):
    clusters = random_association(clients, edges, rng(seed, "association"))
    assert len(clusters) == edges
    assert sorted(client for cluster in clusters for client in cluster) == list(range(clients))
    sizes = [len(cluster) for cluster in clusters]
    assert max(sizes) - min(sizes) <= 1
    assert all(cluster == sorted(cluster) for cluster in clusters)
    assert all(type(client) is int for cluster in clusters for client in cluster)


def test_random_association_is_repeatable_and_random():
    draws = [random_association(100, 10, rng(seed, "association")) for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]


def test_random_association_spreads_clients_evenly():
    counts = np.zeros((10, 20))
    for seed in range(400):
        for edge, cluster in enumerate(random_association(20, 10, rng(seed, "a"))):
            counts[edge, cluster] += 1
    # 400 / 10 = 40 expected of each, deviation sqrt(400 * 0.1 * 0.9) = 6; 5 of them is 30
    assert np.abs(counts - 40).max() < 30


def test_label_distribution_is_the_share_of_every_label():
    assert label_distribution(np.array([1, 0, 2, 1])).tolist() == [0.25, 0.0, 0.5, 0.25]


def test_js_of_disjoint_distributions_is_one_bit():
    assert js_divergence(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == 1.0
    assert js_divergence(np.array([0.5, 0.5, 0, 0]), np.array([0, 0, 0.25, 0.75])) == pytest.approx(1.0)


def test_js_of_equal_distributions_is_zero():
    p = np.array([0.1, 0.0, 0.2, 0.7])
    assert js_divergence(p, p) == 0.0


def test_js_by_hand_in_bits():
    # p = (1, 0), q = (1/2, 1/2), m = (3/4, 1/4).
    # KL(p|m) = log2(4/3) = 0.4150375; KL(q|m) = 1/2 log2(2/3) + 1/2 log2(2) = -0.2924813 + 0.5 = 0.2075187
    # JS = (0.4150375 + 0.2075187) / 2 = 0.3112781
    assert js_divergence(np.array([1.0, 0.0]), np.array([0.5, 0.5])) == pytest.approx(0.3112781, abs=1e-7)


def test_js_of_one_class_against_ten_uniform_classes():
    # m = (0.55, 0.05 x 9). KL(p|m) = log2(1 / 0.55) = 0.8624965;
    # KL(q|m) = 0.1 log2(0.1 / 0.55) + 0.9 log2(2) = 0.1 * -2.4594316 + 0.9 = 0.6540568; mean 0.7582767
    one, uniform = np.eye(10)[3], np.full(10, 0.1)
    assert js_divergence(one, uniform) == pytest.approx(0.7582767, abs=1e-7)


def test_a_label_that_one_side_lacks_is_no_problem():
    # 0 log 0 = 0: no warning (warnings are errors here), no NaN
    value = js_divergence(np.array([0.0, 1.0, 0.0]), np.array([0.5, 0.5, 0.0]))
    assert value == pytest.approx(0.3112781, abs=1e-7)  # the numbers of the case by hand


COUNTS = st.lists(st.integers(0, 1000), min_size=6, max_size=6).filter(any)


@given(a=COUNTS, b=COUNTS)
@settings(max_examples=150, deadline=None)
def test_js_is_symmetric_and_between_zero_and_one(a, b):
    p, q = label_distribution(np.array(a)), label_distribution(np.array(b))
    value = js_divergence(p, q)
    assert value == js_divergence(q, p)
    assert 0 <= value <= 1


@example(a=[0, 0, 0, 0, 1, 532], scale=7)
@given(a=COUNTS, scale=st.integers(2, 9))
@settings(max_examples=60, deadline=None)
def test_js_of_nearly_equal_distributions_is_not_negative(a, scale):
    # The shares of counts and of their multiples differ in the last bit at most.
    p = label_distribution(np.array(a))
    q = p * scale / scale
    assert 0 <= js_divergence(p, q) < 1e-12


def test_js_of_every_edge_is_measured_against_the_global_distribution():
    # Two labels, four clients: (4, 0), (0, 4), (2, 2), (2, 2); overall (1/2, 1/2).
    counts = np.array([[4, 0], [0, 4], [2, 2], [2, 2]])
    # Edges {0} and {1} hold one label each: 0.3112781 apiece, as by hand above; {2, 3} is balanced.
    assert js_per_edge(counts, [[0], [1], [2, 3]]) == pytest.approx([0.3112781, 0.3112781, 0.0], abs=1e-6)
    assert js_per_edge(counts, [[0, 1], [2, 3]]) == [0.0, 0.0]


def test_an_edge_without_clients_adds_nothing_to_the_total():
    counts = np.array([[4, 0], [0, 4]])
    assert sum(js_per_edge(counts, [[0], [], [1]])) == pytest.approx(2 * 0.3112781, abs=1e-6)


def test_js_per_edge_weighs_labels_by_samples():
    # Overall (6, 2) / 8 = (3/4, 1/4). Edge {0} = (1, 0): KL(p|m), m = (7/8, 1/8): log2(8/7) = 0.1926451;
    # KL(q|m) = 3/4 log2(6/7) + 1/4 log2(2) = -0.1667943 + 0.25 = 0.0832057; JS = 0.1379254
    # Edge {1} = (2, 2) / 4 = (1/2, 1/2), m = (5/8, 3/8): KL(p|m) = 1/2 log2(4/5) + 1/2 log2(4/3)
    # = -0.1609640 + 0.2075187 = 0.0465547; KL(q|m) = 3/4 log2(6/5) + 1/4 log2(2/3)
    # = 0.1972758 - 0.1462406 = 0.0510352; JS = 0.0487949
    counts = np.array([[4, 0], [2, 2]])
    assert js_per_edge(counts, [[0], [1]]) == pytest.approx([0.1379254, 0.0487949], abs=1e-6)


def test_latency_tiers_rank_clients_and_differ_in_size_by_at_most_one():
    # By latency: 1 and 3 (0.1 each, lowest id first), 2, 0, 4; seven clients in three tiers are 3 + 2 + 2.
    assert latency_tiers(np.array([0.3, 0.1, 0.2, 0.1, 0.9]), 2) == [[1, 2, 3], [0, 4]]
    assert latency_tiers(np.array([7.0, 6, 5, 4, 3, 2, 1]), 3) == [[4, 5, 6], [2, 3], [0, 1]]


def test_clients_of_equal_latency_are_ranked_by_id():
    assert latency_tiers(np.ones(6), 3) == [[0, 1], [2, 3], [4, 5]]


def test_edge_iid_gives_every_edge_as_many_clients_of_each_class():
    # 12 one-class clients of 3 classes on 4 edges: each edge gets one of each class.
    counts = np.eye(3, dtype=np.int64)[np.arange(12) % 3] * 5
    clusters = edge_iid(counts, 4, rng(0, "a"))
    assert [counts[cluster].sum(axis=0).tolist() for cluster in clusters] == [[5, 5, 5]] * 4
    assert sum(js_per_edge(counts, clusters)) == 0.0


def test_edge_noniid_gives_every_edge_only_so_many_classes():
    # 60 clients of 10 classes on 6 edges with 5 classes each: every class is on 6 * 5 / 10 = 3 edges.
    counts = np.eye(10, dtype=np.int64)[np.arange(60) % 10]
    clusters = edge_noniid(counts, 6, 5, rng(0, "a"))
    held = [set(np.flatnonzero(counts[cluster].sum(axis=0)).tolist()) for cluster in clusters]
    assert [len(classes) for classes in held] == [5] * 6
    assert [sum(label in classes for classes in held) for label in range(10)] == [3] * 10
    assert sorted(client for cluster in clusters for client in cluster) == list(range(60))


def test_edge_noniid_with_too_few_classes_per_edge_is_refused():
    counts = np.eye(10, dtype=np.int64)
    with pytest.raises(ConfigError, match="leaves some of 10 classes without an edge; use at least 5"):
        edge_noniid(counts, 2, 4, rng(0, "a"))


def test_response_latency_and_waiting_by_hand():
    latency_s = np.array([0.010, 0.030, 0.020, 0.040])
    clusters = [[0, 1], [], [2, 3]]
    # Slowest of each edge: 30 and 40 ms. Waiting: (0 + 20) / 2 = 10 and (0 + 20) / 2 = 10 ms.
    assert latency_per_edge_ms(latency_s, clusters) == pytest.approx([30.0, 0.0, 40.0])
    assert waiting_per_edge_ms(latency_s, clusters) == pytest.approx([10.0, 0.0, 10.0])
    assert mean_of_peopled([30.0, 0.0, 40.0], clusters) == 35.0  # the edge without clients does not count
