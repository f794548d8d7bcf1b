"""Reads a torch module as stages of the compiled trainer, and gives each parameter its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from torch import nn

from hiflash.errors import HiFlashError

__all__ = ["Conv", "Dense", "NativeUnavailable", "Stage", "packed_slots", "read_network", "round_up"]


class NativeUnavailable(HiFlashError):  # noqa: N818  # most callers fall back to torch
    """There is no compiled trainer for this network or on this machine; `reason` says why."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True)
class Conv:
    """A convolution of stride 1 with optional ReLU and max-pooling, and the size of its input."""

    channels: int
    height: int
    width: int
    outs: int
    kernel_h: int
    kernel_w: int
    pad_h: int
    pad_w: int
    bias: bool
    relu: bool = False
    pool: int = 1

    @property
    def run(self) -> int:
        """Return the number of neighbouring inputs that one kernel row covers."""
        return self.kernel_w * self.channels

    @property
    def pitch(self) -> int:
        """Return the floats of one padded input row."""
        return (self.width + 2 * self.pad_w) * self.channels

    @property
    def padded_size(self) -> int:
        """Return the floats of the padded input."""
        return (self.height + 2 * self.pad_h) * self.pitch

    @property
    def interior(self) -> int:
        """Return the offset of the first input after the padding."""
        return self.pad_h * self.pitch + self.pad_w * self.channels

    @property
    def rows(self) -> int:
        """Return the number of output rows, after pooling."""
        return (self.height + 2 * self.pad_h - self.kernel_h + 1) // self.pool

    @property
    def cols(self) -> int:
        """Return the number of output columns, after pooling."""
        return (self.width + 2 * self.pad_w - self.kernel_w + 1) // self.pool


@dataclass(frozen=True)
class Dense:
    """A linear layer with optional ReLU. `inner` is (channels, positions) of its input."""

    inner: tuple[int, int]
    outs: int
    bias: bool
    relu: bool = False

    @property
    def ins(self) -> int:
        """Return the number of inputs."""
        return self.inner[0] * self.inner[1]


Stage: TypeAlias = Conv | Dense


def round_up(count: int, multiple: int) -> int:
    """Return the next multiple at or above `count`."""
    return -(-count // multiple) * multiple


def read_network(module: nn.Module, shape: tuple[int, ...]) -> tuple[Stage, ...]:
    """Return the stages of a torch module for samples of this shape, or raise `NativeUnavailable`."""
    if type(module).forward is not nn.Sequential.forward:  # a subclass may do more than its layers do
        raise NativeUnavailable(f"{type(module).__name__} is not an nn.Sequential")
    layers = list(_leaves(module))
    if len({id(layer) for layer in layers}) < len(layers):
        raise NativeUnavailable("a layer is used twice")
    if not all(parameter.requires_grad for parameter in module.parameters()):
        raise NativeUnavailable("a parameter is frozen (requires_grad=False)")
    if any(part._forward_hooks or part._forward_pre_hooks for part in module.modules()):
        raise NativeUnavailable("a layer has a hook, which may do anything")
    reader = _Reader(shape)
    for layer in layers:
        reader.add(layer)
    if not reader.stages or not isinstance(reader.stages[-1], Dense):
        raise NativeUnavailable("the last layer with parameters is not an nn.Linear")
    read = [(layer.weight, layer.bias) for layer in layers if isinstance(layer, nn.Conv2d | nn.Linear)]
    expected = [id(tensor) for pair in read for tensor in pair if tensor is not None]
    if [id(tensor) for tensor in (*module.parameters(), *module.buffers())] != expected:
        raise NativeUnavailable("a tensor is shared by layers, or is not the weight or bias of a layer")
    return tuple(reader.stages)


def packed_slots(stages: tuple[Stage, ...], lanes: int) -> tuple[npt.NDArray[np.int32], list[int], int]:
    """Return the place of each torch parameter, the start of each stage's weights, and the total size.

    Weights are [output][kernel row][run] with runs rounded up to whole vectors. Biases follow them.
    """
    slots: list[np.ndarray] = []
    starts: list[int] = []
    start = 0
    for stage in stages:
        starts.append(start)
        weights, length = _conv_slots(stage, lanes) if isinstance(stage, Conv) else _dense_slots(stage, lanes)
        slots.append(start + weights.reshape(-1))
        if stage.bias:
            slots.append(start + length + np.arange(stage.outs))
        start += length + round_up(stage.outs, lanes)
    return np.concatenate(slots).astype(np.int32), starts, start


def _leaves(module: nn.Module) -> Iterator[nn.Module]:
    for child in module:  # type: ignore[attr-defined]  # only called with nn.Sequential
        if type(child) is nn.Sequential:
            yield from _leaves(child)
        else:
            yield child


def _conv_slots(conv: Conv, lanes: int) -> tuple[np.ndarray, int]:
    """Torch's order is [output][channel][kernel row][kernel column]."""
    row = round_up(conv.run, lanes)
    out, channel, ky, kx = np.ogrid[: conv.outs, : conv.channels, : conv.kernel_h, : conv.kernel_w]
    return (out * conv.kernel_h + ky) * row + kx * conv.channels + channel, conv.outs * conv.kernel_h * row


def _dense_slots(dense: Dense, lanes: int) -> tuple[np.ndarray, int]:
    """Torch flattens [channel][position]; here channels are innermost."""
    channels, positions = dense.inner
    row = round_up(dense.ins, lanes)
    out, channel, position = np.ogrid[: dense.outs, :channels, :positions]
    return out * row + position * channels + channel, dense.outs * row


def _pair(value: int | tuple[int, ...]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


class _Reader:
    """Fuses layer after layer into stages; `shape` is the output shape of the last layer."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = tuple(shape)
        self.stages: list[Stage] = []
        self.inner = (self.shape[0], 1)  # of a flat input: (channels, positions) in memory

    def add(self, layer: nn.Module) -> None:
        """Take one more layer, or raise `NativeUnavailable`."""
        kind = type(layer)
        if kind is nn.Conv2d:
            self._conv(layer)  # type: ignore[arg-type]  # mypy does not narrow by `kind`
        elif kind is nn.Linear:
            self._linear(layer)  # type: ignore[arg-type]
        elif kind is nn.MaxPool2d:
            self._pool(layer)  # type: ignore[arg-type]
        elif kind is nn.ReLU:
            if not self.stages or self._flat_since_conv():
                raise NativeUnavailable("ReLU does not follow a convolution, a pooling or a linear layer")
            self.stages[-1] = replace(self.stages[-1], relu=True)
        elif kind is nn.Flatten:
            self._flatten(layer)  # type: ignore[arg-type]
        elif not (kind is nn.Identity or (isinstance(layer, nn.Dropout) and layer.p == 0)):
            raise NativeUnavailable(f"{layer} has no compiled form")

    def _flat_since_conv(self) -> bool:
        return len(self.shape) == 1 and isinstance(self.stages[-1], Conv)

    def _conv(self, layer: nn.Conv2d) -> None:
        plain = layer.stride == (1, 1) and layer.dilation == (1, 1) and layer.groups == 1
        if not plain or layer.padding_mode != "zeros" or isinstance(layer.padding, str):
            raise NativeUnavailable(f"{layer}: only stride 1, no dilation, no groups, numeric zero padding")
        if len(self.shape) != 3 or self.shape[0] != layer.in_channels:
            raise NativeUnavailable(f"{layer} does not take an input of shape {self.shape}")
        kernel, pad = _pair(layer.kernel_size), _pair(layer.padding)
        conv = Conv(*self.shape, layer.out_channels, *kernel, *pad, bias=layer.bias is not None)
        if min(conv.rows, conv.cols) < 1:
            raise NativeUnavailable(f"{layer}: nothing comes out for an input of shape {self.shape}")
        self.stages.append(conv)
        self.shape = (conv.outs, conv.rows, conv.cols)

    def _pool(self, layer: nn.MaxPool2d) -> None:
        last = self.stages[-1] if self.stages else None
        (size, other), stride = _pair(layer.kernel_size), _pair(layer.stride)
        plain = _pair(layer.padding) == (0, 0) and _pair(layer.dilation) == (1, 1) and not layer.ceil_mode
        if not plain or layer.return_indices or not size == other == stride[0] == stride[1]:
            raise NativeUnavailable(f"{layer}: only square windows side by side, without padding")
        if not isinstance(last, Conv) or last.pool != 1 or self._flat_since_conv():
            raise NativeUnavailable(f"{layer} does not follow a convolution")
        pooled = replace(last, pool=size)
        if min(pooled.rows, pooled.cols) < 1:
            raise NativeUnavailable(f"{layer}: nothing comes out for an input of shape {self.shape}")
        self.stages[-1] = pooled
        self.shape = (pooled.outs, pooled.rows, pooled.cols)

    def _flatten(self, layer: nn.Flatten) -> None:
        if (layer.start_dim, layer.end_dim) != (1, -1):
            raise NativeUnavailable(f"{layer}: only all dimensions behind the batch")
        if len(self.shape) == 1:
            return
        size = int(np.prod(self.shape))
        # Behind a convolution the memory has channels innermost; a flat input stays as it is.
        self.inner = (self.shape[0], size // self.shape[0]) if self.stages else (size, 1)
        self.shape = (size,)

    def _linear(self, layer: nn.Linear) -> None:
        if self.shape != (layer.in_features,):
            raise NativeUnavailable(f"{layer} does not take an input of shape {self.shape}")
        self.stages.append(Dense(self.inner, layer.out_features, bias=layer.bias is not None))
        self.inner = (layer.out_features, 1)
        self.shape = (layer.out_features,)
