"""The models of the paper and of the other datasets, and how models become flat vectors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from hiflash.core.registry import Part
from hiflash.errors import ConfigError
from hiflash.messages import Weights
from hiflash.weights import Spans, Spec

__all__ = [
    "FlatModel",
    "batch_norm_spans",
    "build_model",
    "char_lstm",
    "check_output",
    "cnn",
    "femnist_cnn",
    "initial_weights",
    "lenet",
    "make_char_lstm",
    "make_cnn",
    "make_femnist_cnn",
    "make_lenet",
    "make_mlp",
    "make_resnet",
    "make_resnet18",
    "mlp",
    "resnet",
    "resnet18",
]


def lenet(channels: int = 1, classes: int = 10) -> nn.Module:
    """Return the paper's LeNet for 28x28 images: 21,840 parameters for MNIST."""
    return nn.Sequential(
        nn.Conv2d(channels, 10, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(10, 20, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(), nn.Linear(320, 50), nn.ReLU(), nn.Linear(50, classes),
    )  # fmt: skip


def femnist_cnn(channels: int = 1, classes: int = 62) -> nn.Module:
    """Return a CNN for 28x28 images with the paper's 214,590 parameters for FEMNIST."""
    return nn.Sequential(
        nn.Conv2d(channels, 32, 7, padding=3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(3136, classes),
    )  # fmt: skip


def cnn(channels: int = 3, height: int = 32, width: int = 32, classes: int = 10) -> nn.Module:
    """Return a small CNN for images of any size from 16x16 on: 65,962 parameters for CIFAR-10.

    It is far smaller than the paper's network for CIFAR-10, and the compiled trainer runs it.
    """
    rows, cols = (max(1, ((side - 4) // 2 - 4) // 2) for side in (height, width))
    return nn.Sequential(
        nn.Conv2d(channels, 16, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(16, 32, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * rows * cols, 64), nn.ReLU(), nn.Linear(64, classes),
    )  # fmt: skip


def resnet(channels: int = 3, classes: int = 10) -> nn.Module:
    """Return the residual network that has the paper's 3,504,554 parameters for CIFAR-10.

    The paper calls it ResNet-18. This one has a 5x5 stem and [2, 2, 2, 2] bottleneck blocks (x4) at widths
    32 to 256. `resnet18` is the usual network of that name.
    """
    stem = [nn.Conv2d(channels, 32, 5, padding=2, bias=False), nn.BatchNorm2d(32), nn.ReLU()]
    return _residual(stem, _Bottleneck, (32, 64, 128, 256), classes)


def resnet18(channels: int = 3, classes: int = 10) -> nn.Module:
    """Return the usual ResNet-18 for 32x32 images: 11,173,962 parameters for CIFAR-10."""
    stem = [nn.Conv2d(channels, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    return _residual(stem, _Basic, (64, 128, 256, 512), classes)


def mlp(features: int = 42, classes: int = 2) -> nn.Module:
    """Return two hidden layers for tables, 64 and 32 wide: 4,898 parameters for late flights."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(features, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(),
        nn.Linear(32, classes),
    )  # fmt: skip


def char_lstm(classes: int = 80) -> nn.Module:
    """Return an LSTM for the token after a window of any length: 24,784 parameters for 80 symbols."""
    return _TokenLSTM(classes, embedding=8, width=64)


def _for_images(make: Callable[[int, int], nn.Module]) -> Callable[..., nn.Module]:
    """Return the function of a registered model, which gets a configuration, a shape and classes."""
    return lambda config, shape, classes: make(shape[0] if len(shape) == 3 else 1, classes)


make_lenet, make_femnist_cnn, make_resnet, make_resnet18 = map(
    _for_images, (lenet, femnist_cnn, resnet, resnet18)
)


def make_cnn(config: Any, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return the registered `cnn` for images of this shape; for other samples one that does not take them."""
    channels, height, width = shape if len(shape) == 3 else (1, 1, 1)
    return cnn(channels, height, width, classes)


def make_mlp(config: Any, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return the registered `mlp` for samples of any shape, which it flattens."""
    return mlp(math.prod(shape), classes)


def make_char_lstm(config: Any, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return the registered `char_lstm`; the length of the window does not matter."""
    return char_lstm(classes)


def build_model(
    part: Part, config: Any, shape: tuple[int, ...], classes: int, *, tokens: bool = False
) -> nn.Module:
    """Return a registered model for samples (or `tokens`) of this shape, or say why it does not fit them.

    `classes` is the number of its outputs.
    """
    model = _checked(part.build(config, shape, classes))
    try:
        with torch.inference_mode():
            model.eval()(torch.zeros(1, *shape, dtype=torch.int64 if tokens else torch.float32))
    except RuntimeError as error:
        raise ConfigError(
            f"model.name {part.name} does not take {'token ids' if tokens else 'samples'} of shape "
            f"{tuple(shape)}; choose another model, or pass your own torch module as `model`"
        ) from error
    return model


def initial_weights(make_model: Callable[[], nn.Module], seed: int) -> tuple[Weights, Spec, int]:
    """Return torch's initial weights under `seed`, their `Spec`, and the number of trained values."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        flat = FlatModel(_checked(make_model()), torch.device("cpu"))
    return flat.values.numpy().copy(), flat.spec, flat.trainable


def batch_norm_spans(module: nn.Module) -> Spans:
    """Return where the parameters and running statistics of BatchNorm layers lie in the flat vector."""
    norms = {name for name, layer in module.named_modules() if isinstance(layer, _BatchNorm)}
    spans: list[tuple[int, int]] = []
    start = 0
    for name, shape in FlatModel(module, torch.device("cpu")).spec.tensors:
        stop = start + math.prod(shape)
        if name.rpartition(".")[0] in norms:
            joins = bool(spans) and spans[-1][1] == start
            spans[-1:] = [(spans[-1][0], stop)] if joins else [*spans[-1:], (start, stop)]
        start = stop
    return tuple(spans)


def check_output(output: object, expected: str) -> None:
    """Raise unless this is a tensor of floats, as a loss needs it; `expected` says what it should hold."""
    if not isinstance(output, Tensor):
        raise ConfigError(
            f"the model must return a tensor with {expected}, got {type(output).__name__}; "
            "return the logits alone"
        )
    if not output.is_floating_point():
        raise ConfigError(f"the model must return floats, got {output.dtype}; return the logits themselves")


def _checked(module: object) -> nn.Module:
    """Return a model that can be trained, or say why it cannot; only a user's own may be none."""
    if not isinstance(module, nn.Module):
        raise ConfigError(
            f"model must be a torch module or return one, got {type(module).__name__}; "
            "a function needs a return statement"
        )
    parameters = list(module.named_parameters())
    if any(is_lazy(tensor) for _, tensor in parameters):
        raise ConfigError(
            "the model has lazy layers of unknown shape; call it once with a sample before you return it"
        )
    if not any(tensor.requires_grad for _, tensor in parameters):
        which = "no parameters" if not parameters else "only frozen parameters (requires_grad is False)"
        raise ConfigError(f"the model has {which}, so there is nothing to train; unfreeze or add a layer")
    for name, tensor in (*parameters, *module.named_buffers()):
        odd = tensor.is_floating_point() or tensor.is_complex() or name in dict(parameters)
        if odd and tensor.dtype != torch.float32:
            raise ConfigError(
                f"the model's {name} is {tensor.dtype}, and models are trained and sent in torch.float32; "
                "call model.float()"
            )
    return module


class FlatModel:
    """A torch module whose tensors are views into one vector: parameters first, then running statistics.

    Buffers that are not floats (BatchNorm's `num_batches_tracked`) are left out. Every load resets them.
    """

    def __init__(self, module: nn.Module, device: torch.device) -> None:
        self.module = module.to(device)
        parameters = list(module.named_parameters())
        buffers = [(name, b) for name, b in module.named_buffers() if b.is_floating_point()]
        self.spec = Spec(tuple((name, tuple(t.shape)) for name, t in (*parameters, *buffers)))
        self.trainable = sum(p.numel() for _, p in parameters)
        self.frozen = torch.cat([torch.full((p.numel(),), not p.requires_grad) for _, p in parameters]).to(
            device
        )
        self._counters = [(b, b.clone()) for b in module.buffers() if not b.is_floating_point()]
        self.values = torch.cat([t.detach().reshape(-1) for _, t in (*parameters, *buffers)]).to(device)
        self.gradient = torch.zeros(self.trainable, device=device)
        start = 0
        for _, tensor in (*parameters, *buffers):
            stop = start + tensor.numel()
            tensor.data = self.values[start:stop].view_as(tensor)
            if start < self.trainable:
                tensor.grad = self.gradient[start:stop].view_as(tensor)
            start = stop

    def load(self, weights: Weights) -> None:
        """Copy the values of a vector into the model."""
        self.values.copy_(torch.from_numpy(weights))
        for counter, start in self._counters:
            counter.copy_(start)

    def weights(self) -> Weights:
        """Return a copy of the values."""
        return self.values.cpu().numpy().astype(np.float32, copy=True)


class _TokenLSTM(nn.Module):
    """Embeds token ids, reads them in order, and gives one number per token for the next one."""

    def __init__(self, tokens: int, embedding: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, embedding)
        self.lstm = nn.LSTM(embedding, width, batch_first=True)
        self.output = nn.Linear(width, tokens)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(x))
        return self.output(states[:, -1])  # type: ignore[no-any-return]


class _Basic(nn.Module):
    """Two 3x3 convolutions around a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width),
        )  # fmt: skip
        self.shortcut = _shortcut(inputs, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class _Bottleneck(nn.Module):
    """1x1 down, 3x3, 1x1 up to four times the width, around a shortcut."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.shortcut = _shortcut(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    if inputs == outputs and stride == 1:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


def _residual(
    stem: list[nn.Module], block: type[_Basic | _Bottleneck], widths: tuple[int, ...], classes: int
) -> nn.Module:
    layers, inputs = list(stem), widths[0]
    for stage, width in enumerate(widths):
        for index in range(2):
            layers.append(block(inputs, width, 2 if stage > 0 and index == 0 else 1))
            inputs = width * block.expansion
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
