"""How good a run's model was: the metric of its task, in values, words and directions."""

from collections.abc import Mapping, Sequence
from typing import Any

from hiflash.core.metrics import ACCURACY, Metric
from hiflash.report.measures import MEASURES, Measure
from hiflash.report.units import Unit, count, goal, percent

__all__ = [
    "aim",
    "best_name",
    "best_of",
    "easiest",
    "final",
    "mark",
    "measure_of",
    "metric_among",
    "metric_of",
    "show",
    "validated",
]


def metric_of(result: Mapping[str, Any]) -> Metric:
    """Return the metric of a result or of a progress report; accuracy if it names none."""
    if "metric" not in result:
        return ACCURACY
    return Metric(result["metric"], result["metric_better"], result["metric_unit"])


def metric_among(results: Sequence[Mapping[str, Any]]) -> Metric:
    """Return the metric that some results share."""
    return metric_of(results[0]) if results else ACCURACY


def best_name(metric: Metric) -> str:
    """Return the name of the best value of a metric over a run: best_accuracy."""
    return f"best_{metric.name}"


def validated(results: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether all results have a validation set, on which their runs stopped."""
    return bool(results) and all(result.get("validation") for result in results)


def final(result: Mapping[str, Any], *, watched: bool = False) -> float | None:
    """Return the metric at the last evaluation: on the test set, or `watched`, on the validation set."""
    metric = metric_of(result)
    if watched:
        value: float | None = result["validation"]["scores"][metric.name]
    else:
        value = result["accuracy"] if metric == ACCURACY else result["scores"][metric.name]
    return value


def best_of(result: Mapping[str, Any], *, watched: bool = False) -> float | None:
    """Return the best metric over all evaluations: on the test set, or `watched`, on the validation set."""
    if watched:
        value: float | None = result["validation"]["best"]
    else:
        value = result["best_accuracy"] if metric_of(result) == ACCURACY else result["best"]
    return value


def show(value: float | None, metric: Metric) -> str:
    """Write a value of a metric: 91.3%, 57.4."""
    return percent(value) if metric.unit == "share" else count(value)


def mark(target: float, metric: Metric) -> str:
    """Write a target alone: 90%, 0.4."""
    return goal(target) if metric.unit == "share" else f"{target:g}"


def aim(target: float, metric: Metric) -> str:
    """Write a target with its metric: 90% accuracy, rmse 0.4."""
    if metric.unit == "share":
        return f"{goal(target)} {metric.name}"
    return f"{metric.name} {target:g}"


def easiest(targets: Sequence[float], metric: Metric) -> float | None:
    """Return the target that every run on the way to another one passes, None if there is none."""
    return (min if metric.better == "higher" else max)(targets, default=None)


def measure_of(name: str, metric: Metric) -> Measure:
    """Return the words, unit and head of a measure: one that all runs have, or one of the metric."""
    if name in MEASURES:
        return MEASURES[name]
    which = "best" if name == best_name(metric) else "final"
    unit: Unit = "share" if metric.unit == "share" else "count"
    return Measure(f"{which} {metric.name}", unit, f"{which}\n{metric.name}")
