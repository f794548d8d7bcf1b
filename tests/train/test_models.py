from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from hiflash.errors import ConfigError
from hiflash.methods.models import MODELS
from hiflash.train.models import FlatModel, build_model, initial_weights, lenet

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "shape", "classes", "parameters"),
    [
        ("lenet", (1, 28, 28), 10, 21_840),
        ("femnist_cnn", (1, 28, 28), 62, 214_590),
        ("cnn", (3, 32, 32), 10, 65_962),  # 3*16*25 + 16 + 16*32*25 + 32 + (32*5*5)*64 + 64 + 64*10 + 10
        ("cnn", (1, 28, 28), 10, 46_730),  # 1*16*25 + 16 + 16*32*25 + 32 + (32*4*4)*64 + 64 + 64*10 + 10
        ("resnet", (3, 32, 32), 10, 3_504_554),
        ("resnet18", (3, 32, 32), 10, 11_173_962),
        ("mlp", (42,), 2, 4_898),  # 42 * 64 + 64 + 64 * 32 + 32 + 32 * 2 + 2
    ],
)
def test_models_have_the_published_parameter_counts(
    name: str, shape: tuple[int, ...], classes: int, parameters: int
) -> None:
    model = build_model(MODELS[name], None, shape, classes)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert model(torch.zeros(2, *shape)).shape == (2, classes)


def test_the_lstm_takes_windows_of_tokens_of_any_length() -> None:
    model = build_model(MODELS["char_lstm"], None, (80,), 80, tokens=True)
    # 80 * 8 to embed, 4 gates of 64 * (8 + 64) weights and 2 * 64 biases, 64 * 80 + 80 for the answer
    assert sum(p.numel() for p in model.parameters()) == 640 + 4 * (64 * 72 + 128) + 5_200 == 24_784
    assert model(torch.zeros(2, 12, dtype=torch.int32)).shape == (2, 80)
    with pytest.raises(ConfigError, match=r"char_lstm does not take samples of shape \(42,\)"):
        build_model(MODELS["char_lstm"], None, (42,), 2)
    with pytest.raises(ConfigError, match=r"mlp does not take token ids of shape \(80,\)"):
        build_model(MODELS["mlp"], None, (80,), 80, tokens=True)


def test_a_model_that_does_not_fit_the_data_is_explained() -> None:
    with pytest.raises(ConfigError, match=r"lenet does not take samples of shape \(3, 32, 32\)"):
        build_model(MODELS["lenet"], None, (3, 32, 32), 10)
    for shape in ((3, 15, 32), (42,)):  # a side of 15 leaves nothing after two convolutions and poolings
        with pytest.raises(ConfigError, match="cnn does not take samples of shape"):
            build_model(MODELS["cnn"], None, shape, 10)


def test_initial_weights_depend_on_the_seed_alone() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first, spec, trainable = initial_weights(lenet, 3)
    assert torch.equal(before, torch.random.get_rng_state())
    assert np.array_equal(first, initial_weights(lenet, 3)[0])
    assert not np.array_equal(first, initial_weights(lenet, 4)[0])
    assert spec.size == first.size == trainable == 21_840


def test_running_statistics_come_after_the_parameters_and_counters_are_left_out() -> None:
    flat = FlatModel(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)), CPU)
    assert [name for name, _ in flat.spec.tensors] == [
        "0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var",
    ]  # fmt: skip
    assert flat.trainable == 6 + 3 + 3 + 3
    assert flat.spec.size == flat.trainable + 6


def test_module_and_vector_share_their_values() -> None:
    module = nn.Linear(2, 1)
    flat = FlatModel(module, CPU)
    flat.load(np.float32([1, 2, 3]))
    assert module(torch.tensor([[10.0, 100.0]])).item() == 213  # 1 * 10 + 2 * 100 + 3
    module.bias.data.fill_(7)
    assert flat.weights().tolist() == [1, 2, 7]
