"""The validation set: a share of every class and of every group, held back from all clients."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiflash.data import Dataset, Partition, hold_back, training_part, without_held
from hiflash.errors import DataError
from hiflash.seeding import rng


def labelled(y: list[int], groups: list[int] | None = None) -> Dataset:
    return Dataset.from_arrays(
        np.zeros((len(y), 1), np.float32), y, [[0.0]], [0], groups=groups, classes=1 + max(y)
    )


def held_of(data: Dataset, share: float, seed: int = 0) -> np.ndarray:
    return hold_back(data, share, rng(seed, "validation"))


def test_every_class_gives_its_share_and_a_class_of_one_stays() -> None:
    data = labelled([0] * 40 + [1] * 13 + [2] * 2 + [3])
    # 0.2 * 40 = 8; 0.2 * 13 = 2.6, rounded 3; 0.2 * 2 = 0.4, at least 1; a single sample stays.
    for seed in range(20):
        held = held_of(data, 0.2, seed)
        assert np.bincount(data.y[held], minlength=4).tolist() == [8, 3, 1, 0]
        assert held.tolist() == sorted(set(held.tolist()))


def test_every_writer_gives_its_share_whatever_is_drawn() -> None:
    # One class, a quarter of 12 is 3. Writer 0 (4 samples) stands at 1/8, 3/8, 5/8, 7/8 of the order,
    # writer 1 (8 samples) at 1/16, 3/16, 5/16, ...: the first three are 1/16, 1/8 and 3/16.
    data = labelled([0] * 12, [0] * 4 + [1] * 8)
    for seed in range(20):
        held = held_of(data, 0.25, seed)
        assert np.bincount(data.groups[held]).tolist() == [1, 2]


def test_a_writer_never_loses_its_last_sample() -> None:
    # Class 1 is held by writers with a single sample alone, so none of it can be held back.
    data = labelled([0] * 10 + [1] * 3, [0] * 10 + [1, 2, 3])
    for seed in range(20):
        held = held_of(data, 0.4, seed)
        assert data.y[held].tolist() == [0] * 4


@given(
    y=st.lists(st.integers(0, 3), min_size=4, max_size=60),
    share=st.floats(0.01, 0.49),
    seed=st.integers(0, 5),
    writers=st.integers(1, 5),
)
def test_groups_keep_a_sample_and_classes_give_at_most_their_share(
    y: list[int], share: float, seed: int, writers: int
) -> None:
    groups = [place * writers // len(y) for place in range(len(y))]
    data = labelled(y, groups)
    try:
        held = held_of(data, share, seed)
    except DataError:
        return  # every class or group has a single sample, see below
    left = training_part(data, held)
    assert set(left.groups.tolist()) == set(groups)
    for label in set(y):
        assert (data.y[held] == label).sum() <= min(max(1, round(share * y.count(label))), y.count(label) - 1)
    assert len(left.y) + len(held) == len(y)


def test_every_tenth_of_a_numeric_target_gives_its_share() -> None:
    y = np.random.default_rng(3).permutation(100).astype(np.float32)
    data = Dataset.from_arrays(np.zeros((100, 2), np.float32), y, [[0.0, 0.0]], [0.0], task="regression")
    held = held_of(data, 0.1)
    assert sorted(int(value) // 10 for value in y[held]) == list(range(10))  # one of 0..9, of 10..19, ...


def test_windows_of_a_text_are_held_back_in_one_block_per_role() -> None:
    data = Dataset.from_arrays(
        np.zeros((15, 4), np.int64), [0, 1, 2] * 5, [[0] * 4], [0],
        groups=[0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0], task="sequence",
    )  # fmt: skip
    starts = set()
    for seed in range(30):
        held = held_of(data, 0.3, seed)
        for group, wanted in ((0, 3), (1, 2)):  # 0.3 * 10 = 3; 0.3 * 5 = 1.5, rounded to the even 2
            places = np.flatnonzero(np.isin(np.flatnonzero(data.groups == group), held))
            assert np.diff(places).tolist() == [1] * (wanted - 1)
            starts.add((group, int(places[0])))
    assert len(starts) > 4  # the place is drawn


def test_other_seeds_hold_back_other_samples() -> None:
    data = labelled([0, 1] * 50)
    assert held_of(data, 0.2, 1).tolist() == held_of(data, 0.2, 1).tolist()
    assert held_of(data, 0.2, 1).tolist() != held_of(data, 0.2, 2).tolist()


def test_nothing_to_hold_back_is_an_error() -> None:
    with pytest.raises(DataError, match=r"evaluate.validation = 0.2 holds back none of 3 training samples"):
        held_of(labelled([0, 1, 2]), 0.2)


def test_a_partition_of_ones_own_loses_what_is_held_back() -> None:
    split = Partition([np.array([0, 1, 2]), np.array([2, 3])], 0.25, "own")
    assert [part.tolist() for part in without_held(split, np.array([1, 2]), 4).indices] == [[0], [3]]
    with pytest.raises(DataError, match="holds back all 2 samples of client 1"):
        without_held(split, np.array([2, 3]), 4)


def test_scaling_does_not_look_at_what_is_held_back() -> None:
    data = Dataset.from_arrays(np.float32([[0.0], [2.0], [100.0]]), [0, 1, 1], [[4.0]], [0])
    x, x_test = data.normalised("feature", np.array([2]))  # mean 1 and deviation 1 of 0 and 2
    assert (x.ravel().tolist(), x_test.ravel().tolist()) == ([-1.0, 1.0, 99.0], [3.0])
