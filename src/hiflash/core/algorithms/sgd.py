"""Plain SGD: no state, no correction. `client.mu` adds FedProx's proximal term."""

from __future__ import annotations

from hiflash.core.algorithms.algorithm import ClientAlgorithm
from hiflash.core.registry import Part

__all__ = ["PARTS"]

PARTS = (Part("sgd", "mini-batch SGD, with FedProx's proximal term `mu`", lambda _: ClientAlgorithm()),)
