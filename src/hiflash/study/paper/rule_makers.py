"""Rules about labels side by side: who needs least, who is highest, and how that moves with heterogeneity."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hiflash.study.paper.claims import Found
from hiflash.study.paper.pair_rules import Rule, count_words, fewer, near
from hiflash.study.paper.runs import Runs, all_of

__all__ = [
    "best_near",
    "fewest",
    "fewest_everywhere",
    "grows",
    "highest",
    "misses",
    "needs",
    "share_falls",
    "slightly_below",
    "to_both_best",
]


def misses(label: str, partition: str, target: float, judge: str) -> Rule:
    """Return a rule: no seed of a label reaches a target that another label does reach in the same budget."""

    def rule(runs: Runs) -> Found:
        cells = runs.of(label, partition)
        if not cells:
            return Found(None, None, f"needs runs of {label}")
        best = max(cell["best_accuracy"] for cell in cells)
        spent = max(cell["communications"] for cell in cells)
        told = f"best of {label} {100 * best:.1f} % in {spent:,} communications"
        if best >= target:
            return Found(False, best, told)
        other = runs.to_target(judge, partition, target=target)
        return Found(None if other is None else True, best, told)

    return rule


def needs(label: str, partition: str, target: float, paper: float) -> Rule:
    """Return a rule: a label needs as many communications to the target as the paper says, within a fifth."""

    def rule(runs: Runs) -> Found:
        found = runs.to_target(label, partition, target=target)
        if found is None:
            spent = runs.at_least(label, partition, target=target)
            told = f"{label} does not reach {100 * target:g} % in {spent:,.0f} communications"
            return Found(False if spent > 1.2 * paper else None, None, told)
        return Found(abs(found / paper - 1) <= 0.2, found, f"{label} {found:,.0f} to {100 * target:g} %")

    return rule


def fewest(ours: str, partition: str, rivals: tuple[str, ...]) -> Rule:
    """Return a rule: a label needs fewer communications than every rival. Our number is its rank, from 1.

    The target is the claim's, or else the highest that the label reaches.
    """

    def rule(runs: Runs) -> Found:
        goal = runs.goal((ours,), partition)
        if goal is None:
            return Found(None, None, f"{ours} reaches no target")
        needs = {label: runs.to_target(label, partition, target=goal) for label in (ours, *rivals)}
        told = f"to {100 * goal:g} %: "
        told += ", ".join(f"{label} {count_words(value)}" for label, value in needs.items())
        ahead = [runs.less(ours, each, partition, target=goal) for each in rivals]
        rank = None if needs[ours] is None else 1 + ahead.count(False)
        return Found(all_of(ahead), rank, told)

    return rule


def fewest_everywhere(ours: str, partitions: tuple[str, ...], rivals: tuple[str, ...]) -> Rule:
    """Return a rule: fewest for every target and partition. Our number is in how many of them, in percent."""

    def rule(runs: Runs) -> Found:
        found: list[bool | None] = []
        ahead: dict[str, list[str]] = {}
        for partition in partitions:
            for target in runs.targets:
                if runs.to_target(ours, partition, target=target) is None:
                    continue
                less = {each: runs.less(ours, each, partition, target=target) for each in rivals}
                found.append(all_of(list(less.values())))
                for each in rivals:
                    if not less[each]:
                        ahead.setdefault(each, []).append(f"{100 * target:g}")
        if not found:
            return Found(None, None, f"{ours} reaches no target")
        told = f"fewest in {found.count(True)} of {len(found)} pairs of partition and target"
        missed = ", ".join(f"{each} (to {', '.join(targets)} %)" for each, targets in ahead.items())
        told += f"; not fewer, or not known to be, than {missed}" if missed else ""
        return Found(all_of(found), 100 * found.count(True) / len(found), told)

    return rule


def grows(labels: tuple[str, ...], partitions: tuple[str, ...]) -> Rule:
    """Return a rule: every label needs more communications from each partition to the next."""

    def rule(runs: Runs) -> Found:
        told, pairs = [], []
        for label in labels:
            needs = [runs.to_target(label, partition) for partition in partitions]
            told.append(f"{label} {', '.join(map(count_words, needs))}")
            pairs += [None if a is None or b is None else a < b for a, b in pairwise(needs)]
        return Found(all_of(pairs), 100 * pairs.count(True) / len(pairs), "; ".join(told))

    return rule


def share_falls(ours: str, rivals: tuple[str, ...], partitions: tuple[str, ...]) -> Rule:
    """Return a rule: what a label needs as a share of a rival's falls from each partition to the next.

    All are asked about one target, the highest that all of them reach everywhere.
    """

    def rule(runs: Runs) -> Found:
        labels = (ours, *rivals)
        common = [
            target
            for target in runs.targets
            if all(runs.to_target(a, part, target=target) is not None for a in labels for part in partitions)
        ]
        if not common:
            return Found(None, None, "they reach no target on all partitions")
        goal, told, pairs = max(common), [], []
        for rival in rivals:
            both = [[runs.to_target(a, part, target=goal) or 0 for a in (ours, rival)] for part in partitions]
            shares = [own / theirs for own, theirs in both]
            told.append(f"of {rival} " + ", ".join(f"{100 * share:.1f} %" for share in shares))
            pairs += [a > b for a, b in pairwise(shares)]
        words = f"to {100 * goal:g} % on {', '.join(partitions)}: {'; '.join(told)}"
        return Found(all(pairs), 100 * pairs.count(True) / len(pairs), words)

    return rule


def highest(label: str, partitions: tuple[str, ...], rivals: tuple[str, ...]) -> Rule:
    """Return a rule: the best accuracy is above that of every rival. Our number is the lead in points."""

    def rule(runs: Runs) -> Found:
        own = runs.mean(label, "best_accuracy")
        others = {
            f"{each} on {part}": value
            for each in rivals
            for part in partitions
            if (value := runs.mean(each, "best_accuracy", part)) is not None
        }
        if own is None or not others:
            return Found(None, None, f"needs runs of {label} and of others")
        best = max(others, key=lambda each: others[each])
        lead = 100 * (own - others[best])
        return Found(lead > 0, lead, f"{label} {100 * own:.1f} %, {best} {100 * others[best]:.1f} %")

    return rule


def to_both_best(ours: str, theirs: str, partition: str, percent: float = 0.0) -> Rule:
    """Return a rule: more than so many percent fewer communications to the highest accuracy that both reach.

    Every run of both does. Communications at each one's own best would only tell how long the runs were.
    """

    def rule(runs: Runs) -> Found:
        bests = [cell["best_accuracy"] for label in (ours, theirs) for cell in runs.of(label, partition)]
        found = fewer(ours, theirs, partition, target=min(bests, default=None))(runs)
        return found if found.ours is None else replace(found, holds=found.ours < -percent)

    return rule


def slightly_below(ours: str, theirs: str, partition: str, points: float) -> Rule:
    """Return a rule: at equal client work the accuracy is below another's, by at most some points.

    Our number is the difference in points.
    """

    def rule(runs: Runs) -> Found:
        found = near(ours, theirs, partition, points)(runs)
        return found if found.ours is None else replace(found, holds=-points <= found.ours < 0)

    return rule


def best_near(ours: str, theirs: str, partition: str, slack: float = 0.0) -> Rule:
    """Return a rule: the best accuracy is above another's, or at most some points below it."""

    def rule(runs: Runs) -> Found:
        a, b = (runs.mean(label, "best_accuracy", partition) for label in (ours, theirs))
        if a is None or b is None:
            return Found(None, None, f"needs runs of {ours} and {theirs}")
        gap = 100 * (a - b)
        return Found(gap > -slack, gap, f"{ours} {100 * a:.1f} %, {theirs} {100 * b:.1f} %")

    return rule
