"""Datasets, where they come from, and how their samples are dealt out to clients.

May import the vocabulary and core.
"""

from __future__ import annotations

from .dataset import Dataset
from .datasets import load
from .held_out import hold_out
from .partition import Partition, label_counts, own_indices, partition
from .poison import flip_labels
from .validation import hold_back, training_part, without_held

__all__ = [
    "Dataset",
    "Partition",
    "flip_labels",
    "hold_back",
    "hold_out",
    "label_counts",
    "load",
    "own_indices",
    "partition",
    "training_part",
    "without_held",
]
