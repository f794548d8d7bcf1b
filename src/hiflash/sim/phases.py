"""The phases of secure sums in virtual time: each is a round trip of the slowest client that takes part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hiflash.privacy.sums.messages import PHASES
from hiflash.privacy.sums.sizes import client_bytes, ended_at

__all__ = ["Phases", "Trips"]

Floats = npt.NDArray[np.float64]


class Trips(NamedTuple):
    """What the phases add to a round: seconds, sending of all clients and of those that stayed; losses."""

    lasts_s: float
    all_s: float
    stayed_s: float
    lost: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Phases:
    """Turns the messages of a secure sum into seconds, by what a model takes on the same way.

    `hop_s` is the time of an empty message of each client, one way; None if links have no latency.
    `quorum` is the share of clients whose masked models must come.
    """

    model_bytes: int
    hop_s: Floats | None = None
    quorum: float = 0.0

    def trips(self, clients: Sequence[int], send_s: Sequence[float], stay: Sequence[bool] | None) -> Trips:
        """Return what a round of these clients takes beside training and sending masked models.

        `send_s` is a model's time for each of them. Those that do not `stay` miss the deadline with their
        masked model; they have taken part in the phases before.
        """
        asked = there = len(clients)
        lost, own_s, lasts_s = [0] * len(PHASES), [0.0] * asked, 0.0
        lost[PHASES.index("masked")] = 0 if stay is None else asked - sum(stay)
        hops = [0.0] * asked if self.hop_s is None else self.hop_s[list(clients)].tolist()
        ends = ended_at(asked, lost, self.quorum)
        for phase, gone in zip(PHASES, lost, strict=True):
            if phase == "agree" and there == asked:
                continue  # nobody is lost, so there is nothing to agree on
            share = sum(client_bytes(phase, asked, there, asked)) / self.model_bytes
            ways = 1 if phase == "masked" else 2  # the way back is that of the masked model
            takes = [ways * hop + share * seconds for hop, seconds in zip(hops, send_s, strict=True)]
            if stay is not None and there < asked:
                takes = [seconds if stays else 0.0 for seconds, stays in zip(takes, stay, strict=True)]
            lasts_s += max(takes)
            own_s = [so_far + seconds for so_far, seconds in zip(own_s, takes, strict=True)]
            there -= gone
            if phase == ends:
                break
        stayed = own_s if stay is None else compress(own_s, stay)
        return Trips(lasts_s, math.fsum(own_s), math.fsum(stayed), tuple(lost))
