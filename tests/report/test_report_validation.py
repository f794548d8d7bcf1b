"""Tables, ranks and live states of runs with a validation set: it decides, the test set reports."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from rich.console import Console

from hiflash.report import sweep_figures
from hiflash.report.calibration import taken
from hiflash.report.compare_tables import compare_tables
from hiflash.report.rows import flat
from hiflash.report.run_state import RunState
from hiflash.report.summary import target_rows
from hiflash.report.sweep import sweep_rows, sweep_tables
from hiflash.report.tables import run_table

MakeResult = Callable[..., dict[str, Any]]


@pytest.fixture
def cells(make_result: MakeResult, with_validation: MakeResult) -> list[dict[str, Any]]:
    """Return two points: 0.5 is better on the test set, 0.7 on the validation set."""
    wild = make_result("hifl", accuracies=(0.3, 0.91, 0.93, 0.95), point={"cloud.alpha": 0.5})
    calm = make_result("hifl", accuracies=(0.2, 0.5, 0.8, 0.91), point={"cloud.alpha": 0.7})
    return [
        with_validation(wild, (0.2, 0.4, 0.6, 0.9)),  # 90 % after 40 communications
        with_validation(calm, (0.3, 0.6, 0.92, 0.94)),  # 90 % after 30
    ]


def text(table: Any) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("by", ["communications", "accuracy", "best_accuracy"])
def test_the_validation_set_ranks_the_points_of_a_sweep(cells: list[dict[str, Any]], by: str) -> None:
    rows = sweep_rows(cells, by)
    assert [row["point"]["cloud.alpha"] for row in rows] == [0.7, 0.5]
    assert rows[0]["validation_communications_mean"] == 30
    assert rows[0]["communications_mean"] == 40  # the test set is reported as before
    assert (rows[0]["validation_accuracy_mean"], rows[0]["accuracy_mean"]) == (0.94, 0.91)
    plain = [{**cell, "validation": {}} for cell in cells]
    assert [row["point"]["cloud.alpha"] for row in sweep_rows(plain, by)] == [0.5, 0.7]
    assert not [name for name in sweep_rows(plain, by)[0] if name.startswith("validation")]


def test_the_loss_of_the_validation_set_ranks_too(cells: list[dict[str, Any]]) -> None:
    cells[0]["validation"]["scores"]["loss"] = 0.3
    assert sweep_rows(cells, "loss")[0]["point"]["cloud.alpha"] == 0.5


def test_the_table_of_a_sweep_says_which_set_it_shows(cells: list[dict[str, Any]]) -> None:
    (table,) = sweep_tables(cells, "communications", 120)
    assert "to 90% accuracy, by communications on the validation set" in str(table.title)
    lines = [line.split() for line in text(table).splitlines()]
    # alpha, communications, best accuracy, reached, steps, time, bytes; the test accuracy comes last
    assert ["0.7", "30", "94.0%", "1/1", "9", "k", "75", "s", "3", "MB", "91.0%"] in lines


def test_the_figure_of_a_sweep_shows_the_set_that_ranks(
    cells: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(sweep_figures, "save", lambda figure, stem: drawn.append(figure) or [])
    sweep_figures.draw_sweep(cells, "communications", Path("x"))
    (figure,) = drawn
    assert "on the validation set" in figure.get_suptitle()
    means = figure.axes[0].lines[-1].get_ydata()
    assert list(means) == [40, 30]


def test_comparisons_report_the_test_set_and_say_what_stopped_the_runs(cells: list[dict[str, Any]]) -> None:
    named = [{**cell, "label": label} for cell, label in zip(cells, ("wild", "calm"), strict=True)]
    first = compare_tables(named, 120)[0]
    assert "runs stopped on the validation set" in str(first.caption)
    at_90 = {row["label"]: row for row in target_rows(named) if row["target"] == 0.9}
    assert [at_90[name]["communications_mean"] for name in ("wild", "calm")] == [20, 40]
    assert [at_90[name]["validation_communications_mean"] for name in ("wild", "calm")] == [40, 30]
    plain = compare_tables([{**cell, "validation": {}} for cell in named], 120)[0]
    assert plain.caption is None


def test_the_table_and_the_row_of_a_run_have_both(cells: list[dict[str, Any]]) -> None:
    assert "94.0% (best 94.0%, with 91.0% on the test set), 500 samples" in text(run_table(cells[1]))
    row = flat(cells[1])
    assert (row["accuracy"], row["validation_accuracy"], row["validation_test_at_best"]) == (0.91, 0.94, 0.91)


def test_a_watched_run_is_over_when_the_validation_set_is_there() -> None:
    latest = {"accuracy": 0.95, "target": 0.9, "validation": {"scores": {"accuracy": 0.8}}}
    run = RunState("x", "running", latest)
    assert (run.score, run.watched, run.reached) == (0.95, 0.8, False)
    done = RunState("x", "running", {**latest, "validation": {"scores": {"accuracy": 0.9}}})
    assert done.reached


def test_a_calibration_compares_where_the_runs_stopped(cells: list[dict[str, Any]]) -> None:
    assert taken(cells[1])["communications"] == 30
    assert taken({**cells[1], "validation": {}})["communications"] == 40
