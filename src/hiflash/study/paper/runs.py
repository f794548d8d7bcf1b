"""The runs of an item in the numbers that its claims are about: means over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

from hiflash.core.metrics import ACCURACY
from hiflash.sim.targets import crossing

__all__ = ["STRONG", "Runs", "all_of", "correlation"]

STRONG = 0.8  # rank correlation that a claim about a trend needs
LAST = 5  # evaluations whose mean is the accuracy at some amount of client work

Cell = Mapping[str, Any]


@dataclass(frozen=True)
class Runs:
    """The contents of `result.json` of every cell, with its `label`, and the target that claims are about.

    Without one, a claim about two labels is about the highest of the `targets` that both reach.
    """

    cells: Sequence[Cell]
    target: float | None = None
    targets: Sequence[float] = ()

    def of(self, label: str, partition: str | None = None) -> list[Cell]:
        """Return the cells of a label, on one partition or all; runs on pooled data have no partition."""
        return [
            cell
            for cell in self.cells
            if cell["label"] == label and (partition is None or cell["partition"] in (partition, "pooled"))
        ]

    def to_target(
        self,
        label: str,
        partition: str | None = None,
        measure: str = "communications",
        target: float | None = None,
    ) -> float | None:
        """Return a measure at the target, interpolated; None unless every seed reached it."""
        known = self.seeds_to_target(label, partition, measure, target)
        return fmean(known) if known else None

    def range_to_target(
        self, label: str, partition: str | None = None, target: float | None = None
    ) -> list[float] | None:
        """Return the fewest and the most communications of a seed to the target."""
        known = self.seeds_to_target(label, partition, "communications", target)
        return [min(known), max(known)] if known else None

    def stable(self, label: str, partition: str | None = None, target: float | None = None) -> float | None:
        """Return the communications after which the mean of the last evaluations is at the target.

        A curve that jumps passes a target once before it stays there. None unless every seed does.
        """
        goal = self.target if target is None else target
        found = [None if goal is None else _steady(cell, goal) for cell in self.of(label, partition)]
        known = [value for value in found if value is not None]
        return fmean(known) if known and len(known) == len(found) else None

    def seeds_to_target(
        self,
        label: str,
        partition: str | None = None,
        measure: str = "communications",
        target: float | None = None,
    ) -> list[float]:
        """Return a measure at the target seed by seed; nothing unless every seed reached it."""
        found = self._crossings(label, partition, measure, target)
        known = [value for value in found if value is not None]
        return known if len(known) == len(found) else []

    def reached(self, label: str, partition: str | None = None, target: float | None = None) -> int:
        """Return how many seeds reached the target."""
        found = self._crossings(label, partition, "communications", target)
        return sum(value is not None for value in found)

    def _crossings(
        self, label: str, partition: str | None, measure: str, target: float | None
    ) -> list[float | None]:
        goal = self.target if target is None else target
        return [
            None if goal is None else _crossing(cell, goal, measure) for cell in self.of(label, partition)
        ]

    def goal(self, labels: Sequence[str], partition: str | None = None) -> float | None:
        """Return the target of a claim about some labels."""
        if self.target is not None:
            return self.target
        common = [
            each
            for each in self.targets
            if all(self.to_target(label, partition, target=each) is not None for label in labels)
        ]
        return max(common, default=None)

    def less(
        self,
        ours: str,
        theirs: str,
        partition: str | None = None,
        measure: str = "communications",
        target: float | None = None,
    ) -> bool | None:
        """Return whether a label needs less to the target than another, None if the runs cannot tell.

        A label that did not reach it needs more than `at_least`: that decides only if the other needs less.
        """
        a, b = (self.to_target(label, partition, measure, target) for label in (ours, theirs))
        if a is not None and b is not None:
            return None if a == b else a < b  # both at the first evaluation, which is no finer
        if a is None and b is None:
            return None
        late, needs = (theirs, a) if b is None else (ours, b)
        return b is None if self.at_least(late, partition, measure, target) >= (needs or 0) else None

    def at_least(
        self,
        label: str,
        partition: str | None = None,
        measure: str = "communications",
        target: float | None = None,
    ) -> float:
        """Return what a label needs to the target at least: a seed that missed it needs what it spent."""
        goal = self.target if target is None else target
        found = []
        for cell in self.of(label, partition):
            needs = None if goal is None else _crossing(cell, goal, measure)
            found.append(float(cell[measure]) if needs is None else needs)
        return fmean(found) if found else 0.0

    def mean(self, label: str, name: str, partition: str | None = None) -> float | None:
        """Return the mean of a number of the results."""
        values = [cell[name] for cell in self.of(label, partition) if cell[name] is not None]
        return fmean(values) if values else None

    def accuracy(self, label: str, partition: str | None = None, steps: float | None = None) -> float | None:
        """Return the mean accuracy of the last evaluations, up to a number of client steps if given."""
        found = []
        for cell in self.of(label, partition):
            rows = [
                row["accuracy"]
                for row in cell["evaluations"]
                if row["accuracy"] is not None and (steps is None or row["client_steps"] <= steps)
            ]
            if rows:
                found.append(fmean(rows[-LAST:]))
        return fmean(found) if found else None

    def work(self, labels: Sequence[str], partition: str | None = None) -> float | None:
        """Return the client steps that every run of these labels did."""
        steps = [cell["client_steps"] for label in labels for cell in self.of(label, partition)]
        return min(steps, default=None)

    def fluctuation(self, label: str, partition: str | None = None, apart: float = 0) -> float | None:
        """Return the mean fall of accuracy from one evaluation to the next in the second half of a run.

        Rises count as no fall: they are what training is for. With `apart`, evaluations
        are that many client steps apart.
        """
        found = []
        for cell in self.of(label, partition):
            values = [row["accuracy"] for row in _spaced(cell, apart)]
            late = values[len(values) // 2 :]
            if len(late) > 1:
                found.append(fmean(max(0.0, a - b) for a, b in pairwise(late)))
        return fmean(found) if found else None

    def spacing(self, label: str, partition: str | None = None) -> float:
        """Return the mean number of client steps from one evaluation to the next."""
        known = [(cell["client_steps"], len(cell["evaluations"])) for cell in self.of(label, partition)]
        return fmean(steps / max(1, count) for steps, count in known) if known else 0.0


def all_of(verdicts: Sequence[bool | None]) -> bool | None:
    """Return whether all hold: False if one does not, or else None if one cannot be told.

    >>> all_of([True, None]), all_of([True, None, False]), all_of([True])
    (None, False, True)
    """
    if False in verdicts:
        return False
    return None if None in verdicts else True


def correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation, None if either does not vary.

    >>> correlation([1, 2, 3], [9, 8, 7]), correlation([1, 2], [5, 5])
    (-1.0, None)
    """
    if len(set(first)) < 2 or len(set(second)) < 2:
        return None
    a, b = _ranks(first), _ranks(second)
    mean_a, mean_b = fmean(a), fmean(b)
    both = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True))
    alone = [sum((x - mean) ** 2 for x in ranks) for ranks, mean in ((a, mean_a), (b, mean_b))]
    return float(both / (alone[0] * alone[1]) ** 0.5)


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the rank of every value; equal ones share the mean of their ranks."""
    in_order = sorted(values)
    return [in_order.index(value) + (in_order.count(value) - 1) / 2 for value in values]


def _crossing(cell: Cell, goal: float, measure: str) -> float | None:
    """Return a measure where the line between two evaluations crosses the goal."""
    found = crossing(cell["evaluations"], ACCURACY, goal, (measure,))
    return None if found is None else found[measure]


def _spaced(cell: Cell, apart: float) -> list[Mapping[str, Any]]:
    """Return the evaluations of a run, or those next to every multiple of `apart` client steps."""
    rows = [row for row in cell["evaluations"] if row["accuracy"] is not None]
    if not apart:
        return rows
    marks = [apart * at for at in range(1, int(cell["client_steps"] / apart) + 1)]
    return [min(rows, key=lambda row: abs(row["client_steps"] - mark)) for mark in marks] if rows else []


def _steady(cell: Cell, goal: float) -> float | None:
    """Return the communications of the first evaluation that is at the goal with those before it."""
    rows = cell["evaluations"]
    for at in range(LAST, len(rows) + 1):
        recent = [row["accuracy"] for row in rows[at - LAST : at]]
        if None not in recent and fmean(recent) >= goal:
            return float(rows[at - 1]["communications"])
    return None
