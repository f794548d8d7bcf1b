"""Named random streams."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from hiflash.seeding import Streams, once, rng


def head(*names: int | str, seed: int = 0) -> list[int]:
    return [int(word) for word in rng(seed, *names).bit_generator.random_raw(4)]


def test_the_same_name_gives_the_same_numbers():
    assert head("client", 3, 7) == head("client", 3, 7)


def test_what_is_drawn_does_not_depend_on_the_order_of_calls():
    first = head("a")
    rng(0, "b").random(1000)
    assert head("a") == first


def test_every_part_of_the_name_and_the_seed_matter():
    names = [
        ("a",),
        ("b",),
        ("a", 0),
        ("a", 1),
        ("a", 0, 0),
        ("a", 0, 1),
        ("a", 1, 0),
        ("a", "b"),
        ("b", "a"),
    ]
    assert len({tuple(head(*name)) for name in names}) == len(names)
    assert len({tuple(head("a", seed=seed)) for seed in (0, 1, 2, 2**31, 2**32, 2**32 + 1, 2**63)}) == 7


def test_a_string_is_not_the_number_it_spells():
    assert head("x", "3") != head("x", 3)


def test_a_numpy_integer_is_the_same_name_as_a_python_integer():
    assert head("client", np.int64(3)) == head("client", 3)


def test_neighbouring_streams_are_not_correlated():
    draws = np.array([rng(0, "client", k).standard_normal(200) for k in range(50)])
    correlations = np.corrcoef(draws)[np.triu_indices(50, 1)]
    # 1,225 pairs of 200 draws: one correlation has deviation 1/sqrt(200) = 0.071; 5 of them is 0.35
    assert np.abs(correlations).max() < 0.35
    assert abs(correlations.mean()) < 0.01


@pytest.mark.parametrize(
    "draw",
    [
        lambda stream: stream.integers(7, dtype=np.int32),  # leaves half a word behind
        lambda stream: stream.normal(1.0, 0.5),
        lambda stream: stream.standard_normal(201).tolist(),
        lambda stream: stream.choice(50, size=9, replace=False).tolist(),
        lambda stream: stream.bit_generator.random_raw(3).tolist(),  # leaves a word of the block behind
    ],
)
def test_a_draw_at_once_is_the_first_draw_of_the_stream(draw):
    for number in range(20):
        assert draw(once(3, "wan", "up", number)) == draw(rng(3, "wan", "up", number))


@pytest.mark.parametrize("numbers", [(3,), (3, 0, 45), (np.int64(3), 7)])
def test_streams_that_begin_alike_are_those_of_their_whole_names(numbers):
    streams = Streams(3, "wan", "it's up")
    for last in range(20):
        drawn = streams.once(*numbers, last).standard_normal(5).tolist()
        assert drawn == rng(3, "wan", "it's up", *numbers, last).standard_normal(5).tolist()


def test_a_draw_at_once_is_not_disturbed_by_other_threads():
    names = list(range(200))
    with ThreadPoolExecutor(4) as threads:
        drawn = list(threads.map(lambda name: once(0, name).standard_normal(50).sum(), names))
    assert drawn == [rng(0, name).standard_normal(50).sum() for name in names]


def test_streams_are_pinned():
    """A change here changes every seeded result that anybody ever published."""
    assert head("client", 3, 7)[:2] == [16407877651482559076, 10039952133173337426]
    assert head("slot", 0, seed=7)[:2] == [16722426512731359766, 12228670231560332841]
