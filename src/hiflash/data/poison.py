"""Poisoned training data for malicious clients."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from ..core.attack import Attack, Poisoned
from ..core.registry import Part

__all__ = ["LABEL_FLIP", "LabelFlip", "flip_labels"]


@dataclass(frozen=True)
class LabelFlip(Attack):
    """Malicious clients train on wrong labels, and send what they have trained."""

    def poison(self, x: np.ndarray, y: np.ndarray, indices: Sequence[np.ndarray], classes: int) -> Poisoned:
        """Return the samples with the labels of malicious clients turned round."""
        return flip_labels(x, y, indices, self.malicious, classes)


LABEL_FLIP = Part(
    "label_flip",
    "trains on the label `classes - 1 - c` instead of c",
    lambda config, malicious: LabelFlip(malicious),
    reads=("share",),
)


def flip_labels(
    x: np.ndarray, y: np.ndarray, indices: Sequence[np.ndarray], malicious: Collection[int], classes: int
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Return samples, labels and indices; for malicious clients label c becomes `classes - 1 - c`.

    Malicious clients get copies of their samples, because other clients may hold the same ones.
    """
    poisoned = list(indices)
    taken, size = [], len(y)
    for client in sorted(malicious):
        taken.append(indices[client])
        poisoned[client] = np.arange(size, size + len(indices[client]))
        size += len(indices[client])
    copies = np.concatenate(taken, dtype=np.int64)
    return (
        np.concatenate([x, x[copies]]),
        np.concatenate([y, classes - 1 - y[copies]]),
        poisoned,
    )
