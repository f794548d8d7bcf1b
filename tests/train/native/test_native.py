"""The compiled trainer against torch: gradients, optimiser, evaluation, NaN, threads."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from hiflash.errors import ConfigError
from hiflash.messages import ClientTask
from hiflash.train.models import FlatModel, cnn, femnist_cnn, lenet, resnet
from hiflash.train.native import build as native_build
from hiflash.train.native import trainer as native
from hiflash.train.native.build import find_compiler
from hiflash.train.native.codegen import Machine
from hiflash.train.native.trainer import NativeTrainer, NativeUnavailable, supports
from hiflash.train.task import Solver
from hiflash.train.torch_trainer import Samples, TorchTrainer

CPU = torch.device("cpu")
BATCHES = (1, 7, 16, 40, 50, 60, 61, 150)  # 150: more than one group of samples
FEW_BATCHES = (7, 61)


@pytest.fixture(autouse=True, scope="module")
def _private_cache_and_one_torch_thread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HIFLASH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
    torch.set_num_threads(threads)


@pytest.fixture(params=["native", "avx2", "plain", "16 lanes"])
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every way to compile. 16 lanes run on any processor, as two or four vectors each."""
    cpuinfo = Path("/proc/cpuinfo")
    if request.param == "avx2" and not (cpuinfo.exists() and " avx2 " in cpuinfo.read_text()):
        pytest.skip("this processor has no AVX2")
    if request.param == "avx2" and find_compiler().flags and find_compiler().machine.lanes == 8:
        pytest.skip("that is what `native` is on this processor")
    if request.param == "16 lanes":
        wide = replace(find_compiler(), machine=Machine(lanes=16, registers=32))
        monkeypatch.setattr(native, "find_compiler", lambda isa: wide)
        quick = tuple("-O1" if flag == "-O3" else flag for flag in native_build.FLAGS)
        monkeypatch.setattr(native_build, "FLAGS", quick)  # split vectors take gcc long to optimise
    return request.param


def odd_net() -> nn.Module:
    """Everything that the two models of the paper do not have."""
    return nn.Sequential(
        nn.Conv2d(3, 5, (3, 2), padding=(2, 1), bias=False), nn.ReLU(),
        nn.Sequential(nn.Conv2d(5, 37, (1, 3)), nn.ReLU(), nn.MaxPool2d(3), nn.Identity()),
        nn.Conv2d(37, 6, 2, padding=1), nn.Dropout(0.0),
        nn.Flatten(), nn.Linear(120, 19, bias=False), nn.ReLU(), nn.Linear(19, 7),
    )  # fmt: skip


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(330, 33), nn.ReLU(), nn.Linear(33, 7))


def make(model: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return model()


@lru_cache
def random_samples(model: Callable[[], nn.Module], shape: tuple[int, ...], classes: int) -> Samples:
    """Return samples with a flat background, without those where rounding decides where a gradient goes."""
    stream = torch.Generator().manual_seed(1)
    x = torch.randn(250, *shape, generator=stream)
    x[:, :, :3] = -0.4242
    x = x[away_from_kinks(make(model), x)].contiguous()
    y = torch.randint(classes, (len(x),), generator=stream)
    assert len(x) >= 150
    return Samples(x, y, [np.arange(len(x)), np.arange(25)], x[:130], y[:130])


@torch.inference_mode()
def away_from_kinks(module: nn.Module, x: Tensor, margin: float = 3e-6) -> Tensor:
    """Return which samples have no ReLU near zero and no pooling with two different near maxima."""
    x, clear = x.double(), torch.ones(len(x), dtype=torch.bool)
    for layer in copy.deepcopy(module).double().modules():
        if isinstance(layer, nn.Sequential):
            continue
        if isinstance(layer, nn.ReLU):
            clear &= (x.abs() > margin).flatten(1).all(1)
        if isinstance(layer, nn.MaxPool2d):
            size = int(layer.kernel_size)
            windows = x.unfold(2, size, size).unfold(3, size, size).flatten(4)
            best = windows.topk(2).values
            gap = best[..., 0] - best[..., 1]
            clear &= ((gap > margin) | (gap < 1e-12)).flatten(1).all(1)
        x = layer(x)
    return clear


def task(weights: np.ndarray, *, client: int = 0, first_step: int = 0, steps: int = 1, lr: float = 1.0):
    return ClientTask(client=client, weights=weights, first_step=first_step, steps=steps, lr=lr, seed=3)


def weights_of(model: Callable[[], nn.Module]) -> np.ndarray:
    return FlatModel(make(model), CPU).weights()


@lru_cache
def reference_step(model: Callable[[], nn.Module], shape: tuple[int, ...], classes: int, batch: int):
    samples = random_samples(model, shape, classes)
    trainer = TorchTrainer(lambda: make(model), samples, Solver(batch=batch))
    return trainer.train([task(weights_of(model))])[0]


def gradient_error(
    model: Callable[[], nn.Module], shape: tuple[int, ...], classes: int, batch: int, isa: str
) -> float:
    """Return the largest difference to torch's gradient, relative to its largest entry."""
    samples, start = random_samples(model, shape, classes), weights_of(model)
    reference = reference_step(model, shape, classes, batch)
    trainer = NativeTrainer(model, samples, Solver(batch=batch), isa=isa)
    result = trainer.train([task(start)])[0]
    assert result.loss == pytest.approx(reference.loss, rel=1e-5)
    gradient = start - reference.weights
    return float(np.abs(start - result.weights - gradient).max() / np.abs(gradient).max())


@pytest.mark.parametrize(("model", "classes"), [(lenet, 10), (femnist_cnn, 62)])
def test_gradients_are_those_of_torch_for_every_batch_size(model, classes, isa) -> None:
    for batch in BATCHES if isa == "native" else FEW_BATCHES:
        assert gradient_error(model, (1, 28, 28), classes, batch, isa) < 1e-5


def test_gradients_are_those_of_torch_for_colour_images(isa) -> None:
    for batch in FEW_BATCHES:
        assert gradient_error(cnn, (3, 32, 32), 10, batch, isa) < 1e-5


def test_gradients_are_those_of_torch_for_other_layers(isa) -> None:
    for batch in FEW_BATCHES:
        assert gradient_error(odd_net, (3, 10, 11), 7, batch, isa) < 1e-5


def test_gradients_are_those_of_torch_without_a_convolution() -> None:
    for batch in FEW_BATCHES:
        assert gradient_error(perceptron, (3, 10, 11), 7, batch, "native") < 1e-5


def whole_numbers() -> nn.Module:
    """Return a network whose sums are exact, so that different windows tie exactly."""
    module = nn.Sequential(
        nn.Conv2d(1, 5, 3), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(5, 6, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(24, 3),
    )  # fmt: skip
    for number, parameter in enumerate(module[:6].parameters()):
        values = torch.arange(parameter.numel()) * (7 + number) % 5 - 1
        parameter.data = values.float().view_as(parameter)
    return module


def test_a_pooling_tie_sends_the_gradient_to_the_first_maximum(isa) -> None:
    x = torch.randint(2, (64, 1, 12, 12), generator=torch.Generator().manual_seed(0)).float()
    y = torch.arange(64) % 3
    samples, start = Samples(x, y, [np.arange(64)], x, y), task(weights_of(whole_numbers))
    solver = Solver(batch=64)
    reference = TorchTrainer(whole_numbers, samples, solver).train([start])[0]
    result = NativeTrainer(whole_numbers, samples, solver, isa=isa).train([start])[0]
    np.testing.assert_allclose(result.weights, reference.weights, atol=1e-5)


def test_many_steps_over_ragged_epochs_stay_with_the_reference(isa) -> None:
    samples = random_samples(lenet, (1, 28, 28), 10)
    work = task(weights_of(lenet), client=1, first_step=1, steps=7, lr=0.05)  # 25 samples: 10, 10, 5
    solver = Solver(batch=10, mu=0.3)
    reference = TorchTrainer(lenet, samples, solver).train([work])[0]
    result = NativeTrainer(lenet, samples, solver, isa=isa).train([work])[0]
    np.testing.assert_allclose(result.weights, reference.weights, atol=1e-5)
    assert result.loss == pytest.approx(reference.loss, rel=1e-5)


@pytest.mark.parametrize("clip", [math.inf, 0.3])
def test_proximal_term_momentum_weight_decay_and_clipping_are_those_of_torch(clip: float) -> None:
    samples = random_samples(perceptron, (3, 10, 11), 7)
    start, mu = weights_of(perceptron), 0.7
    settings = {"momentum": 0.9, "weight_decay": 0.1}
    trainer = NativeTrainer(perceptron, samples, Solver(batch=25, mu=mu, clip_norm=clip, **settings))
    work = task(start, client=1, steps=5, lr=0.1)  # 25 samples: each batch is all of them, in any order
    first, second = trainer.train([work, work])

    module = make(perceptron)
    anchor = [parameter.detach().clone() for parameter in module.parameters()]
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, **settings)
    for _ in range(5):
        optimizer.zero_grad()
        functional.cross_entropy(module(samples.x[:25]), samples.y[:25]).backward()
        assert nn.utils.clip_grad_norm_(module.parameters(), clip) > 0.3  # or nothing is clipped
        for parameter, was in zip(module.parameters(), anchor, strict=True):
            parameter.grad += mu * (parameter.detach() - was)
        optimizer.step()
    np.testing.assert_allclose(first.weights, FlatModel(module, CPU).weights(), atol=1e-6)
    np.testing.assert_array_equal(first.weights, second.weights)  # momentum starts anew in each task


def test_a_gradient_within_the_norm_is_not_touched_and_a_nan_is_not_clipped_away() -> None:
    samples = random_samples(lenet, (1, 28, 28), 10)
    plain = NativeTrainer(lenet, samples, Solver(batch=10))
    clipped = NativeTrainer(lenet, samples, Solver(batch=10, clip_norm=1e6))
    work = task(weights_of(lenet), steps=2)
    np.testing.assert_array_equal(clipped.train([work])[0].weights, plain.train([work])[0].weights)
    broken = work.weights.copy()
    broken[-1] = np.nan
    assert np.isnan(clipped.train([replace(work, weights=broken)])[0].weights).any()
    np.testing.assert_array_equal(clipped.train([work])[0].weights, plain.train([work])[0].weights)


@pytest.mark.parametrize(("model", "classes"), [(lenet, 10), (femnist_cnn, 62)])
def test_evaluation_is_that_of_torch(model, classes, isa) -> None:
    samples, weights = random_samples(model, (1, 28, 28), classes), weights_of(model)
    solver = Solver(batch=10)
    reference = TorchTrainer(model, samples, solver)
    trainer = NativeTrainer(model, samples, solver, isa=isa)
    for start, stop in ((0, 130), (5, 6), (7, 90), (100, 500), (130, 130)):
        right, loss = trainer.evaluate(weights, start, stop)
        expected_right, expected_loss = reference.evaluate(weights, start, stop)
        assert right == expected_right
        assert loss == pytest.approx(expected_loss, rel=1e-5)


def test_a_sample_has_the_same_loss_alone_and_among_others(isa) -> None:
    """Alone it goes through the kernel of channels, with others through that of samples."""
    samples, weights = random_samples(lenet, (1, 28, 28), 10), weights_of(lenet)
    trainer = NativeTrainer(lenet, samples, Solver(batch=10), isa=isa)
    alone = [trainer.evaluate(weights, start, start + 1)[1] for start in range(40)]
    assert trainer.evaluate(weights, 0, 40)[1] == sum(alone)  # to the bit, added in the same order


@pytest.mark.parametrize("where", ["weights", "samples"])
def test_a_nan_is_seen_in_loss_and_weights(where, isa) -> None:
    samples, weights = copy.deepcopy(random_samples(lenet, (1, 28, 28), 10)), weights_of(lenet)
    if where == "weights":
        weights[3] = math.nan  # in the first convolution: passes through pooling and ReLU
    else:
        samples.x[4, 0, 14, 14] = math.nan
        samples.x_test[4, 0, 14, 14] = math.nan
    trainer = NativeTrainer(lenet, samples, Solver(batch=60), isa=isa)
    result = trainer.train([task(weights, client=1)])[0]
    assert math.isnan(result.loss)
    assert np.isnan(result.weights).any()
    assert math.isnan(trainer.evaluate(weights, 0, 130)[1])
    # Nothing of it is left in the workspace.
    assert np.isfinite(trainer.evaluate(weights_of(lenet), 10, 20)[1])


def test_a_task_gives_the_same_bits_on_any_thread_and_after_any_other_task() -> None:
    samples, weights = random_samples(lenet, (1, 28, 28), 10), weights_of(lenet)
    work = task(weights, steps=3, lr=0.1)
    other = task(-3 * weights, client=1, steps=2)

    def make_trainer() -> NativeTrainer:
        return NativeTrainer(lenet, samples, Solver(batch=61, mu=0.1))

    expected = make_trainer().train([work])[0]

    def run(number: int):
        trainer = make_trainer()
        trainer.train([other] * (number % 3))
        trainer.evaluate(other.weights, 0, number)
        return trainer.train([other, work])[1]

    with ThreadPoolExecutor(4) as threads:
        for result in threads.map(run, range(12)):
            np.testing.assert_array_equal(result.weights, expected.weights)
            assert result.loss == expected.loss
    np.testing.assert_array_equal(work.weights, weights)  # a task's own weights are left alone


def shared_weight() -> list[nn.Module]:
    one, other = nn.Linear(784, 784), nn.Linear(784, 784)
    other.weight = one.weight
    return [one, other]


def with_buffer(layer: nn.Module) -> nn.Module:
    layer.register_buffer("scale", torch.ones(3))
    return layer


def hooked(layer: nn.Module) -> nn.Module:
    layer.register_forward_hook(lambda module, inputs, output: 2 * output)
    return layer


class Doubled(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Named(nn.Sequential):
    pass


@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        ([nn.Conv2d(1, 4, 3, stride=2)], r"Conv2d\(1, 4, .*stride=\(2, 2\)"),
        ([nn.Conv2d(1, 4, 3, padding="same")], "Conv2d"),
        ([nn.Conv2d(3, 4, 3)], r"Conv2d\(3, .* shape \(1, 28, 28\)"),
        ([nn.Conv2d(1, 4, 30)], "nothing comes out"),
        ([nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)], "BatchNorm2d"),
        ([nn.Conv2d(1, 4, 3), nn.MaxPool2d(3, 2)], "MaxPool2d"),
        ([nn.MaxPool2d(2)], "MaxPool2d.* does not follow a convolution"),
        ([nn.ReLU()], "ReLU"),
        ([nn.Flatten(), nn.Linear(784, 10), nn.Dropout(0.5)], r"Dropout\(p=0.5"),
        ([nn.Flatten(0)], "Flatten"),
        ([nn.Flatten(), nn.Linear(3, 10)], r"Linear\(in_features=3"),
        ([nn.Conv2d(1, 4, 28), nn.Flatten()], "last layer"),
        ([nn.Flatten(), nn.Linear(784, 10).requires_grad_(False)], "frozen"),
        ([nn.Flatten(), *[nn.Linear(784, 784)] * 2], "used twice"),
        ([nn.Flatten(), *shared_weight()], "shared"),
        ([nn.Flatten(), with_buffer(nn.Linear(784, 10))], "not the weight or bias"),
        ([nn.Flatten(), hooked(nn.Linear(784, 10))], "hook"),
        ([nn.Conv2d(1, 4096, 1), nn.Conv2d(4096, 1, 1), nn.Flatten(), nn.Linear(784, 10)], "GiB"),
    ],
)
def test_an_unsupported_network_is_refused_with_a_reason(layers: list[nn.Module], reason: str) -> None:
    assert layers
    with pytest.raises(NativeUnavailable, match=reason) as refusal:
        _trainer_of(nn.Sequential(*layers))
    assert refusal.value.reason == supports(nn.Sequential(*layers), (1, 28, 28))


def _trainer_of(module: nn.Module, *, augment: bool = False) -> NativeTrainer:
    x, y = torch.zeros(2, 1, 28, 28), torch.zeros(2, dtype=torch.int64)
    samples = Samples(x, y, [np.arange(2)], x, y)
    return NativeTrainer(lambda: module, samples, Solver(batch=2, augment=augment))


def test_supported_models_have_no_reason_and_others_name_theirs() -> None:
    assert supports(lenet(), (1, 28, 28)) == supports(femnist_cnn(), (1, 28, 28)) == ""
    assert supports(cnn(), (3, 32, 32)) == ""
    assert "BatchNorm2d" in supports(resnet(), (3, 32, 32))
    assert "Linear" in supports(nn.Linear(3, 3), (3,))
    assert "Doubled" in supports(Doubled(nn.Linear(3, 3)), (3,))
    assert supports(Named(nn.Linear(3, 3)), (3,)) == ""


def test_augmentation_is_refused() -> None:
    with pytest.raises(NativeUnavailable, match=r"augmentation .* \(data\.augment = false turns it off\)"):
        _trainer_of(lenet(), augment=True)


def test_data_that_c_would_read_out_of_bounds_are_refused() -> None:
    samples = random_samples(perceptron, (3, 10, 11), 7)
    solver = Solver(batch=2)
    with pytest.raises(ConfigError, match="label"):
        NativeTrainer(perceptron, replace(samples, y=samples.y + 1), solver)
    with pytest.raises(ValueError, match="part"):
        NativeTrainer(perceptron, replace(samples, indices=[np.array([len(samples.x)])]), solver)
    with pytest.raises(NativeUnavailable, match="float64"):
        NativeTrainer(perceptron, replace(samples, x=samples.x.double()), solver)
    with pytest.raises(ValueError, match="parameters"):
        NativeTrainer(perceptron, samples, solver).evaluate(np.zeros(3, np.float32), 0, 1)
