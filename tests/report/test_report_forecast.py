"""Forecasts as tables and figure."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console

from hiflash.report.forecast_figures import draw_against_measured
from hiflash.report.forecast_tables import forecast_remarks, forecast_tables, markdown_tables

ERROR = {"regime": "alike", "median": 0.06, "worst": 0.16, "rows": 24}


def row(label: str, comms: float, **more: Any) -> dict[str, Any]:
    costs = dict.fromkeys(("client_steps", "virtual_s", "wan_bytes", "total_cost"), 10.0)
    numbers = {"communications": comms, **costs}
    told = {"label": label, "data": "mnist", "partition": "noniid2", "target": 0.9, "metric": "accuracy",
            "metric_better": "higher", "metric_unit": "share", "seeds": 2, "reached": 2,
            "staleness": 1.5, "expected_error": ERROR, "over_budget": [], "notes": [], **numbers}  # fmt: skip
    return {**told, **{f"{name}_std": 1.0 for name in numbers}, **more}


def beside(label: str, measured: float | None, told: float, **more: Any) -> dict[str, Any]:
    both = {f"{side}_{name}": value for name in ("communications", "virtual_s")
            for side, value in (("measured", measured), ("forecast", told))}  # fmt: skip
    return {"group": "some runs", "part": "", "label": label, "seeds": 3, "reached": 3, **both, **more}


def test_a_table_has_the_means_and_the_expected_error() -> None:
    console = Console(width=120, record=True, file=StringIO())
    for table in forecast_tables([row("hifl", 800), row("fedavg", 2500, reached=1)], 120):
        console.print(table)
    text = console.export_text()
    assert "mnist, noniid2: forecast to 90% accuracy" in text
    assert " 800 " in text
    assert "> 2.5 k" in text  # not every seed got there
    assert "6% (16%)" in text


def test_remarks_tell_budgets_notes_and_what_is_left_out() -> None:
    told = {
        "constants": {name: {"rounds": 252.33, "origin": "given"} for name in ("noniid2/a", "noniid2/b")},
        "rows": [
            row("hifl", 800, over_budget=["client_steps"]),
            row("fedat", 9, notes=["some note"], reached=1),
            row("tifl", 9, notes=["some note"]),
        ],
        "left_out": {"fedadam": "why"},
    }
    assert forecast_remarks(told) == [
        "noniid2/a, noniid2/b: S = 252.3 rounds of FedAvg to the target (given)",
        "expected error: median 6%, largest 16%, over 24 results of few local steps",
        "HiFL: more than stop.client_steps allows; a run would end before its target",
        "FedAT, TiFL: some note",
        "FedAT: given up before the target in 1 of 2 seeds",
        "FedAdam is left out: why",
    ]


def test_markdown_has_errors_of_whole_rows_only() -> None:
    rows = [beside("hifl", 100, 90), beside("fedat", 100, 90, reached=2), beside("tifl", None, 90, reached=0)]
    told = {"some runs": {"rows": 1, "median": 0.1, "worst": 0.1, "bias": -0.1, "rank": 1.0}}
    text = markdown_tables(rows, told)
    assert "| some runs | 1 | 10.0% | 10.0% | -10.0% | 1.000 |" in text
    assert "| hifl | 100 | 90 | -10.0% | 100 | 90.0 | -10.0% |" in text
    assert "| fedat | 100 (2 of 3 seeds) | 90 | - |" in text
    assert "| tifl | - | 90 | - |" in text


def test_the_figure_is_drawn_with_rows_that_missed_the_target(tmp_path: Path) -> None:
    rows = [beside("hifl", 100, 90), beside("far", 100, 20), beside("tifl", None, 90, reached=0)]
    paths = draw_against_measured(rows, tmp_path / "figure")
    assert [path.name for path in paths] == ["figure.png", "figure.pdf"]
    assert all(path.stat().st_size > 1000 for path in paths)
