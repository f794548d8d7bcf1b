"""The baseline: a plain PyTorch loop as a user would write it, on one thread with torch's defaults."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["BareLoop", "mnist"]


class BareLoop:
    """An SGD loop over pre-normalised float32 tensors, batch indexing included."""

    def __init__(self, make_model: Callable[[], nn.Module], x: Tensor, y: Tensor, batch: int) -> None:
        torch.set_num_threads(1)
        self.model = make_model()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.x, self.y, self.batch = x, y, batch

    def train_s(self, steps: int) -> float:
        """Return the seconds of `steps` steps."""
        torch.set_num_threads(1)
        self.model.train()
        begun = time.perf_counter()
        order = torch.randperm(len(self.x))
        for step in range(steps):
            first = step * self.batch % (len(order) - self.batch)
            index = order[first : first + self.batch]
            self.optimizer.zero_grad()
            functional.cross_entropy(self.model(self.x[index]), self.y[index]).backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
        return time.perf_counter() - begun

    def evaluate_s(self, x: Tensor, y: Tensor) -> float:
        """Return the seconds of one pass over a test set."""
        torch.set_num_threads(1)
        self.model.eval()
        begun = time.perf_counter()
        with torch.inference_mode():
            right = sum(
                int((self.model(x[i : i + 500]).argmax(1) == y[i : i + 500]).sum())
                for i in range(0, len(x), 500)
            )
        if not 0 <= right <= len(x):
            raise AssertionError("unreachable: keeps the loop from being optimised away")
        return time.perf_counter() - begun


def mnist() -> str:
    """Return the dataset to use: MNIST if it is installed, else the shipped 5,000 images."""
    from hiflash.data.datasets import list_datasets

    found = {row.name: row.path for row in list_datasets()}
    return "mnist" if found["mnist"] else "mnist5k"
