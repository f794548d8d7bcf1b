"""Tests of a model on whole sets of samples, in spans for many workers."""

from __future__ import annotations

from collections.abc import Sequence

from hiflash.messages import Weights

__all__ = ["Tester", "spans"]

EVALUATION_SPAN = 500  # fixed, so that sums do not depend on the number of workers


class Tester:
    """The base of executors that test models on spans of the test set."""

    test_size: int
    """Samples of the test set; those of the validation set and held-out ones of clients come after them."""

    def evaluate(self, weights: Weights) -> tuple[float, ...]:
        """Return the means of the task's sums over the whole test set, that of the loss last."""
        return self.means(weights, [self.test_size])[0]

    def means(self, weights: Weights, sizes: Sequence[int]) -> list[tuple[float, ...]]:
        """Return the means over each of several sets of these sizes: the test set and what follows it."""
        firsts = [sum(sizes[:place]) for place in range(len(sizes))]
        parts = [
            [(first + start, first + stop) for start, stop in spans(size)]
            for first, size in zip(firsts, sizes, strict=True)
        ]
        tested = iter(self.sums(weights, [span for part in parts for span in part]))
        return [
            tuple(sum(column) / size for column in zip(*(next(tested) for _ in part), strict=True))
            for part, size in zip(parts, sizes, strict=True)
        ]

    def sums(self, weights: Weights, parts: Sequence[tuple[int, int]]) -> list[tuple[float, ...]]:
        """Return the task's sums over each of some parts of the test set and of what follows it."""
        raise NotImplementedError


def spans(size: int) -> list[tuple[int, int]]:
    """Return the spans of a set of this size."""
    return [(start, min(start + EVALUATION_SPAN, size)) for start in range(0, size, EVALUATION_SPAN)]
