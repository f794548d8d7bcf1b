"""How far off a surrogate is, worked by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hiflash.control.surrogate.rehearsal import Rehearsal
from hiflash.report.calibration import calibration_report, calibration_tables
from hiflash.report.calibration_figures import draw_calibration
from hiflash.sim.result import Result


def real(run_tiny: Any, seed: int, communications: int, *, reached: bool = True) -> Result:
    took = {
        "communications": communications,
        "virtual_s": communications / 10,
        "total_cost": 2.0 * communications,
    }
    return replace(
        run_tiny(seed=seed, stop__communications=15),
        stop_target=0.9,
        targets={"0.9": took if reached else None},
        applied_per_edge=[6, 2, 1, 1],
        **took,
    )


def rehearsal(communications: int, *, reached: bool = True) -> Rehearsal:
    evaluations = [
        {"communications": 5, "accuracy": 0.2},
        {"communications": communications, "accuracy": 0.9},
    ]
    return Rehearsal(
        reached, communications, communications / 10, 2.0 * communications, [5, 3, 1, 1], evaluations
    )


@pytest.fixture
def report(run_tiny: Any) -> tuple[Any, ...]:
    policies = ["random", "random", "fixed-0", "fixed-0"]
    results = [
        real(run_tiny, 0, 100), real(run_tiny, 1, 200),
        real(run_tiny, 0, 40), real(run_tiny, 1, 60, reached=False),
    ]  # fmt: skip
    rehearsals = [
        [rehearsal(100), rehearsal(140)], [rehearsal(220), rehearsal(260)],
        [rehearsal(50), rehearsal(70)], [rehearsal(80), rehearsal(80, reached=False)],
    ]  # fmt: skip
    return calibration_report(policies, results, rehearsals), policies, results, rehearsals


def test_means_deviations_and_errors(report: tuple[Any, ...]) -> None:
    random, fixed = report[0]["policies"]
    # real (100 + 200) / 2 = 150 with deviation 70.7; surrogate (120 + 240) / 2 = 180, which is 20% more
    assert random["communications"] == {
        "real": 150, "real_std": pytest.approx(70.71, abs=0.01),
        "surrogate": 180, "surrogate_std": pytest.approx(84.85, abs=0.01),
        "error": pytest.approx(0.2), "within": True,
    }  # fmt: skip
    # real (40 + 60) / 2 = 50 with deviation 14.1; surrogate (60 + 80) / 2 = 70: 20 off, more than either bar
    assert fixed["communications"]["error"] == pytest.approx(0.4)
    assert not fixed["communications"]["within"]
    assert fixed["virtual_s"]["real"] == pytest.approx(5.0)
    assert fixed["total_cost"]["surrogate"] == pytest.approx(140)
    assert (fixed["reached_real"], fixed["reached_surrogate"]) == (0.5, 0.75)
    assert not report[0]["within"]


def test_what_all_policies_share_is_told_from_the_rest(report: tuple[Any, ...]) -> None:
    # ratios 1.2 and 1.4: sqrt(1.2 * 1.4) = 1.296, beside which they are 1.2 / 1.296 = 0.926 and 1.080
    assert report[0]["common_error"] == pytest.approx(0.296, abs=5e-4)
    assert report[0]["largest_error_beside"] == pytest.approx(0.080, abs=5e-4)


def test_fifteen_percent_is_enough_without_a_deviation(run_tiny: Any) -> None:
    only = calibration_report(["random"], [real(run_tiny, 0, 100)], [[rehearsal(115)]])
    assert only["policies"][0]["communications"]["within"]
    assert only["policies"][0]["communications"]["real_std"] is None
    assert only["rank_correlation"] == {"communications": None, "total_cost": None}
    off = calibration_report(["random"], [real(run_tiny, 0, 100)], [[rehearsal(116)]])
    assert not off["policies"][0]["communications"]["within"]


def test_shares_of_edges_and_ranks_of_policies(report: tuple[Any, ...]) -> None:
    # 6, 2, 1, 1 of 10 against 5, 3, 1, 1 of 10: 10 points off at the first two edges
    assert report[0]["largest_share_difference"] == pytest.approx(0.1)
    assert report[0]["policies"][0]["shares"][1] == {
        "seed": 1, "real": [0.6, 0.2, 0.1, 0.1], "surrogate": [0.5, 0.3, 0.1, 0.1],
        "largest_difference": pytest.approx(0.1),
    }  # fmt: skip
    assert report[0]["rank_correlation"] == {
        "communications": pytest.approx(1),
        "total_cost": pytest.approx(1),
    }


def test_the_rank_correlation_is_spearmans(run_tiny: Any) -> None:
    policies = ["a", "b", "c"]
    results = [real(run_tiny, 0, taken) for taken in (10, 20, 30)]
    rehearsals = [[rehearsal(taken)] for taken in (20, 10, 30)]
    # ranks 1, 2, 3 and 2, 1, 3: 1 - 6 (1 + 1 + 0) / (3 * 8) = 0.5
    assert calibration_report(policies, results, rehearsals)["rank_correlation"][
        "communications"
    ] == pytest.approx(0.5)


def test_the_table_marks_what_missed_the_bar_and_fits(report: tuple[Any, ...]) -> None:
    console = Console(width=80)
    with console.capture() as captured:
        for table in calibration_tables(report[0], 80):
            console.print(table)
    assert max(map(len, captured.get().splitlines())) <= 80
    text = " ".join(captured.get().split())
    assert "+40%!" in text
    assert "+20%!" not in text
    assert "! beyond 15% and a standard deviation: 2 of 4" in text
    assert "rank correlation: communications 1.00, total cost 1.00" in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_every_column_of_a_split_table_says_what_it_measures(report: tuple[Any, ...], width: int) -> None:
    for table in calibration_tables(report[0], width):
        for column in table.columns[1:]:
            assert len(str(column.header).splitlines()) > 1
            assert str(column.header).strip() == str(column.header)


def test_the_figure_is_drawn(report: tuple[Any, ...], tmp_path: Path) -> None:
    paths = draw_calibration("title", *report, tmp_path / "one")
    assert [path.name for path in paths] == ["one.png", "one.pdf"]
    assert all(path.stat().st_size > 10_000 for path in paths)
