"""Who changes edges when an association is repaired, and where a client goes that joins."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hiflash.core.association.membership import ABSENT
from hiflash.core.association.repair import Placement, Switch
from hiflash.core.association.strategies import js_divergence, label_distribution

ONE_CLASS_EACH = np.array([[4, 0], [4, 0], [0, 4], [0, 4]])
EVEN = np.array([0.5, 0.5])
SAME = np.ones((4, 2), dtype=np.int64)  # divergence 0 wherever they are


def placement(home, labels, edges=2, weight=300.0, capacity=None):
    labels = np.array(labels)
    overall = label_distribution(labels.sum(axis=0))
    return Placement(np.array(home), edges, labels, overall, heterogeneity_weight=weight, capacity=capacity)


def test_a_client_adds_its_latency_and_what_the_divergence_rises():
    # JS((1, 0), (1/2, 1/2)) = 0.3112781; JS((1/3, 2/3), (1/2, 1/2)) = 0.0207209.
    # Client 0 at edge 0, beside client 1: (1, 0) with and without it, so 50 ms alone.
    # At edge 1, beside 2 and 3: from (0, 1) to (4/12, 8/12): 70 + 300 * (0.0207209 - 0.3112781) = -17.1672
    costs = placement([0, 0, 1, 1], ONE_CLASS_EACH).costs(0, np.array([50.0, 70.0]))
    assert costs == pytest.approx([50.0, -17.1672], abs=1e-4)
    # Alone at an edge it adds the divergence of its own labels: 300 * 0.3112781 = 93.3834
    alone = placement([0, 1, 1, 1], ONE_CLASS_EACH).costs(0, np.array([50.0, 50.0]))
    assert alone[0] == pytest.approx(143.3834, abs=1e-4)


def test_a_repair_mixes_classes_that_were_apart():
    # Client 0 saves 87.17 at edge 1 (above) and goes; client 1 is then the last at edge 0 and stays.
    # Client 2 leaves (4, 8) for (4, 0): 50 + 6.22 there, 50 - 93.38 here, and goes.
    # Client 3 keeps edge 1 balanced (-43.38) and would spoil edge 0 (56.22).
    mixed = placement([0, 0, 1, 1], ONE_CLASS_EACH)
    assert mixed.divergence(EVEN) == pytest.approx([0.3112781, 0.3112781], abs=1e-7)
    assert mixed.repair(np.full((2, 4), 50.0), 20.0) == [Switch(0, 0, 1), Switch(2, 1, 0)]
    assert mixed.home.tolist() == [1, 0, 0, 1]
    assert mixed.divergence(EVEN).tolist() == [0.0, 0.0]
    assert mixed.repair(np.full((2, 4), 50.0), 0.0) == []


def test_a_switch_must_save_more_than_it_costs():
    latency_ms = np.array([[100.0, 50, 50, 50], [60.0, 90, 90, 90]])  # client 0 saves 40 ms at edge 1
    assert placement([0, 0, 0, 1], SAME).repair(latency_ms, 39.9)[0] == Switch(0, 0, 1)
    home = placement([0, 0, 0, 1], SAME)
    assert home.repair(latency_ms, 40.0) == []
    assert home.home.tolist() == [0, 0, 0, 1]


def test_of_equally_cheap_edges_the_first_is_taken():
    latency_ms = np.array([[9.0] * 4, [2.0] * 4, [2.0] * 4])
    assert placement([0, 0, 1, 2], SAME, edges=3).repair(latency_ms, 1.0) == [Switch(0, 0, 1)]


def test_the_last_client_of_an_edge_stays_and_an_empty_edge_takes_its_nearest():
    latency_ms = np.array([[1.0, 1, 1, 1], [900.0, 900, 900, 900], [30.0, 10, 20, 10]])
    repaired = placement([0, 0, 0, 1], SAME, edges=3)
    # Clients 1 and 3 are nearest to the empty edge 2 with 10 ms, but 3 is the last of edge 1.
    assert repaired.repair(latency_ms, 500.0) == [Switch(1, 0, 2)]
    assert repaired.sizes.tolist() == [2, 1, 1]


def test_clients_leave_an_edge_that_they_cannot_reach_any_more():
    out = np.inf
    latency_ms = np.array([[out, 5.0, 5, 5], [80.0, 5, 5, out], [out, out, out, out]])
    # Client 0 can reach edge 1 only; nobody can reach edge 2, so it stays empty.
    repaired = placement([0, 0, 1, 0], SAME, edges=3)
    assert repaired.repair(latency_ms, 1e6) == [Switch(0, 0, 1)]


def test_a_client_that_joins_goes_to_the_nearest_empty_edge_or_else_to_the_cheapest():
    labels = [[4, 0], [0, 4], [4, 0], [0, 4]]
    joining = placement([0, 1, 1, ABSENT], labels, edges=4)
    latency_ms = np.array([50.0, 60.0, 40.0, 30.0])
    assert joining.cheapest(3, latency_ms) == 3
    # Edges 2 and 3 are out of reach. At edge 0 it balances (4, 0): 50 - 93.38; edge 1 has (4, 4): 60 + 6.22.
    assert joining.cheapest(3, np.array([50.0, 60.0, np.inf, np.inf])) == 0


def test_absent_clients_are_left_alone_but_their_labels_count_as_all_labels():
    absent = placement([0, 1, ABSENT, ABSENT], ONE_CLASS_EACH)
    assert absent.divergence(EVEN) == pytest.approx([0.3112781, 0.3112781], abs=1e-7)
    assert absent.repair(np.full((2, 4), 50.0), 0.0) == []


def test_without_labels_latency_alone_decides():
    unlabelled = placement([0, 0], np.zeros((2, 0), dtype=np.int64))
    assert unlabelled.repair(np.array([[10.0, 10], [1.0, 10]]), 5.0) == [Switch(0, 0, 1)]


def test_nobody_goes_to_a_full_edge_of_own_accord():
    latency_ms = np.array([[100.0, 100, 100, 100], [10.0, 10, 10, 10]])
    limited = placement([0, 0, 0, 1], SAME, capacity=2)
    assert limited.repair(latency_ms, 5.0) == [Switch(0, 0, 1)]  # then edge 1 has its two
    assert limited.repair(latency_ms, 5.0) == []
    joining = placement([0, 1, 1, ABSENT], SAME, capacity=2)
    assert joining.cheapest(3, latency_ms[:, 3]) == 0
    assert joining.cheapest(3, np.array([np.inf, 10.0])) == 1  # it reaches no other
    assert placement([0, 0, 1, 1], SAME, capacity=2).repair(latency_ms, 5.0) == []


def test_another_target_than_all_labels_can_be_aimed_at():
    # All labels are (2/3, 1/3). Aiming at (1/2, 1/2), client 3 with (0, 2) balances edge 0 with its (2, 0):
    # 10 + 300 * (0 - 0.3112781) = -83.3834; edge 1 is balanced: 10 + 300 * (0.0207209 - 0) = 16.2163
    labels = np.array([[2, 0], [2, 2], [4, 0], [0, 2]])
    aimed = Placement(np.array([0, 1, ABSENT, ABSENT]), 2, labels, EVEN, heterogeneity_weight=300.0)
    assert aimed.costs(3, np.array([10.0, 10.0])) == pytest.approx([-83.3834, 16.2163], abs=1e-4)


@st.composite
def instances(draw):
    clients, edges, classes = draw(st.integers(2, 14)), draw(st.integers(1, 4)), draw(st.integers(1, 4))
    home = draw(st.lists(st.integers(ABSENT, edges - 1), min_size=clients, max_size=clients))
    stream = np.random.default_rng(draw(st.integers(0, 10**6)))
    labels = stream.integers(0, 5, (clients, classes)) * stream.integers(0, 2, (clients, classes))
    labels[0, 0] += 1  # somebody has a sample
    latency_ms = stream.uniform(10, 120, (edges, clients))
    return np.array(home), labels, latency_ms, draw(st.sampled_from([0.0, 50.0, 300.0, 2000.0]))


def total_cost(placed, latency_ms):
    present = np.flatnonzero(placed.home != ABSENT)
    divergence = placed.heterogeneity_weight * placed.divergence(placed.target).sum()
    return latency_ms[placed.home[present], present].sum() + divergence


@given(instance=instances(), switching_cost=st.sampled_from([0.0, 5.0, 40.0]))
@settings(max_examples=150, deadline=None)
def test_every_switch_lowers_the_cost_by_more_than_its_own_and_empties_no_edge(instance, switching_cost):
    home, labels, latency_ms, weight = instance
    placed = placement(home, labels, len(latency_ms), weight)
    filled = {switch.target for switch in placed.repair(latency_ms, np.inf)}  # empty edges take somebody
    assert all(np.sum(home == edge) == 0 for edge in filled)
    for _ in range(50):
        before, sizes = total_cost(placed, latency_ms), placed.sizes.copy()
        switches = placed.repair(latency_ms, switching_cost)
        assert total_cost(placed, latency_ms) <= before - len(switches) * switching_cost + 1e-6
        assert all(placed.sizes[sizes > 0] > 0)
        if not switches:
            break
    else:
        pytest.fail("repairs go round in circles")
    again = placement(placed.home, labels, len(latency_ms), weight)
    assert (again.held == placed.held).all()
    assert (again.sizes == placed.sizes).all()


@given(instance=instances())
@settings(max_examples=100, deadline=None)
def test_costs_are_those_of_the_plain_formula(instance):
    home, labels, latency_ms, weight = instance
    placed = placement(home, labels, len(latency_ms), weight)

    def divergence(clients):
        counts = labels[clients].sum(axis=0)
        return (
            js_divergence(label_distribution(counts), label_distribution(labels.sum(axis=0)))
            if counts.any()
            else 0.0
        )

    for client in range(len(home)):
        others = [[k for k in np.flatnonzero(home == edge) if k != client] for edge in range(len(latency_ms))]
        plain = [
            latency_ms[edge, client] + weight * (divergence([*rest, client]) - divergence(rest))
            for edge, rest in enumerate(others)
        ]
        assert placed.costs(client, latency_ms[:, client]) == pytest.approx(plain, abs=1e-6)
