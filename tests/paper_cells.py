"""Results of runs worked out by hand, for the rules of the paper's claims."""

from __future__ import annotations

from typing import Any

from hiflash.study.paper.claims import Claim, judge

__all__ = ["cell", "verdicts"]


def cell(
    label: str, curve: list[tuple[float, float]], partition: str = "noniid2", **more: Any
) -> dict[str, Any]:
    """Return a result with these (communications, accuracy): 10 client steps, 0.1 s and cost 2 in each."""
    rows = [
        {"communications": at, "client_steps": 10 * at, "virtual_s": at / 10, "total_cost": 2 * at,
         "compute_cost": at, "accuracy": accuracy}
        for at, accuracy in curve
    ]  # fmt: skip
    last = rows[-1]
    return {
        "label": label, "method": "hifl", "partition": partition, "seed": 0, "evaluations": rows,
        "communications": last["communications"], "client_steps": last["client_steps"],
        "accuracy": last["accuracy"], "best_accuracy": max(row["accuracy"] for row in rows), "total_js": 0.0,
        **more,
    }  # fmt: skip


def verdicts(claims: list[Claim[Any]], results: Any) -> dict[str, tuple[bool | None, float | None]]:
    return {each.name: (each.holds, each.ours) for each in judge(claims, results)}
