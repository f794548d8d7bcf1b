"""A client algorithm: momentum that a client keeps from one of its tasks to the next.

hiflash run --plugin examples/plugins/client_algorithm.py --client.algorithm memory --client.memory 0.5
"""

from dataclasses import dataclass

import numpy as np

import hiflash


@dataclass(frozen=True)
class Memory(hiflash.ClientAlgorithm):
    """Adds a share of the client's last mean step to each of its gradients."""

    share: float
    keeps = True

    def before(self, state, extra):
        """Return the vector to add to every gradient of a task, and no proximal term."""
        return (np.float32(self.share) * state["mean_step"] if state else None), 0.0

    def after(self, done, state, extra):
        """Return the mean step of the task; nothing travels beside the model."""
        return {"mean_step": (done.start - done.end) * np.float32(1 / (done.steps * done.lr))}, {}


hiflash.register(
    "client algorithm",
    hiflash.Part(
        "memory",
        "SGD with the share `memory` of the client's last mean step in every gradient",
        lambda config: Memory(config.client.memory),
        keys=(
            hiflash.Key(
                "memory", float, default=0.5, low=0, below=1, about="memory: share of the last mean step"
            ),
        ),
    ),
)
