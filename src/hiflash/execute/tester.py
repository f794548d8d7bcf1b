"""Tests of a model on the whole test set, in spans for many workers."""

from __future__ import annotations

from collections.abc import Sequence

from hiflash.messages import Weights

__all__ = ["Tester", "spans"]

EVALUATION_SPAN = 500  # fixed, so that sums do not depend on the number of workers


class Tester:
    """The base of executors that test models on spans of the test set."""

    test_size: int
    """Samples of the test set; the held-out samples of clients come after them."""

    def evaluate(self, weights: Weights) -> tuple[float, ...]:
        """Return the means of the task's sums over the whole test set, that of the loss last."""
        tested = self.sums(weights, spans(self.test_size))
        return tuple(sum(column) / self.test_size for column in zip(*tested, strict=True))

    def sums(self, weights: Weights, parts: Sequence[tuple[int, int]]) -> list[tuple[float, ...]]:
        """Return the task's sums over each of some parts of the test set and of what follows it."""
        raise NotImplementedError


def spans(size: int) -> list[tuple[int, int]]:
    """Return the spans of a test set of this size."""
    return [(start, min(start + EVALUATION_SPAN, size)) for start in range(0, size, EVALUATION_SPAN)]
