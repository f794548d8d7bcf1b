"""Warnings of runs under tables, from made-up results."""

import io
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from hiflash.report.alerts import compare_alerts, sweep_alerts
from hiflash.report.tables import run_table

MakeResult = Callable[..., dict[str, Any]]

CHANCE = "did not learn: accuracy 10.0 % after 600 communications, at chance"
REFUSED = "8,072 updates refused: not finite"


def test_a_comparison_names_the_run_of_every_warning(make_result: MakeResult) -> None:
    results = [
        make_result("hifl", 0, label="hifl+delta", warnings=[CHANCE, REFUSED]),
        make_result("hifl", 1, label="hifl+delta", warnings=[CHANCE]),
        make_result("hifl", 1, label="hifl+delta", partition="iid", warnings=[CHANCE]),
        make_result("centralized", 3, warnings=[CHANCE]),
        make_result("fedavg", warnings=[]),
        make_result("fedavg", warnings=None),
        make_result("fedavg"),
    ]
    assert [line.plain for line in compare_alerts(results)] == [
        f"warning: HiFL + delta, noniid2, seeds 0, 1: {CHANCE}",
        f"warning: HiFL + delta, noniid2, seed 0: {REFUSED}",
        f"warning: HiFL + delta, iid, seed 1: {CHANCE}",
        f"warning: Centralized, seed 3: {CHANCE}",
    ]


def test_a_sweep_names_the_point(make_result: MakeResult) -> None:
    point = {"cloud.alpha": 1, "edge.edge_rounds": [1, 2]}
    results = [make_result(point=point, warnings=[REFUSED]), make_result(point=point, seed=1)]
    assert [line.plain for line in sweep_alerts(results)] == [
        f"warning: alpha 1, edge_rounds [1, 2], seed 0: {REFUSED}"
    ]


def test_results_without_warnings_add_no_line(make_result: MakeResult) -> None:
    assert compare_alerts([make_result()]) == []
    assert sweep_alerts([make_result(point={"cloud.alpha": 1})]) == []


def test_a_long_list_is_cut(make_result: MakeResult) -> None:
    lines = compare_alerts([make_result(seed=seed, warnings=[f"bad {seed}"]) for seed in range(25)])
    assert len(lines) == 21
    assert lines[-1].plain == "warning: 5 more, see `warnings` in the JSON file"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_of_a_run_begins_with_its_warnings(make_result: MakeResult, width: int) -> None:
    console = Console(file=io.StringIO(), width=width)
    console.print(run_table(make_result(warnings=[CHANCE, "[bold] " + REFUSED])))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= width
    rows = [line for line in lines if line.strip().startswith("warning ")]
    assert len(rows) == 2
    assert "did not learn: accuracy 10.0 %" in rows[0]
    assert "[bold] 8,072 updates refused: not finite" in rows[1]
    assert lines.index(rows[1]) < next(i for i, line in enumerate(lines) if "accuracy   " in line)
