"""Tests of a model on the whole test set, in spans for many workers."""

from __future__ import annotations

from collections.abc import Sequence

from hiflash.messages import Weights

__all__ = ["Tester", "spans"]

EVALUATION_SPAN = 500  # fixed, so that sums do not depend on the number of workers


class Tester:
    """The base of executors that test models on spans of the test set."""

    test_size: int

    def evaluate(self, weights: Weights) -> tuple[float, float]:
        """Return accuracy and mean loss on the whole test set."""
        tested = self._test(weights, spans(self.test_size))
        right, loss = (sum(column) for column in zip(*tested, strict=True))
        return right / self.test_size, loss / self.test_size

    def right(self, weights: Weights, parts: Sequence[tuple[int, int]]) -> list[int]:
        """Return the number of right answers in each part of the test set."""
        return [hits for hits, _ in self._test(weights, parts)]

    def _test(self, weights: Weights, parts: Sequence[tuple[int, int]]) -> list[tuple[int, float]]:
        raise NotImplementedError


def spans(size: int) -> list[tuple[int, int]]:
    """Return the spans of a test set of this size."""
    return [(start, min(start + EVALUATION_SPAN, size)) for start in range(0, size, EVALUATION_SPAN)]
