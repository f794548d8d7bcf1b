"""What the validation set says about a run: its metric, the targets on it, and the model it would choose."""

from __future__ import annotations

from typing import Any

from hiflash.sim.federation import Federation
from hiflash.sim.record import VALIDATION, Record

__all__ = ["validation_scores"]


def validation_scores(federation: Federation, record: Record) -> dict[str, Any]:
    """Return the field `validation` of a result; empty without a validation set.

    `test_at_best` is the test metric of the evaluation that is the best on the validation set, the first of
    several: an honest best value, because the test set did not choose it.
    """
    goals, rows = record.goals, record.evaluations
    if not goals.validated:
        return {}
    last = rows[-1] if rows else {}
    best = goals.metric.best(row[goals.watched] for row in rows)
    at_best = None if best is None else next(row for row in rows if row[goals.watched] == best)
    return {
        "share": federation.config.evaluate.validation,
        "samples": len(federation.population.validation),
        "scores": {metric.name: last.get(f"{VALIDATION}{metric.name}") for metric in goals.metrics},
        "best": best,
        "test_at_best": None if at_best is None else at_best[goals.metric.name],
        "targets": record.validation_targets,
    }
