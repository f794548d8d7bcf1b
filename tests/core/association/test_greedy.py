"""Algorithm 3 by hand, and the fast version against the plain one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hiflash.core.association import fast as fast_association
from hiflash.core.association.fast import associate
from hiflash.core.association.greedy import Problem, associate_reference, choose_edges
from hiflash.core.association.strategies import js_divergence, js_divergences, label_distribution
from hiflash.errors import ConfigError
from hiflash.seeding import rng

BOTH = pytest.mark.parametrize("algorithm", [associate_reference, associate])


def problem(latency, counts, weight=300.0, target=None, **limits):
    counts = np.array(counts)
    target = label_distribution(counts.sum(axis=0)) if target is None else np.array(target)
    return Problem(np.array(latency, dtype=np.float64), counts, weight, target, **limits)


@BOTH
def test_a_small_case_by_hand(algorithm):
    # Two classes, target (1/2, 1/2). Edge 0 takes client 0 (1 ms), edge 1 client 1 (1 ms): each one class.
    # Sweep 2, edge 0 holds (4, 0): client 2 = (4, 0) costs 5 + 300 * 0.3112781 = 98.4 ms, client 3 = (0, 4)
    # balances it: 50 + 0. Edge 1 holds (0, 4): client 2 costs 50 + 0, client 3 costs 5 + 93.4 ms.
    latency = [[1, 9, 5, 50], [9, 1, 50, 5]]
    counts = [[4, 0], [0, 4], [4, 0], [0, 4]]
    assert algorithm(problem(latency, counts), rng(0, "a")) == [[0, 3], [1, 2]]
    # At lambda = 100 the divergence is worth 31.1 ms, less than the 45 ms that it would cost.
    assert algorithm(problem(latency, counts, 100.0), rng(0, "a")) == [[0, 2], [1, 3]]


@BOTH
def test_the_worked_example_of_the_paper(algorithm):
    """Edge 0 has clients 0 and 1, two of three classes: it takes client 3, not client 2, the nearer one."""
    latency = [[20, 25, 30, 40, 200, 200], [200, 200, 200, 190, 20, 25]]
    counts = np.eye(3, dtype=np.int64)[[0, 1, 0, 2, 1, 2]] * 10
    assert algorithm(problem(latency, counts, capacity=3), rng(0, "a")) == [[0, 1, 3], [2, 4, 5]]
    assert algorithm(problem(latency, counts, 0.0, capacity=3), rng(0, "a")) == [[0, 1, 2], [3, 4, 5]]


@BOTH
def test_edges_without_clients_choose_first_and_at_once(algorithm):
    # Edge 0 wants client 0 and gets it; edge 1 would want it too and takes the next nearest.
    assert algorithm(problem([[1, 2], [1, 2]], [[1], [1]]), rng(0, "a")) == [[0], [1]]
    # More edges than clients: the last stays empty.
    assert algorithm(problem([[1, 2]] * 3, [[1], [1]]), rng(0, "a")) == [[0], [1], []]


@BOTH
def test_of_equal_costs_the_lowest_client_wins(algorithm):
    # All clients alike: edge 0 takes 0, then 1, 2, 3 one per sweep.
    assert algorithm(problem(np.ones((1, 4)), [[1, 1]] * 4), rng(0, "a")) == [[0, 1, 2, 3]]


def test_a_client_that_several_edges_want_chooses_one_of_them_at_random():
    chosen = {choose_edges({5: [1, 2, 3]}, rng(seed, "a"))[0] for seed in range(40)}
    assert chosen == {(5, 1), (5, 2), (5, 3)}
    assert choose_edges({7: [2], 4: [0]}, rng(0, "a")) == [(4, 0), (7, 2)]


@BOTH
def test_a_client_that_no_edge_reaches_is_named(algorithm):
    mask = np.array([[True, True, False, True], [True, False, False, True]])
    with pytest.raises(ConfigError, match="client 2 is reached by none of 2 edges"):
        algorithm(problem(np.ones((2, 4)), [[1]] * 4, reachable=mask), rng(0, "a"))


@BOTH
def test_edges_take_only_whom_they_reach(algorithm):
    mask = np.array([[True, False, True, False], [False, True, False, True]])
    latency = [[9, 1, 9, 1], [1, 9, 1, 9]]
    assert algorithm(problem(latency, [[1]] * 4, reachable=mask), rng(0, "a")) == [[0, 2], [1, 3]]


def test_an_impossible_capacity_is_refused():
    with pytest.raises(ConfigError, match="2 edges with a capacity of 2 have no room for 5 clients"):
        problem(np.ones((2, 5)), [[1]] * 5, capacity=2)


@BOTH
def test_a_full_edge_lets_a_client_go_that_can_be_elsewhere(algorithm):
    # Edge 0 takes 0, edge 1 takes 1; capacity 2. Then both want client 2 or 3, nearest first: edge 0 takes
    # 2, edge 1 takes 3. Client 4 reaches only edge 0, which is full, so 0 moves to edge 2, which reaches it.
    mask = np.array([[1, 0, 1, 0, 1], [0, 1, 0, 1, 0], [1, 0, 0, 0, 0]], dtype=bool)
    latency = [[1, 9, 2, 9, 3], [9, 1, 9, 2, 9], [9, 9, 9, 9, 9]]
    found = algorithm(problem(latency, [[1]] * 5, reachable=mask, capacity=2), rng(0, "a"))
    assert found == [[2, 4], [1, 3], [0]]


@BOTH
def test_a_capacity_that_reach_makes_impossible_names_the_client(algorithm):
    mask = np.array([[True, True, True], [False, False, True]])
    mask[1, 2] = False  # three clients reach edge 0 alone, which has room for two
    with pytest.raises(ConfigError, match="client 2 finds no place"):
        algorithm(problem(np.ones((2, 3)), [[1]] * 3, reachable=mask, capacity=2), rng(0, "a"))


def test_a_client_without_samples_changes_no_distribution():
    held = np.array([3, 1])
    case = problem([[5.0, 5.0]], [[0, 0], [1, 3]])
    alone = 5 + 300 * js_divergence(label_distribution(held), case.target)
    assert case.costs(np.array([5.0]), held, np.array([0]))[0] == alone
    # Neither cluster nor client has samples: there is nothing to diverge.
    assert case.costs(np.array([5.0]), np.zeros(2, np.int64), np.array([0]))[0] == 5.0


def test_a_cost_does_not_depend_on_what_is_evaluated_with_it():
    stream = np.random.default_rng(0)
    for classes in (1, 2, 7, 10, 62, 200):
        rows = stream.dirichlet(np.full(classes, 0.2), 33)
        q = stream.dirichlet(np.ones(classes))
        together = js_divergences(rows, q)
        assert [js_divergence(row, q) for row in rows] == together.tolist()
        assert js_divergences(rows[5:12], q).tolist() == together[5:12].tolist()


@st.composite
def problems(draw):
    stream = np.random.default_rng(draw(st.integers(0, 2**32)))
    edges, clients, classes = draw(st.integers(1, 5)), draw(st.integers(1, 16)), draw(st.integers(1, 6))
    latency = (
        stream.integers(1, 4, (edges, clients)).astype(np.float64)  # many ties
        if draw(st.booleans())
        else stream.uniform(30, 400, (edges, clients))
    )
    kind = draw(st.sampled_from(["mixed", "one class", "identical"]))
    sizes = stream.integers(0, 40, clients)  # some have no samples
    shares = stream.dirichlet(np.full(classes, 0.4), clients)
    if kind == "one class":
        shares = np.eye(classes)[stream.integers(classes, size=clients)]
    counts = stream.multinomial(sizes, shares)
    if kind == "identical":
        counts[:] = counts[0]
    counts[0, 0] += 1
    uniform = draw(st.booleans())
    return Problem(
        latency,
        counts,
        draw(st.sampled_from([0.0, 1.0, 300.0, 1e5])),
        np.full(classes, 1 / classes) if uniform else label_distribution(counts.sum(axis=0)),
        (stream.random((edges, clients)) < 0.7) | (np.arange(edges) == 0)[:, None]
        if draw(st.booleans())
        else None,
        -(-clients // edges) + draw(st.integers(0, 1)) if draw(st.booleans()) else None,
    )


@given(case=problems(), seed=st.integers(0, 1000), small=st.integers(1, 6))
@settings(max_examples=1000, deadline=None)
def test_the_fast_version_gives_the_clusters_of_the_reference(case, seed, small):
    # Pools, blocks and looks so small that every way through the search is taken with few clients.
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("POOL", small), ("FIRST", 1), ("FEW", small), ("EDGES", 2), ("ROWS", small)):
            patch.setattr(fast_association, name, value)
        outcomes = []
        for algorithm in (associate_reference, associate):
            try:
                outcomes.append(algorithm(case, rng(seed, "association")))
            except ConfigError as error:
                outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("weight", [30.0, 300.0, 3000.0])
def test_the_fast_version_gives_the_clusters_of_the_reference_at_its_usual_widths(weight):
    stream = np.random.default_rng(int(weight))
    counts = stream.multinomial(stream.integers(50, 501, 1500), stream.dirichlet(np.full(20, 0.5), 1500))
    latency = 35 + stream.uniform(0, 300, (12, 1500))
    case = Problem(latency, counts, weight, label_distribution(counts.sum(axis=0)))
    told = []
    found = associate(case, rng(1, "a"), told.append)
    assert found == associate_reference(case, rng(1, "a"))
    assert told[-1] == 1500
    assert told == sorted(told)
