"""Claims about HiFL's parameters: staleness thresholds, and the mixing weights alpha and upsilon."""

from __future__ import annotations

from itertools import pairwise

from hiflash.study.paper.claims import Claim, Found
from hiflash.study.paper.pair_rules import Rule, count_words, fewer, ordered, steadier
from hiflash.study.paper.runs import Runs, all_of

__all__ = ["CHOSEN", "mixing_claims", "point_label", "threshold_claims"]

TAUS = ("tau-0", "tau-2", "tau-8", "tau-inf")
DROPPED = "tau-2-discard"
CHOSEN, WITHIN = "0.7/0.99", 1000


def point_label(point: dict[str, float]) -> str:
    """Return the label of a point of the grid: alpha/upsilon.

    >>> point_label({"cloud.alpha": 0.7, "cloud.penalty": 0.99})
    '0.7/0.99'
    """
    return f"{point['cloud.alpha']:g}/{point['cloud.penalty']:g}"


def threshold_claims() -> list[Claim[Runs]]:
    """Return the claims about fixed thresholds, also with tau = 2 if models that come late are dropped."""
    stale = "without a threshold edges are as stale as the others are busy; that costs less than in the paper"
    dropped, thrown = (
        "late models are dropped",
        "the work of a model that is dropped is lost, and it is paid for",
    )
    alone = f"{dropped}, tau 2 and none"
    return [
        Claim("tau2_below_inf", "tau <= 2 needs less than 1/5 of the client work of tau = inf to 90 %",
              _share("tau-2", "tau-inf", 0.2), 9.8e4 / 5.3e5, "ratio", stale),
        Claim("tau2_below_inf_dropped", "the same if models that come late are dropped",
              _share(DROPPED, "tau-inf", 0.2), 9.8e4 / 5.3e5, "ratio", thrown,
              "tau2_below_inf", dropped),
        Claim("tau2_steps", "tau <= 2 reaches 90 % within 98,000 client updates",
              _within("tau-2", 9.8e4), 9.8e4, "client steps"),
        Claim("tau2_steps_dropped", "the same if models that come late are dropped",
              _within(DROPPED, 9.8e4), 9.8e4, "client steps", "", "tau2_steps", dropped),
        Claim("inf_steps", "tau = inf takes 530,000 client updates (more than 98,000) to 90 %",
              _beyond("tau-inf", 9.8e4), 5.3e5, "client steps", stale),
        Claim("fluctuations_rise", "a larger tau causes larger fluctuations of accuracy",
              _rougher(TAUS), unit="% in order",
              why="ten edges are seldom staler than 8, so that threshold hardly binds"),
        Claim("inf_fluctuates", "accuracy fluctuates more without a threshold than with tau <= 2",
              steadier("tau-2", "tau-inf"), None, "times", "", "fluctuations_rise", "tau 2 and none"),
        Claim("computing_rises", "a smaller tau costs less computing",
              ordered(TAUS, "compute_cost"), unit="% in order"),
        Claim("computing_rises_dropped", "tau 2 costs less computing than none if late models are dropped",
              fewer(DROPPED, "tau-inf", None, "compute_cost"), None, "percent", thrown,
              "computing_rises", alone),
        Claim("sending_rises", "a smaller tau costs less communication",
              ordered(TAUS, "communications"), unit="% in order"),
        Claim("sending_rises_dropped", "tau 2 costs less communication than none if late models are dropped",
              fewer(DROPPED, "tau-inf", None), None, "percent", thrown, "sending_rises", alone),
        Claim("time_falls", "a smaller tau prolongs training",
              ordered(TAUS, "virtual_s", rising=False), unit="% in order",
              why="a larger tau also needs more updates, and that eats what parallel edges save"),
        Claim("time_falls_dropped", "no threshold takes less time than tau 2 if late models are dropped",
              fewer("tau-inf", DROPPED, None, "virtual_s"), None, "percent", "", "time_falls", alone),
    ]  # fmt: skip


def mixing_claims() -> list[Claim[Runs]]:
    """Return the claims about the grid of alpha and upsilon."""
    within = "converges_within_1000"
    return [
        Claim(within, "HiFL converges (90 %) within 1,000 communications with different alpha and upsilon",
              _all_within(WITHIN), WITHIN, "communications",
              "a small alpha with a strong penalty takes too little of an edge model"),
        Claim("chosen_converges_within_1000", "the same with alpha 0.7 and upsilon 0.99",
              _within(CHOSEN, WITHIN, "communications"), WITHIN, "communications", "",
              within, "alpha 0.7, upsilon 0.99"),
        Claim("alpha_in_the_middle",
              "alpha 0.7 and 0.9 need fewer communications than 0.5, 0.95 and 1 (at upsilon 0.99)",
              _all_before(("0.7/0.99", "0.9/0.99"), ("0.5/0.99", "0.95/0.99", "1/0.99")), None, "percent"),
        Claim("upsilon_in_the_middle", "upsilon 0.99 needs fewer communications than 0.9 and 1",
              _all_before((CHOSEN,), ("0.7/0.9", "0.7/1")), None, "percent"),
        Claim("chosen_is_best", "alpha 0.7, upsilon 0.99 does best (within 1 point of the best at the end)",
              _near_best(CHOSEN, 1.0), unit="points",
              why="all points of the grid end within a point of each other"),
        Claim("high_alpha_fluctuates", "alpha 0.9 fluctuates more than 0.7",
              steadier(CHOSEN, "0.9/0.99"), unit="times"),
    ]  # fmt: skip


def _share(ours: str, theirs: str, limit: float) -> Rule:
    """Return a rule: one label needs less than a share of another's client steps to the target.

    One that did not reach it needs more than it spent. Our number is the share.
    """

    def rule(runs: Runs) -> Found:
        a, b = (runs.to_target(label, None, "client_steps") for label in (ours, theirs))
        told = f"client steps: {ours} {count_words(a)}, {theirs} {count_words(b)}"
        if a is not None and b is not None:
            return Found(a / b < limit, a / b, told)
        if a is not None:  # at most this share
            spent = runs.at_least(theirs, None, "client_steps")
            return Found(True if spent and a / spent < limit else None, None, told)
        if b is not None:  # at least this share
            return Found(
                False if runs.at_least(ours, None, "client_steps") / b >= limit else None, None, told
            )
        return Found(None, None, told)

    return rule


def _within(label: str, limit: float, measure: str = "client_steps") -> Rule:
    def rule(runs: Runs) -> Found:
        needs, spent = runs.to_target(label, None, measure), runs.mean(label, measure)
        if needs is not None:
            return Found(needs <= limit, needs, f"{label} {needs:,.0f}")
        enough = spent is not None and spent >= limit
        return Found(False if enough else None, None, f"{label} not within {spent or 0:,.0f}")

    return rule


def _beyond(label: str, limit: float) -> Rule:
    def rule(runs: Runs) -> Found:
        found = _within(label, limit)(runs)
        return Found(None if found.holds is None else not found.holds, found.ours, found.words)

    return rule


def _all_within(limit: float) -> Rule:
    """Return a rule: all labels reach the target within some communications. Ours is the most of one."""

    def rule(runs: Runs) -> Found:
        labels = list(dict.fromkeys(str(cell["label"]) for cell in runs.cells))
        found = {label: _within(label, limit, "communications")(runs) for label in labels}
        known = [each.ours for each in found.values() if each.ours is not None]
        late = [label for label, each in found.items() if not each.holds]
        told = f"{len(labels) - len(late)} of {len(labels)} points" + (", not " if late else "")
        most = max(known) if len(known) == len(labels) else None
        return Found(all_of([each.holds for each in found.values()]), most, told + ", ".join(late))

    return rule


def _all_before(early: tuple[str, ...], late: tuple[str, ...]) -> Rule:
    """Return a rule: every early label needs fewer communications than every late one.

    Our number is the change from the least of the late ones to the most of the early ones, in percent.
    """

    def rule(runs: Runs) -> Found:
        needs = {label: runs.to_target(label) for label in (*early, *late)}
        told = ", ".join(f"{label} {count_words(value)}" for label, value in needs.items())
        a, b = ([each for label in labels if (each := needs[label]) is not None] for labels in (early, late))
        change = 100 * (max(a) / min(b) - 1) if a and b else None
        return Found(all_of([runs.less(x, y) for x in early for y in late]), change, told)

    return rule


def _rougher(labels: tuple[str, ...]) -> Rule:
    """Return a rule: accuracy fluctuates more from each label to the next."""

    def rule(runs: Runs) -> Found:
        known = [(label, runs.fluctuation(label)) for label in labels]
        falls = [100 * value for _, value in known if value is not None]
        if len(falls) < len(labels):
            return Found(None, None, f"needs runs of {', '.join(labels)}")
        right = [a < b for a, b in pairwise(falls)]
        each = ", ".join(f"{label} {fall:.2f}" for label, fall in zip(labels, falls, strict=True))
        told = f"mean fall between evaluations, points: {each}"
        return Found(all(right), 100 * right.count(True) / len(right), told)

    return rule


def _near_best(label: str, points: float) -> Rule:
    def rule(runs: Runs) -> Found:
        ends = {each: runs.accuracy(each) for each in dict.fromkeys(str(c["label"]) for c in runs.cells)}
        known = {each: value for each, value in ends.items() if value is not None}
        if label not in known:
            return Found(None, None, f"needs runs of {label}")
        best = max(known, key=lambda each: known[each])
        gap, spread = (100 * (known[label] - known[best]), 100 * (known[best] - min(known.values())))
        told = f"{label} {100 * known[label]:.1f} %, best {best} {100 * known[best]:.1f} %"
        if spread <= points:
            return Found(None, gap, f"{told}; all are within {spread:.1f} points")
        return Found(gap >= -points, gap, told)

    return rule
