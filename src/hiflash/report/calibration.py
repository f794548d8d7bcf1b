"""Errors of a surrogate against real runs: rows, rank correlations and tables."""

from collections.abc import Mapping, Sequence
from statistics import fmean, geometric_mean, stdev
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text
from scipy.stats import spearmanr

from hiflash.control.surrogate.rehearsal import Rehearsal
from hiflash.report.grid import Grid
from hiflash.report.measures import MEASURES
from hiflash.report.outcome import validated
from hiflash.report.summary import Result, at_target
from hiflash.report.units import goal, spread
from hiflash.sim.result import Result as Real

__all__ = ["JUDGED", "calibration_report", "calibration_tables", "taken"]

MEASURED = ("communications", "virtual_s", "total_cost")
JUDGED = ("communications", "virtual_s")  # not the cost: it is made of both
RANKED = ("communications", "total_cost")
TOLERANCE = 0.15


def calibration_report(
    policies: Sequence[str], results: Sequence[Real], rehearsals: Sequence[Sequence[Rehearsal]]
) -> dict[str, Any]:
    """Return a row per policy, the rank correlations, and the largest difference in an edge's share.

    A run that misses the target, real or surrogate, counts with its totals at the end. Seeds learn at
    different speeds under any policy, so an error that all policies share (`common_error`, in
    communications) says more about the seeds than about the surrogate. `largest_error_beside` is the
    largest error once the shared one is divided out.
    """
    rows = []
    for policy in dict.fromkeys(policies):
        places = [place for place, name in enumerate(policies) if name == policy]
        rows.append(
            _row(policy, [results[place] for place in places], [rehearsals[place] for place in places])
        )
    ratios = [1 + row["communications"]["error"] for row in rows]
    common = geometric_mean(ratios)
    return {
        "target": results[0].stop_target,
        "tolerance": TOLERANCE,
        "within": all(row[name]["within"] for row in rows for name in JUDGED),
        "common_error": common - 1,
        "largest_error_beside": max(abs(ratio / common - 1) for ratio in ratios),
        "policies": rows,
        "rank_correlation": {name: _rank_correlation(rows, name) for name in RANKED},
        "largest_share_difference": max(row["largest_share_difference"] for row in rows),
    }


def taken(result: Result) -> Mapping[str, Any]:
    """Return the measures of a real run at the target, or at its end if it missed the target."""
    return _reached(result) or result


def _reached(result: Result) -> Mapping[str, Any] | None:
    """Return the measures at the target on the set that ended the run, which the surrogate stands for."""
    return at_target(result, result["stop_target"], watched=validated([result]))


def calibration_tables(report: Mapping[str, Any], width: int) -> list[Table]:
    """Return tables of the errors of every policy, no wider than the width."""
    rows = report["policies"]
    columns: list[tuple[str, list[Text]]] = []
    for name in MEASURED:
        head, unit = MEASURES[name].head, MEASURES[name].unit
        cells = [row[name] for row in rows]
        # Every head is complete: a narrow terminal has these columns in different tables.
        columns.append((f"{head}\nreal", [Text(spread(c["real"], c["real_std"], unit)) for c in cells]))
        columns.append((f"{head}\nsurrogate", [Text(spread(c["surrogate"], None, unit)) for c in cells]))
        columns.append((f"{head}\noff by", [_error(c, judged=name in JUDGED) for c in cells]))
    for side in ("real", "surrogate"):
        columns.append((f"reached\n{side}", [Text(f"{row[f'reached_{side}']:.0%}") for row in rows]))
    columns.append(("share\noff by", [Text(f"{100 * row['largest_share_difference']:.1f}") for row in rows]))
    ranks = ", ".join(
        f"{MEASURES[name].words} {'-' if value is None else f'{value:.2f}'}"
        for name, value in report["rank_correlation"].items()
    )
    missed = sum(not row[name]["within"] for row in rows for name in JUDGED)
    caption = (
        f"rank correlation: {ranks}\n"
        f"all policies together: {report['common_error']:+.0%} communications; "
        f"beside that at most {report['largest_error_beside']:.0%}\n"
        f"an edge's share of updates: at most {100 * report['largest_share_difference']:.1f} points\n"
        f"! beyond {report['tolerance']:.0%} and a standard deviation: {missed} of {len(JUDGED) * len(rows)}"
    )
    seeds = f", mean of {rows[0]['seeds']} seeds" if rows[0]["seeds"] > 1 else ""
    title = f"surrogate and real runs: to {goal(report['target'])} accuracy{seeds}"
    return Grid(title, "policy", [Text(row["policy"]) for row in rows], columns, caption).tables(width)


def _row(policy: str, results: Sequence[Real], rehearsals: Sequence[Sequence[Rehearsal]]) -> dict[str, Any]:
    real = [result.to_dict() for result in results]
    shares = [
        _share_row(number["seed"], number["applied_per_edge"], runs)
        for number, runs in zip(real, rehearsals, strict=True)
    ]
    return {
        "policy": policy,
        "seeds": len(real),
        "reached_real": fmean(_reached(number) is not None for number in real),
        "reached_surrogate": fmean(run.reached for runs in rehearsals for run in runs),
        **{
            name: _compared(
                [taken(number)[name] for number in real],
                [fmean(getattr(run, name) for run in runs) for runs in rehearsals],
            )
            for name in MEASURED
        },
        "largest_share_difference": max(row["largest_difference"] for row in shares),
        "shares": shares,
    }


def _compared(real: Sequence[float], surrogate: Sequence[float]) -> dict[str, Any]:
    """Return means over the seeds, and whether they differ by less than the tolerance or the deviation."""
    mean, expected = fmean(real), fmean(surrogate)
    deviation = stdev(real) if len(real) > 1 else None
    return {
        "real": mean,
        "real_std": deviation,
        "surrogate": expected,
        "surrogate_std": stdev(surrogate) if len(surrogate) > 1 else None,
        "error": expected / mean - 1,
        "within": bool(abs(expected - mean) <= max(TOLERANCE * mean, deviation or 0.0)),
    }


def _share_row(seed: int, applied: Sequence[int], runs: Sequence[Rehearsal]) -> dict[str, Any]:
    """Return every edge's share of the applied updates in one federation."""
    real = _shares(applied)
    surrogate = np.mean([_shares(run.applied_per_edge) for run in runs], axis=0)
    return {
        "seed": seed,
        "real": [round(share, 4) for share in real.tolist()],
        "surrogate": [round(share, 4) for share in surrogate.tolist()],
        "largest_difference": float(np.abs(real - surrogate).max()),
    }


def _shares(applied: Sequence[int]) -> Any:
    return np.array(applied) / max(sum(applied), 1)


def _rank_correlation(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Return Spearman's rho of the policies' means, or None if all means of a side are equal."""
    real, surrogate = ([row[name][side] for row in rows] for side in ("real", "surrogate"))
    if np.ptp(real) == 0 or np.ptp(surrogate) == 0:
        return None
    return float(spearmanr(real, surrogate).statistic)


def _error(compared: Mapping[str, Any], *, judged: bool) -> Text:
    missed = judged and not compared["within"]
    return Text(f"{compared['error']:+.0%}{'!' if missed else ''}", style="bold red" if missed else "")
