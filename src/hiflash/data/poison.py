"""Poisoned training data for malicious clients."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

__all__ = ["flip_labels"]


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
