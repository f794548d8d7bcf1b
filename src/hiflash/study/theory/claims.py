"""The claims of the analysis and their verdicts. Each rule is a function of the settings, and fixed here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby, pairwise
from typing import Any

from hiflash.study.theory.settings import Setting

__all__ = ["Claim", "judge"]

Settings = Sequence[Setting]


@dataclass(frozen=True)
class Claim:
    """A claim, its source (the paper, or here), its verdict, and the number behind it in words.

    `holds` is None if the settings cannot tell: one tau, or one association.
    """

    name: str
    source: str
    says: str
    holds: bool | None
    found: str

    def to_dict(self) -> dict[str, Any]:
        """Return the claim for JSON."""
        return asdict(self)


def judge(settings: Settings) -> list[Claim]:
    """Return all claims with their verdicts."""
    return [Claim(name, source, says, *rule(settings)) for name, source, says, rule in RULES]


Verdict = tuple[bool | None, str]
Rule = Callable[[Settings], Verdict]


def _lemma(name: str) -> Rule:
    def rule(settings: Settings) -> Verdict:
        checked = [getattr(setting, name) for setting in settings]
        rounds = sum(setting.edge_rounds for setting in settings)
        used = max(each.used for each in checked)
        return all(each.holds for each in checked), f"at most {used:.3g} times the bound in {rounds:,} rounds"

    return rule


def _bound(name: str) -> Rule:
    def rule(settings: Settings) -> Verdict:
        checked = [setting.bound_holds(setting.bounds()[name]) for setting in settings]
        used = max(each.used for each in checked)
        return all(each.holds for each in checked), f"the gap is at most {used:.3g} times the bound"

    return rule


def _informative(name: str) -> Rule:
    """Hold if the bound falls below the initial gap in every setting: C2 > C3."""

    def rule(settings: Settings) -> Verdict:
        bounds = [setting.bounds()[name] for setting in settings]
        ratios = [bound.C3 / bound.C2 for bound in bounds]
        low, high, below = min(ratios), max(ratios), sum(bound.informative for bound in bounds)
        found = f"C3 / C2 is {_span(low, high)}; below 1 in {below} of {len(bounds)} settings"
        return below == len(bounds), found

    return rule


def _faster_rate(settings: Settings) -> Verdict:
    pairs = _neighbours(settings)
    if not pairs:
        return None, "needs several tau"
    first, last = settings[0].theorem1.C1, max(setting.theorem1.C1 for setting in settings)
    return all(a.theorem1.C1 < b.theorem1.C1 for a, b in pairs), f"C1 is {first:.6f} to {last:.6f}"


def _rises_with_tau(name: str) -> Rule:
    """Hold if the bound after T updates never falls and somewhere rises from a tau to the next larger one."""

    def rule(settings: Settings) -> Verdict:
        pairs = _neighbours(settings)
        if not pairs:
            return None, "needs several tau"
        changes = [_at_end(b, name) - _at_end(a, name) for a, b in pairs]
        fell, rose = sum(change < 0 for change in changes), sum(change > 0 for change in changes)
        return fell == 0 and rose > 0, f"{rose} steps up, {fell} down, of {len(changes)}"

    return rule


def _gap_rises(settings: Settings) -> Verdict:
    if not _neighbours(settings):
        return None, "needs several tau"
    told, holds = [], True
    for association, group in _by_association(settings).items():
        first, last = group[0], group[-1]
        holds &= last.gap_end > first.gap_end
        told.append(
            f"{association}: {first.gap_end:.4f} (tau {first.tau}) to {last.gap_end:.4f} (tau {last.tau})"
        )
    return holds, "; ".join(told)


def _edge_iid_is_better(settings: Settings) -> Verdict:
    groups = _by_association(settings)
    if not {"edge-iid", "edge-noniid"} <= set(groups):
        return None, "needs edge-iid and edge-noniid"
    pairs = list(zip(groups["edge-iid"], groups["edge-noniid"], strict=True))
    better = sum(one.gap_end < other.gap_end for one, other in pairs)
    return better == len(pairs), f"a smaller gap at {better} of {len(pairs)} tau"


def _edge_iid_is_closer(settings: Settings) -> Verdict:
    groups = _by_association(settings)
    if not {"edge-iid", "edge-noniid"} <= set(groups):
        return None, "needs edge-iid and edge-noniid"
    one, other = (groups[name][0].theorem1.C3 for name in ("edge-iid", "edge-noniid"))
    return one < other, f"C3 is {one:,.4g} with edge-iid and {other:,.4g} with edge-noniid"


def _span(low: float, high: float) -> str:
    """Return a range in words, one number if its ends read the same.

    >>> _span(151.8, 152.1), _span(4868, 4881.6), _span(0.4, 0.5)
    ('152', '4,868 to 4,882', '0.4 to 0.5')
    """
    first, last = (f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in (low, high))
    return first if first == last else f"{first} to {last}"


RULES: tuple[tuple[str, str, str, Rule], ...] = (
    ("lemma2", "Lemma 2", "every edge model is within g(x) of its virtual cluster model", _lemma("lemma2")),
    ("lemma2_loss", "Lemma 2", "F^m(w^m) - F^m(v^m) <= rho g(c) after every round", _lemma("lemma2_loss")),
    ("theorem1", "Theorem 1", "the gap is within the bound after every update", _bound("theorem1")),
    ("theorem1_informative", "Theorem 1", "the bound falls below the initial gap", _informative("theorem1")),
    ("theorem2", "Theorem 2", "the gap is within the lowest bound of any mu~", _bound("theorem2")),
    ("theorem2_informative", "Theorem 2", "the bound falls below the initial gap", _informative("theorem2")),
    ("remark1", "Remark 1", "kappa falls faster with a smaller tau", _faster_rate),
    ("remark2", "Remark 2", "edge-IID has a smaller limit of the bound, C3", _edge_iid_is_closer),
    ("remark3_premise", "Remark 3", "C2 > C3", _informative("theorem1")),
    ("remark3", "Remark 3", "a larger tau has a larger bound after T updates", _rises_with_tau("theorem1")),
    ("gap_rises_with_tau", "measured", "the largest tau has a larger gap than the least", _gap_rises),
    ("edge_iid_is_better", "measured", "edge-IID has a smaller gap than edge-NonIID", _edge_iid_is_better),
    ("lemma2_own", "here", "Lemma 2 with the delta of the round itself", _lemma("lemma2_own")),
    ("lemma2_convex", "here", "the same without exponential growth", _lemma("lemma2_convex")),
    ("delayed", "here", "the gap is within the bound without V", _bound("delayed")),
    ("delayed_informative", "here", "that bound falls below the initial gap", _informative("delayed")),
    ("delayed_rises_with_tau", "here", "that bound is larger with a larger tau", _rises_with_tau("delayed")),
)  # fmt: skip
"""Name, source, claim and rule; written before the runs that docs/theory.md reports."""


def _at_end(setting: Setting, name: str) -> float:
    return setting.bounds()[name].after(setting.updates)


def _by_association(settings: Settings) -> dict[str, list[Setting]]:
    return {name: list(group) for name, group in groupby(settings, lambda setting: setting.association)}


def _neighbours(settings: Settings) -> list[tuple[Setting, Setting]]:
    """Return pairs of settings of one association with neighbouring tau, the smaller first."""
    return [pair for group in _by_association(settings).values() for pair in pairwise(group)]
