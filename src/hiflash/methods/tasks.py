"""The tasks by name. Their code needs torch, so it is imported at its first use."""

from __future__ import annotations

from hiflash.core.registry import Part, by_name

__all__ = ["TASKS"]

TASKS = by_name(
    Part("classification", "one class per sample: accuracy", "hiflash.train.tasks:classification"),
    Part("regression", "numbers to predict: rmse, mae and r2", "hiflash.train.tasks:regression"),
    Part("sequence", "the next token: accuracy and perplexity", "hiflash.train.tasks:sequence"),
)
