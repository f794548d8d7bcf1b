"""The real datasets, where HIFLASH_DATA has them: checksums, counts and natural clients."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from hiflash.data import load, partition
from hiflash.data.datasets import check
from hiflash.seeding import rng

pytestmark = pytest.mark.real_data


@pytest.fixture
def folder() -> Path:
    root = os.environ.get("HIFLASH_DATA")
    if not root:
        pytest.skip("HIFLASH_DATA is not set: it names the folder with mnist/, cifar10/ and femnist/")
    return Path(root)


@pytest.fixture
def mnist_folder(folder: Path) -> Path:
    return _having(folder, "mnist")


@pytest.fixture
def cifar10_folder(folder: Path) -> Path:
    return _having(folder, "cifar10")


@pytest.fixture
def femnist_folder(folder: Path) -> Path:
    return _having(folder, "femnist")


def _having(folder: Path, name: str) -> Path:
    if not (folder / name).is_dir():
        pytest.skip(f"HIFLASH_DATA has no folder {name}/")
    return folder


def test_mnist_has_the_published_class_counts(mnist_folder: Path) -> None:
    data = load("mnist", mnist_folder)
    train = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(data.y).tolist() == train
    assert np.bincount(data.y_test).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert round(float(data.x.mean()) / 255, 4) == 0.1307
    assert round(float(data.x.std()) / 255, 4) == 0.3081


def test_mnist_by_writer_has_539_natural_clients(mnist_folder: Path) -> None:
    if not (mnist_folder / "mnist" / "qmnist_writers.npz").is_file():
        pytest.skip("HIFLASH_DATA has no mnist/qmnist_writers.npz")
    data = load("mnist", mnist_folder)
    dealt = partition("writer", data.y, 539, rng(0, "partition"), classes=10, groups=data.groups)
    sizes = [len(part) for part in dealt.indices]
    assert (sum(sizes), min(sizes), max(sizes)) == (60_000, 19, 131)


def test_a_flipped_byte_in_the_real_mnist_is_found(mnist_folder: Path, tmp_path: Path) -> None:
    for path in (mnist_folder / "mnist").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    labels = tmp_path / "train-labels-idx1-ubyte.gz"
    raw = bytearray(labels.read_bytes())
    raw[len(raw) // 2] ^= 1
    labels.write_bytes(raw)
    assert [row.file.name for row in check("mnist", tmp_path) if not row.ok] == [labels.name]


def test_cifar10_has_5000_images_in_every_class(cifar10_folder: Path) -> None:
    data = load("cifar10", cifar10_folder)
    assert np.bincount(data.y).tolist() == [5000] * 10
    assert np.bincount(data.y_test).tolist() == [1000] * 10
    means = [round(float(data.x[:, channel].mean()) / 255, 4) for channel in range(3)]
    assert means == [0.4914, 0.4822, 0.4465]


def test_femnist_has_100_writers_tested_on_their_own_test_parts(femnist_folder: Path) -> None:
    data = load("femnist", femnist_folder)
    assert data.classes == 62
    assert data.groups is not None
    assert len(np.unique(data.groups)) == 100
    assert (len(data.y), len(data.y_test)) == (14_128, 1_612)
    dealt = partition("writer", data.y, 100, rng(0, "partition"), classes=62, groups=data.groups)
    assert sum(map(len, dealt.indices)) == 14_128
