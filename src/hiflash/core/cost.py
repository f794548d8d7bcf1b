"""Times of training and sending (paper, section 5.2, system cost model), and how resources fluctuate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hiflash.core.state import Stateful
from hiflash.errors import ProtocolError
from hiflash.seeding import once

__all__ = ["Fluctuation", "WanLink", "compute_seconds", "send_seconds"]

Floats = npt.NDArray[np.float64]


def compute_seconds(local_steps: Floats, step_bits: Floats, cycles_per_bit: Floats, f_hz: Floats) -> Floats:
    """Return the seconds a client needs for one task: `c * D_k * zeta_k / f_k`.

    >>> compute_seconds(np.array([3.0]), np.array([60 * 784 * 8.0]), np.array([20.0]), np.array([1.5e9]))
    array([0.0150528])
    """
    return local_steps * step_bits * cycles_per_bit / f_hz


def send_seconds(parameters: float, bandwidth_hz: Floats, snr_db: float) -> Floats:
    """Return the seconds a model takes from client to edge: `32 params / (B log2(1 + SNR))`."""
    return parameters * 32 / (bandwidth_hz * math.log2(1 + 10 ** (snr_db / 10)))


@dataclass(frozen=True, slots=True)
class WanLink:
    """An edge's connection to the cloud: half a round trip and the transfer, with log-normal jitter."""

    rtt_s: float
    bytes_per_s: float
    jitter: float

    def mean_s(self, model_bytes: int) -> float:
        """Return the mean seconds of a transfer in one direction."""
        return self.rtt_s / 2 + model_bytes / self.bytes_per_s

    def draw_s(self, model_bytes: int, stream: np.random.Generator) -> float:
        """Return the seconds of one transfer; the jitter has mean one."""
        noise = stream.normal(-(self.jitter**2) / 2, self.jitter) if self.jitter else 0.0
        return self.mean_s(model_bytes) * math.exp(noise)


class Fluctuation(Stateful):
    """Log-resources as AR(1) processes, one step per virtual second: `x <- rho x + sqrt(1 - rho^2) s xi`.

    A resource is its mean times `exp(x)`. Queries do not change the process: second t follows from second
    t - 1 and the stream (seed, "fluctuation", t).
    """

    STATE = ("first", "states")

    def __init__(self, size: int, *, rho: float, spread: float, seed: int) -> None:
        self.size = size
        self.rho = rho
        self.spread = spread
        self.seed = seed
        self.first = 0
        self.states: list[Floats] = [spread * self._noise(0)]
        self._factors: dict[int, Floats] = {}  # by second; emptied when time passes

    def factors(self, now: float) -> Floats:
        """Return the factor on every resource's mean during the second of `now`."""
        second = int(now)
        if second < self.first:
            raise ProtocolError(f"second {second} is forgotten; the first known second is {self.first}")
        while self.first + len(self.states) <= second:
            noise = self._noise(self.first + len(self.states))
            scale = math.sqrt(1 - self.rho**2) * self.spread
            self.states.append(self.rho * self.states[-1] + scale * noise)
        if second not in self._factors:
            self._factors[second] = np.exp(self.states[second - self.first])
        return self._factors[second]

    def forget(self, now: float) -> None:
        """Drop the seconds before `now`: they are not needed again."""
        passed = min(int(now) - self.first, len(self.states) - 1)
        if passed > 0:
            del self.states[:passed]
            self.first += passed
            self._factors.clear()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot."""
        super().restore(state)
        self._factors.clear()

    def _noise(self, second: int) -> Floats:
        return once(self.seed, "fluctuation", second).standard_normal(self.size)
