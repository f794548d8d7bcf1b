"""A mixing rule: an edge that has waited long since its last upload counts more.

hiflash run --plugin examples/plugins/mixing.py --cloud.mixing patient --cloud.gain 0.1
"""

import numpy as np

import hiflash


class Patient(hiflash.Stateful):
    """`w <- (1 - a) w + a w_edge`, with `a = alpha + gain * (versions since the edge's last upload)`."""

    STATE = ("version", "last")  # what a resumed run needs

    def __init__(self, alpha: float, gain: float) -> None:
        self.alpha, self.gain = alpha, gain
        self.version = 0
        self.last: dict[int, int] = {}

    def mix(self, weights, update, base, edge: int, staleness: int):
        """Return the next global model."""
        waited = self.version - self.last.get(edge, self.version)
        self.version += 1
        self.last = {**self.last, edge: self.version}
        a = np.float32(min(1.0, self.alpha + self.gain * waited))
        return (1 - a) * weights + a * update


hiflash.register(
    "mixing",
    hiflash.Part(
        "patient",
        "interpolates, with a weight that grows with the versions since the edge's last upload",
        lambda config, trained: Patient(config.cloud.alpha, config.cloud.gain),
        keys=(
            hiflash.Key(
                "gain", float, default=0.05, low=0, high=1, about="mixing patient: weight of a version"
            ),
        ),
        reads=("alpha",),
    ),
)
