"""Means, intervals and paired differences over seeds, and verdicts on a learned policy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from hiflash.report.measures import EVALUATED
from hiflash.study.policies.plan import AGENT, is_fixed

__all__ = ["describe", "judge", "paired", "t_quantile", "table"]

PER_EDGE = ("applied_share", "refused_rate", "waited_rate")
CONFIDENCE = 0.95
BELOW_RANDOM = 25.0  # percent
WORST_EDGE = 0.03  # of accuracy
NOISE = 5.0  # percent: "no worse within noise" must rule out a larger loss

Row = Mapping[str, Any]
"""The numbers of one cell: tags, seed, measures, `reached`, and the shares of its edges."""


def t_quantile(freedom: int, confidence: float = CONFIDENCE) -> float:
    """Return the half-width of a two-sided interval in standard errors, by Student's t.

    >>> round(t_quantile(4), 3)
    2.776
    """
    from scipy.stats import t  # imported here: scipy loads slowly, and most commands do not need it

    return float(t.ppf((1 + confidence) / 2, freedom))


def describe(values: Sequence[float]) -> dict[str, Any]:
    """Return mean, sample deviation and interval of the mean; a single value has only a mean."""
    mean = fmean(values)
    if len(values) < 2:
        return {"mean": mean, "spread": None, "low": None, "high": None, "values": list(values)}
    spread = stdev(values)
    half = t_quantile(len(values) - 1) * spread / math.sqrt(len(values))
    return {
        "mean": mean,
        "spread": spread,
        "low": mean - half,
        "high": mean + half,
        "values": list(values),
    }


def table(rows: Sequence[Row]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the statistics by policy and dynamics."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["policy"], row["dynamics"]), []).append(row)
    told: dict[str, dict[str, dict[str, Any]]] = {}
    for (policy, dynamics), runs in groups.items():
        told.setdefault(policy, {})[dynamics] = {
            **{name: describe([run[name] for run in runs]) for name in EVALUATED},
            "seeds": [run["seed"] for run in runs],
            "runs": len(runs),
            "reached": sum(run["reached"] for run in runs),
            # By rank, because edge 3 of one seed is not edge 3 of another.
            "edges_fast_to_slow": {
                name: [fmean(rank) for rank in zip(*(run[name] for run in runs), strict=True)]
                for name in PER_EDGE
            },
        }
    return told


def paired(ours: Sequence[Row], theirs: Sequence[Row], measure: str) -> dict[str, Any]:
    """Return the difference ours - theirs over their common seeds, also in percent of theirs."""
    left, right = ({row["seed"]: row[measure] for row in rows} for rows in (ours, theirs))
    seeds = [seed for seed in left if seed in right]
    told = describe([left[seed] - right[seed] for seed in seeds])
    base = fmean(right[seed] for seed in seeds) / 100
    in_percent = {
        name: None if told[key] is None or not base else told[key] / base
        for name, key in (("percent", "mean"), ("percent_low", "low"), ("percent_high", "high"))
    }
    return {**told, **in_percent, "seeds": seeds}


def judge(rows: Sequence[Row], choice: Sequence[Row]) -> dict[str, Any]:
    """Return the best fixed threshold, differences and bars for one dynamics of one condition.

    `choice` are runs of fixed thresholds on seeds of their own. Without them, the best threshold is chosen on
    the reported seeds, in hindsight, which favours it.
    """
    by_policy = _by_policy(rows)
    hindsight = not choice
    fixed = _by_policy([row for row in (rows if hindsight else choice) if is_fixed(row["policy"])])
    told: dict[str, Any] = {"best_fixed": None, "hindsight": hindsight}
    seeds = set.intersection(*({row["seed"] for row in runs} for runs in fixed.values())) if fixed else set()
    if seeds:
        told |= _choose(fixed, seeds)
    ours, best = by_policy.get(AGENT, []), by_policy.get(told["best_fixed"] or "", [])
    bars = []
    if _share_seeds(ours, by_policy.get("random", [])):
        told["against_random"] = paired(ours, by_policy["random"], "total_cost")
        bars.append(_random_bar(told["against_random"], ours))
    if _share_seeds(ours, best):
        told["against_best_fixed"] = paired(ours, best, "total_cost")
        told["worst_edge"] = paired(ours, best, "worst_edge_accuracy")
        bars.append(_fixed_bar(told["against_best_fixed"], ours, told["best_fixed"]))
        bars.append(_edge_bar(told["worst_edge"], told["best_fixed"]))
    return {**told, "bars": bars}


def _by_policy(rows: Sequence[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["policy"], []).append(row)
    return groups


def _choose(fixed: Mapping[str, Sequence[Row]], seeds: set[int]) -> dict[str, Any]:
    """Return the cheapest threshold. Runs that miss the target understate its cost, so they rank last."""
    means, missed = {}, {}
    for policy, runs in fixed.items():
        counted = [run for run in runs if run["seed"] in seeds]
        means[policy] = fmean(run["total_cost"] for run in counted)
        missed[policy] = sum(not run["reached"] for run in counted)
    best = min(means, key=lambda policy: (missed[policy], means[policy]))
    return {"best_fixed": best, "chosen_on": sorted(seeds), "choice": means}


def _share_seeds(ours: Sequence[Row], theirs: Sequence[Row]) -> bool:
    return bool({row["seed"] for row in ours} & {row["seed"] for row in theirs})


def _random_bar(difference: Row, ours: Sequence[Row]) -> dict[str, Any]:
    enough = difference["percent"] <= -BELOW_RANDOM
    outcome = "missed"
    if enough:
        outcome = "met" if _known(difference) and difference["high"] < 0 else "not shown"
    said = f"{_cost(difference)} against random thresholds"
    return _bar(f"at least {BELOW_RANDOM:.0f} % below random thresholds", outcome, said, ours)


def _fixed_bar(difference: Row, ours: Sequence[Row], best: str) -> dict[str, Any]:
    said, known = f"{_cost(difference)} against {best}", _known(difference)
    if ours[0]["dynamics"] == "static":
        missed = (difference["low"] if known else difference["mean"]) > 0
        met = known and difference["percent_high"] < NOISE
        outcome = "missed" if missed else "met" if met else "not shown"
        return _bar("no worse than the best fixed threshold within noise", outcome, said, ours)
    met = known and difference["high"] < 0
    outcome = "met" if met else "not shown" if difference["mean"] < 0 else "missed"
    return _bar("better than the best fixed threshold", outcome, said, ours)


def _edge_bar(difference: Row, best: str) -> dict[str, Any]:
    outcome = "met" if difference["mean"] >= -WORST_EDGE else "missed"
    said = f"{100 * difference['mean']:+.1f} points"
    if difference["low"] is not None:
        said += f" [{100 * difference['low']:+.1f}, {100 * difference['high']:+.1f}]"
    said += f" against {best}"
    return _bar("worst edge within 3 points of the best fixed threshold", outcome, said, ())


def _bar(bar: str, outcome: str, said: str, ours: Sequence[Row]) -> dict[str, Any]:
    unreached = sum(not row["reached"] for row in ours)
    if unreached:  # these runs ended early, so their cost is too low
        outcome = "missed"
        said += f"; the agent did not reach the target in {unreached} of {len(ours)} runs"
    return {"bar": bar, "outcome": outcome, "said": said}


def _known(difference: Row) -> bool:
    """Return whether there is an interval; a single seed has none."""
    return difference["low"] is not None


def _cost(difference: Row) -> str:
    if difference["low"] is None:
        return f"cost {difference['percent']:+.1f} % (one seed, no interval)"
    interval = f"[{difference['percent_low']:+.1f}, {difference['percent_high']:+.1f}]"
    return f"cost {difference['percent']:+.1f} % {interval}, {len(difference['seeds'])} seeds,"
