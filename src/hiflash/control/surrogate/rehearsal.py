"""A whole run under a surrogate: estimates its cost in a moment, without training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hiflash.config import Config
from hiflash.control.surrogate.model import Surrogate
from hiflash.control.surrogate.stand_in import surrogate_simulator
from hiflash.data import Dataset
from hiflash.seeding import rng
from hiflash.sim.record import Goals
from hiflash.sim.session import Session
from hiflash.weights import Spec

__all__ = ["Rehearsal", "rehearse"]


@dataclass(frozen=True)
class Rehearsal:
    """The cost of a run until its target or the end of its budget; names as in `Result`."""

    reached: bool
    communications: int
    virtual_s: float
    total_cost: float
    applied_per_edge: list[int]
    evaluations: list[dict[str, Any]]


def rehearse(
    config: Config, data: Dataset | None, spec: Spec, surrogate: Surrogate, number: int
) -> Rehearsal:
    """Return the outcome of the configured run with a surrogate in place of training.

    Rehearsals with the same number and seed draw the same random numbers, whatever their thresholds.
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
