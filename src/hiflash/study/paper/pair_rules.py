"""Rules about two labels, or about labels in their order: who needs less, is higher, or fluctuates more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from hiflash.study.paper.claims import Found
from hiflash.study.paper.runs import Runs, all_of

__all__ = ["Rule", "count_words", "fewer", "near", "ordered", "rougher", "steadier"]

Rule = Callable[[Runs], Found]


def fewer(
    ours: str,
    theirs: str,
    partition: str | None = None,
    measure: str = "communications",
    target: float | None = None,
) -> Rule:
    """Return a rule: one label needs less to the target than another. Our number is the change in percent."""

    def rule(runs: Runs) -> Found:
        missing = [label for label in (ours, theirs) if not runs.of(label, partition)]
        if missing:
            return Found(None, None, f"needs runs of {', '.join(missing)}")
        goal = runs.goal((ours, theirs), partition) if target is None else target
        if goal is None:
            return Found(None, None, f"{ours} and {theirs} reach no target both")
        a, b = (runs.to_target(label, partition, measure, goal) for label in (ours, theirs))
        told = f"{_words(measure)} to {_percent(goal)}: {ours} {count_words(a)}, {theirs} {count_words(b)}"
        change = None if a is None or b is None else 100 * (a / b - 1)
        return Found(runs.less(ours, theirs, partition, measure, goal), change, told)

    return rule


def near(ours: str, theirs: str, partition: str | None = None, points: float = 0.0) -> Rule:
    """Return a rule: at equal client work the accuracy is above another's, or at most some points below.

    Our number is the difference in points.
    """

    def rule(runs: Runs) -> Found:
        steps = runs.work([ours, theirs], partition)
        a, b = (runs.accuracy(label, partition, steps) for label in (ours, theirs))
        if steps is None or a is None or b is None:
            return Found(None, None, f"needs runs of {ours} and {theirs}")
        gap = 100 * (a - b)
        told = f"after {steps:,.0f} client steps: {ours} {100 * a:.1f} %, {theirs} {100 * b:.1f} %"
        return Found(gap >= -points if points else gap > 0, gap, told)

    return rule


def steadier(calm: str, wild: str, partition: str | None = None) -> Rule:
    """Return a rule: one label's accuracy fluctuates less than another's. Our number is the ratio."""

    def rule(runs: Runs) -> Found:
        a, b = (runs.fluctuation(label, partition) for label in (calm, wild))
        if a is None or b is None:
            return Found(None, None, f"needs runs of {calm} and {wild}")
        told = f"mean fall between evaluations: {calm} {100 * a:.2f}, {wild} {100 * b:.2f} points"
        return Found(a < b, b / a if a else None, told)

    return rule


def rougher(wild: str, calm: str, partition: str | None = None) -> Rule:
    """Return a rule: one label's accuracy fluctuates more than another's that is evaluated at another pace.

    Evaluations of both are equally far apart in client steps: as far as the rarer ones, twice and four
    times as far. If these do not agree, nothing can be told. Our number is the ratio at the first.
    """

    def rule(runs: Runs) -> Found:
        least = max(runs.spacing(label, partition) for label in (wild, calm))
        spacings = [times * least for times in (1, 2, 4)]
        falls = [[runs.fluctuation(label, partition, apart) for label in (wild, calm)] for apart in spacings]
        pairs = [(a, b) for a, b in falls if a is not None and b is not None]
        if not least or len(pairs) < len(spacings):
            return Found(None, None, f"too few evaluations of {wild} or {calm}")
        told = "; ".join(
            f"{apart:,.0f} client steps apart {wild} {100 * a:.2f}, {calm} {100 * b:.2f} points"
            for apart, (a, b) in zip(spacings, pairs, strict=True)
        )
        more = {a > b for a, b in pairs}
        first, second = pairs[0]
        ratio = first / second if second else None
        return Found(more.pop() if len(more) == 1 else None, ratio, f"mean fall between evaluations {told}")

    return rule


def ordered(
    labels: Sequence[str], measure: str, partition: str | None = None, *, rising: bool = True
) -> Rule:
    """Return a rule: a measure at the target rises (or falls) from each label to the next.

    Our number is how many neighbours are in this order, in percent.
    """

    def rule(runs: Runs) -> Found:
        values = [runs.to_target(label, partition, measure) for label in labels]
        told = f"{_words(measure)} to {_percent(runs.target)}: " + ", ".join(
            f"{label} {count_words(value)}" for label, value in zip(labels, values, strict=True)
        )
        pairs = pairwise(labels if rising else labels[::-1])
        right = [runs.less(first, second, partition, measure) for first, second in pairs]
        return Found(all_of(right), 100 * right.count(True) / len(right), told)

    return rule


def count_words(value: float | None) -> str:
    """Return a number of communications, steps or seconds to a target in words."""
    return "not reached" if value is None else f"{value:,.0f}"


def _percent(goal: float | None) -> str:
    return "no target" if goal is None else f"{100 * goal:g} %"


def _words(measure: str) -> str:
    """Return a measure in words: `client_steps` is client steps, `virtual_s` virtual seconds."""
    return measure.removesuffix("_s").replace("_", " ") + (" seconds" if measure.endswith("_s") else "")
