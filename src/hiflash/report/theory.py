"""A check of the convergence analysis as tables: constants, settings with their bounds, and verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from rich.table import Table

from hiflash.report.grid import new_table

if TYPE_CHECKING:
    from hiflash.study.theory.study import TheoryStudy

__all__ = ["calculation_table", "theory_tables"]

_SYMBOLS = ("beta", "mu", "rho", "delta_max", "Delta", "V")
_VERDICTS = {True: "yes", False: "no", None: "-"}


def theory_tables(study: TheoryStudy) -> list[Table]:
    """Return the tables of a study: constants, settings and claims."""
    return [_constants(study), _settings(study), _claims(study)]


def calculation_table(numbers: Mapping[str, Any]) -> Table:
    """Return the results of the calculator: g, and the terms of each bound."""
    table = new_table("Bounds from given constants")
    names = [name for name in numbers if name != "g"]
    _columns(table, "", *names)
    for term in ("C1", "C2", "C3", "A1", "A2", "A3", "B", "edge_part", "client_part", "U"):
        if any(term in numbers[name] for name in names):
            table.add_row(term, *(_number(numbers[name].get(term)) for name in names))
    table.add_row("informative", *(_VERDICTS[numbers[name]["informative"]] for name in names))
    table.caption = "g(0), g(1), ..., g(c): " + ", ".join(_number(value) for value in numbers["g"])
    return table


def _constants(study: TheoryStudy) -> Table:
    task = study.task
    table = new_table(
        f"{study.title}: logistic regression, {task['clients']} clients, {task['edges']} edges",
        f"eta = {task['eta']:.4g}, c = {task['c']}, H = {task['H_min']} to {task['H_max']}, F(w0) = "
        f"{task['loss_start']:.4f}, F* = {task['loss_best']:.4f}\n"
        "visited: smallest that hold at the models of all runs; certified: for any run",
    )
    _columns(table, "constants", *_SYMBOLS)
    for federation in study.federations:
        for kind in ("visited", "certified"):
            values = getattr(federation, kind)
            cells = (_number(getattr(values, symbol)) for symbol in _SYMBOLS)
            table.add_row(f"{federation.association}, {kind}", *cells)
    return table


def _settings(study: TheoryStudy) -> Table:
    table = new_table(
        f"after {study.task['updates']} updates; the first gap is {float(study.settings[0].gap[0]):.4g}",
        "stale: mean staleness. drift: largest |w^m - v^m| / g(x). gap: mean of the last quarter.\n"
        "bounds: Theorem 1, Theorem 2 (lowest over mu~), and without V (docs/theory.md)",
    )
    _columns(table, "association", "tau", "stale", "drift", "gap", "Theorem 1", "Theorem 2", "without V")
    previous = study.settings[0].association
    for setting in study.settings:
        if setting.association != previous:
            table.add_section()
            previous = setting.association
        numbers = (
            setting.staleness_mean,
            setting.lemma2.used,
            setting.gap_end,
            *(bound.after(setting.updates) for bound in setting.bounds().values()),
        )
        table.add_row(setting.association, str(setting.tau), *map(_number, numbers))
    return table


def _claims(study: TheoryStudy) -> Table:
    table = new_table("does it hold?")
    for head in ("source", "claim", "holds"):
        table.add_column(head, no_wrap=head != "claim")
    for claim in study.claims:
        table.add_row(claim.source, claim.says, _VERDICTS[claim.holds])
    return table


def _columns(table: Table, first: str, *others: str) -> None:
    for head in (first, *others):
        side: Literal["left", "right"] = "left" if head == first else "right"
        table.add_column(head, justify=side, no_wrap=True, vertical="bottom")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
