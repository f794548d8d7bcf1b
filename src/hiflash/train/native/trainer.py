"""Runs client tasks in C compiled for the network: one call per task, several times as fast as torch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from hiflash.errors import ConfigError
from hiflash.messages import ClientTask, Weights
from hiflash.train.native.build import find_compiler, load_library
from hiflash.train.native.codegen import Machine, generate
from hiflash.train.native.network import NativeUnavailable, packed_slots, read_network
from hiflash.train.task import Solver, TaskResult
from hiflash.train.tasks import Classification
from hiflash.train.torch_trainer import Samples, task_batches

__all__ = ["NativeTrainer", "NativeUnavailable", "supports"]

ALIGNMENT = 64  # bytes: no vector of an aligned row crosses a cache line


def supports(module: nn.Module, input_shape: tuple[int, ...], *, augment: bool = False) -> str:
    """Return why a network cannot be compiled, naming the layer; empty if it can."""
    if augment:
        return "data augmentation has no compiled form (data.augment = false turns it off)"
    try:
        generate(read_network(module, input_shape), Machine(lanes=16, registers=32))
    except NativeUnavailable as unavailable:
        return unavailable.reason
    return ""


class NativeTrainer:
    """Trains and evaluates like `TorchTrainer`, to within rounding. Not thread-safe: one for every worker.

    The C call releases the interpreter lock. The same task gives the same bits on any worker of the
    machine.
    """

    name = "native"
    whole_rounds = False

    def __init__(
        self,
        make_model: Callable[[], nn.Module],
        samples: Samples,
        solver: Solver,
        *,
        isa: str = "native",
    ) -> None:
        if type(samples.task) is not Classification:
            raise NativeUnavailable(f"the task {samples.task.name} has no compiled form")
        if solver.optimizer != "sgd":
            raise NativeUnavailable(f"the optimiser {solver.optimizer} has no compiled form")
        module, shape = make_model(), tuple(samples.x.shape[1:])
        reason = supports(module, shape, augment=solver.augment)
        if reason:
            raise NativeUnavailable(reason)
        stages = read_network(module, shape)
        compiler = find_compiler(isa)
        self.library = load_library(generate(stages, compiler.machine), compiler)
        _declare(self.library)
        self.slots = packed_slots(stages, compiler.machine.lanes)[0]
        self.workspace = _aligned(self.library.workspace_floats())
        self.batch = solver.batch
        self.mu = solver.mu
        self.hyper = (solver.momentum, solver.weight_decay, solver.clip_norm)
        self.indices = samples.indices
        self.x, self.y = _arrays(samples.x, samples.y, stages[-1].outs)
        self.x_test, self.y_test = _arrays(samples.x_test, samples.y_test, stages[-1].outs)
        # C does not check bounds.
        if any(len(part) and not 0 <= part.min() <= part.max() < len(self.x) for part in self.indices):
            raise ValueError(f"a client's part has a sample outside 0..{len(self.x) - 1}")

    def train(self, tasks: Sequence[ClientTask]) -> list[TaskResult]:
        """Return the results in the order of the tasks."""
        return [self._train(task) for task in tasks]

    def evaluate(self, weights: Weights, start: int, stop: int) -> tuple[float, ...]:
        """Return the number of right answers and the summed loss on a span of the test set."""
        values, loss = self._checked(weights), ctypes.c_double()
        span = range(len(self.x_test))[start:stop]
        right = self.library.evaluate(
            self.workspace.ctypes.data, self.x_test.ctypes.data, self.y_test.ctypes.data,
            span.start, span.stop, len(self.slots), self.slots.ctypes.data, values.ctypes.data,
            ctypes.byref(loss),
        )  # fmt: skip
        return int(right), loss.value

    def _train(self, task: ClientTask) -> TaskResult:
        batches = task_batches(task, self.indices[task.client], self.batch)
        index = np.concatenate(batches).astype(np.int64, copy=False)
        sizes = np.array([len(batch) for batch in batches], np.int32)
        values = self._checked(task.weights).copy()
        return TaskResult(values, self._run(index, sizes, values, task))

    def _run(self, index: np.ndarray, sizes: np.ndarray, values: Weights, task: ClientTask) -> float:
        """Take the steps in C, on `values` itself, and return their mean loss."""
        correction = None if task.correction is None else self._checked(task.correction)
        return self.library.train(  # type: ignore[no-any-return]
            self.workspace.ctypes.data, self.x.ctypes.data, self.y.ctypes.data,
            index.ctypes.data, sizes.ctypes.data, len(sizes),
            len(self.slots), self.slots.ctypes.data, values.ctypes.data,
            None if correction is None else correction.ctypes.data, task.lr, self.mu + task.mu, *self.hyper,
        )  # fmt: skip

    def _checked(self, weights: Weights) -> Weights:
        if weights.shape != self.slots.shape:
            raise ValueError(f"a model of {len(self.slots)} parameters got weights of shape {weights.shape}")
        return np.ascontiguousarray(weights, np.float32)


def _declare(library: ctypes.CDLL) -> None:
    """Tell ctypes the types of the three functions: see ENTRY_POINTS of the code generator."""
    pointer, integer, real = ctypes.c_void_p, ctypes.c_int, ctypes.c_float
    library.workspace_floats.restype = ctypes.c_long
    library.workspace_floats.argtypes = []
    library.train.restype = ctypes.c_double
    library.train.argtypes = [*[pointer] * 5, integer, integer, *[pointer] * 3, *[real] * 5]
    library.evaluate.restype = ctypes.c_long
    library.evaluate.argtypes = [*[pointer] * 3, *[ctypes.c_long] * 2, integer, *[pointer] * 3]


def _aligned(floats: int) -> np.ndarray:
    """Return zeros that start at a cache line."""
    raw = np.zeros(floats + ALIGNMENT // 4, np.float32)
    start = -raw.ctypes.data % ALIGNMENT // 4
    return raw[start : start + floats]


def _arrays(x: Tensor, y: Tensor, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return samples and labels in the form that the C functions read, with a copy only if needed."""
    if x.device.type != "cpu" or x.dtype != torch.float32:
        raise NativeUnavailable(f"samples are {x.dtype} on {x.device}, not float32 on the CPU")
    if len(y) and not 0 <= int(y.min()) <= int(y.max()) < classes:
        raise ConfigError(f"a label is not in 0..{classes - 1}, the outputs of the model")
    return x.contiguous().numpy(), y.to(torch.int64).contiguous().numpy()
