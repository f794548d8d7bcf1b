"""Evaluates a learned threshold policy against random and fixed thresholds and simple rules.

May import what study may import.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hiflash.errors import RunError
from hiflash.sim.result import Result
from hiflash.study.cells import Cell
from hiflash.study.policies.edges import measure_edges
from hiflash.study.policies.plan import AGENT, Plan, plan
from hiflash.study.policies.summary import judge, table

__all__ = ["Evaluation", "Plan", "plan"]


@dataclass(frozen=True)
class Evaluation:
    """The finished runs of an evaluation, the measures of their edges, and the files with both."""

    plan: Plan
    cells: list[Cell]
    results: list[Result]
    edges: list[dict[str, Any]]
    files: list[Path] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        plan: Plan,
        cells: Sequence[Cell],
        results: Sequence[Result],
        progress: Callable[[int], None] | None = None,
    ) -> Evaluation:
        """Return the evaluation of finished cells; measures their edges."""
        return cls(plan, list(cells), list(results), measure_edges(cells, results, progress))

    def rows(self) -> list[dict[str, Any]]:
        """Return a row per cell: tags, measures, and the shares of its edges from fast to slow."""
        return [_row(*each) for each in zip(self.cells, self.results, self.edges, strict=True)]

    def to_json(self) -> dict[str, Any]:
        """Return tables by policy and dynamics, comparisons and verdicts; the first condition is on top."""
        rows = self.rows()
        reported = [row for row in rows if row["seed"] in self.plan.seeds]
        choice = [row for row in rows if row["seed"] in self.plan.choice_seeds]
        names = list(dict.fromkeys(cell.tags["condition"] for cell in self.plan.cells))
        tables = {name: table(_of(reported, condition=name)) for name in names}
        comparisons = {
            name: {
                kind: judge(
                    _of(reported, condition=name, dynamics=kind), _of(choice, condition=name, dynamics=kind)
                )
                for kind in dict.fromkeys(row["dynamics"] for row in _of(reported, condition=name))
            }
            for name in names
        }
        config = self.plan.cells[0].config
        return {
            **tables[names[0]],
            "main": names[0],
            "conditions": {name: tables[name] for name in names[1:]},
            "comparisons": comparisons,
            "seeds": self.plan.seeds,
            "choice_seeds": self.plan.choice_seeds,
            "agents": self._agents(),
            "data": config.data.name,
            "partition": config.data.partition,
            "target": config.stop.target,
            "missing": len(self.plan.cells) - len(self.cells),
        }

    def _agents(self) -> dict[str, dict[str, str]]:
        """Return the name and digest of the agent of every condition; a second agent is an error."""
        agents: dict[str, dict[str, str]] = {}
        for cell, result in zip(self.cells, self.results, strict=True):
            if cell.tags["policy"] != AGENT:
                continue
            acted = {"agent": cell.config.cloud.agent, "digest": result.agent or "unknown"}
            if agents.setdefault(cell.tags["condition"], acted) != acted:
                raise RunError(
                    f"{cell.name} used another agent ({acted['digest'][:12]}) than the other seeds; "
                    "remove it and run it again"
                )
        return agents

    def save(self, directory: Path) -> list[Path]:
        """Write rows, tables and figures, and return the paths."""
        from hiflash.report.evaluation import markdown
        from hiflash.report.evaluation_figures import draw_evaluation
        from hiflash.report.rows import write_csv, write_json
        from hiflash.store.files import write_atomic

        told = self.to_json()
        flat = [
            {name: value for name, value in row.items() if not isinstance(value, list)} for row in self.rows()
        ]
        write_atomic(directory / "table.md", markdown(told))
        return [
            write_csv(flat, directory / "cells.csv"),
            write_json(told, directory / "evaluation.json"),
            directory / "table.md",
            *draw_evaluation(told, directory),
        ]


def _of(rows: Sequence[dict[str, Any]], **tags: str) -> list[dict[str, Any]]:
    return [row for row in rows if all(row[name] == value for name, value in tags.items())]


def _row(cell: Cell, result: Result, edges: dict[str, Any]) -> dict[str, Any]:
    weights = cell.config.cost
    order = np.argsort(edges["duration_s"], kind="stable")  # the fastest edge first
    granted, refused, waited = (np.array(edges[name]) for name in ("granted", "refused", "waited"))
    asked = np.maximum(granted + refused + waited, 1)
    applied = np.array(result.applied_per_edge)
    compute = weights.compute_weight * result.compute_cost
    send = weights.send_weight * result.send_cost
    ended = result.validation["targets"] if result.validation else result.targets  # the set that ends runs
    return {
        **cell.tags,
        "seed": result.seed,
        "reached": ended.get(str(result.stop_target)) is not None,
        "total_cost": result.total_cost,
        "compute_cost": compute,
        "send_cost": send,
        "time_cost": result.total_cost - compute - send,
        "communications": result.communications,
        "virtual_s": result.virtual_s,
        "client_steps": result.client_steps,
        "accuracy": result.accuracy,
        "worst_edge_accuracy": min(edges["edge_accuracy"]),
        "applied_share": (applied[order] / max(applied.sum(), 1)).tolist(),
        "refused_rate": (refused / asked)[order].tolist(),
        "waited_rate": (waited / asked)[order].tolist(),
    }
