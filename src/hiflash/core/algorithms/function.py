"""The user's own training in PyTorch: what its arrays become at the edge and in the cloud."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hiflash.core.algorithms.algorithm import (
    ClientAlgorithm,
    CloudSide,
    Done,
    Traffic,
    gather,
    usable_extra,
)
from hiflash.core.registry import Key, Part
from hiflash.messages import Extra

__all__ = ["PARTS", "Function"]


@dataclass(frozen=True)
class Function(ClientAlgorithm):
    """A function of the user trains the model; `values` is the size of all arrays that it sends."""

    values: int
    keeps = True
    gathers = "mean"

    def traffic(self, trained: int, *, flat: bool, exact: bool) -> Traffic:
        """Return the declared number of values, in each direction."""
        return Traffic(self.values, self.values, self.values, self.values)

    def after(self, done: Done, state: Extra, extra: Extra) -> tuple[Extra, Extra]:
        """Return the state that the function left, and its arrays."""
        return done.state, done.extra

    def cloud(self, trained: int, clients: int) -> CloudSide:
        """Return the keeper of the arrays."""
        return _CloudSide(self.values)


class _CloudSide(CloudSide):
    """Keeps the last accepted arrays of every edge, and hands down their mean, weighted by samples."""

    STATE = ("last", "mean")

    def __init__(self, values: int) -> None:
        self.values = values
        self.last: dict[int, tuple[Extra, int]] = {}
        self.mean: Extra = {}

    def grant(self) -> Extra:
        """Return the mean of the last arrays of all edges."""
        return self.mean

    def usable(self, extra: Extra) -> bool:
        """Return whether these are at most as many values as declared."""
        return usable_extra(extra) and sum(array.size for array in extra.values()) <= self.values

    def accept(self, edge: int, extra: Extra, examples: int) -> None:
        """Replace the arrays of an edge."""
        self.last[edge] = (extra, examples)
        # By edge, not by arrival: float addition is not associative.
        held = [self.last[other] for other in sorted(self.last)]
        self.mean = gather("mean", {}, [arrays for arrays, _ in held], [count for _, count in held])


def _problem(config: Any) -> str | None:
    if not config.client.function:
        return (
            'client.algorithm = "function" needs client.function = "package.module:name", or in Python '
            "hiflash.run(train=function)"
        )
    if config.client.mu:
        return (
            'client.algorithm = "function" takes its own steps, without the proximal term of client.mu = '
            f"{config.client.mu:g}; use client.mu = 0"
        )
    if config.trainer in ("native", "stacked"):
        return (
            'client.algorithm = "function" runs in PyTorch, and trainer is '
            f'"{config.trainer}"; use "auto" or "torch"'
        )
    return None


PARTS = (
    Part(
        "function",
        "your own `train(model, data, context)` in PyTorch",
        lambda config: Function(config.client.extra_values),
        keys=(
            Key(
                "function",
                str,
                default="",
                high=300,
                allowed='"package.module:name" or "file.py:name"',
                about="function: the Python function that trains a model (docs/client_algorithms.md)",
            ),
            Key(
                "extra_values",
                int,
                default=0,
                low=0,
                high=1_000_000_000,
                about="function: numbers in the arrays that it sends beside the model, counted both ways",
            ),
        ),
        problem=_problem,
    ),
)
