"""Numbers out of the middle of streams, and the resources that are drawn so."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hiflash.config import Config
from hiflash.seeding import rng
from hiflash.sim import draws
from hiflash.sim.draws import uniform_at
from hiflash.sim.resources import Resources, draw_resources

WORD = st.integers(0, 2**64 - 1)


@settings(max_examples=60, deadline=None)
@given(key=st.tuples(WORD, WORD), place=st.integers(0, 3000))
def test_a_number_is_that_of_the_whole_stream(key: tuple[int, int], place: int) -> None:
    stream = np.random.Generator(np.random.Philox(key=np.array(key, np.uint64)))
    drawn = uniform_at(np.array([key], np.uint64), np.array([0]), np.array([place]))
    assert drawn[0] == stream.random(place + 1)[place]


def test_numbers_beyond_the_first_chunk_are_of_their_own_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draws, "CHUNK", 7)
    streams, places = np.arange(40) % 3, np.arange(40)
    whole = [rng(5, "bandwidth", number).random(40) for number in range(3)]
    keys = np.array([rng(5, "bandwidth", n).bit_generator.state["state"]["key"] for n in range(3)])
    expected = [whole[number % 3][number] for number in range(40)]
    assert uniform_at(keys, streams, places).tolist() == expected


def resources(clients: int) -> Resources:
    config = Config(federation={"clients": clients, "edges": 4}, resources={"bandwidth_mhz": [0.3, 2.7]})
    return draw_resources(config, np.full(clients, 600), 784, 21_840)


def test_a_client_sends_to_its_own_edge_as_fast_as_to_that_edge_of_all() -> None:
    drawn = resources(11)
    clusters = [[3, 0], [1, 2, 10], [4, 5, 6, 7], [8, 9]]
    own = drawn.own_send_s(clusters)
    for edge, cluster in enumerate(clusters):
        assert own[cluster].tolist() == drawn.send_s(edge)[cluster].tolist()


def test_the_best_edge_is_the_fastest_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hiflash.sim.resources.CHUNK", 4)  # three chunks of eleven clients
    drawn = resources(11)
    assert drawn.best_send_s.tolist() == drawn.all_send_s().min(axis=0).tolist()


def test_bandwidths_are_uniform_draws_of_the_streams_named_for_them() -> None:
    drawn = resources(5)
    hz = 1e6 * rng(0, "bandwidth", 2).uniform(0.3, 2.7, 5)
    # 32 bits a number at B log2(1 + 10^1.7) bits a second
    expected = 21_840 * 32 / (hz * np.log2(1 + 10**1.7))
    assert drawn.send_s(2) == pytest.approx(expected, rel=1e-12)
