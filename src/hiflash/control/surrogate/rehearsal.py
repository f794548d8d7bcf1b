"""A whole run under a surrogate: what it would take, in a moment and without any training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hiflash.config import Config
from hiflash.control.surrogate.model import Surrogate
from hiflash.control.surrogate.stand_in import surrogate_simulator
from hiflash.data import Dataset
from hiflash.seeding import rng
from hiflash.sim.session import Goals, Session
from hiflash.weights import Spec

__all__ = ["Rehearsal", "rehearse"]


@dataclass(frozen=True)
class Rehearsal:
    """What a run took until it reached its target or used up its budget; names as in `Result`."""

    reached: bool
    communications: int
    virtual_s: float
    total_cost: float
    applied_per_edge: list[int]
    evaluations: list[dict[str, Any]]


def rehearse(
    config: Config, data: Dataset | None, spec: Spec, surrogate: Surrogate, number: int
) -> Rehearsal:
    """Return how the configured run goes with a surrogate in place of training.

    Rehearsals of the same number and seed have the same luck, whatever the thresholds.
    """
    draw = int(rng(config.seed, "rehearsal", number).integers(2**62))
    engine, learning = surrogate_simulator(config, data, spec, surrogate, draw)
    target = float(config.stop.target)
    session = Session(engine, learning.evaluate, Goals(config.evaluate.every, target))
    session.run()
    reached = session.targets[str(target)]
    used = session.evaluations[-1] if reached is None else reached
    return Rehearsal(
        reached is not None,
        used["communications"],
        used["virtual_s"],
        used["total_cost"],
        engine.figures()["applied_per_edge"],
        session.evaluations,
    )
