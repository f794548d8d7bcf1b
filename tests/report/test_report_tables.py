import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from hiflash.report.tables import compare_table, plain_rows, run_table, write_csv
from hiflash.report.units import count, duration, percent, size

MakeResult = Callable[..., dict[str, Any]]


def _printed(renderable: RenderableType, width: int = 80, colour: bool = False) -> str:
    console = Console(
        file=io.StringIO(), width=width, force_terminal=colour, color_system="standard" if colour else None
    )
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined]


def _row(text: str, method: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.strip().startswith(method)]
    return line.split()


def test_means_and_sample_deviations_are_those_worked_by_hand(make_result: MakeResult) -> None:
    cells = [make_result(seed=seed, accuracies=(0.5, last)) for seed, last in enumerate((0.90, 0.92, 0.97))]
    (row,) = plain_rows(cells)
    assert row["accuracy_mean"] == pytest.approx(0.93)
    # Deviations -0.03, -0.01, 0.04: sqrt((0.0009 + 0.0001 + 0.0016) / 2) = sqrt(0.0013).
    assert row["accuracy_std"] == pytest.approx(0.0360555, abs=1e-7)
    assert (row["accuracy_n"], row["seeds"], row["reached"]) == (3, 3, 3)
    assert (row["communications_mean"], row["communications_std"]) == (20, 0)


def test_a_single_seed_has_no_deviation(make_result: MakeResult) -> None:
    (row,) = plain_rows([make_result()])
    assert row["accuracy_std"] is None
    assert "±" not in _printed(compare_table([make_result()]))


def test_means_are_over_the_seeds_that_reached_the_target(make_result: MakeResult) -> None:
    (row,) = plain_rows(
        [make_result(seed=0), make_result(seed=1, accuracies=(0.3,)), make_result(seed=2, every=20)]
    )
    assert (row["reached"], row["seeds"], row["communications_n"]) == (2, 3, 2)
    assert row["communications_mean"] == 60  # (40 + 80) / 2


def test_rows_are_plain_json(make_result: MakeResult) -> None:
    rows = plain_rows([make_result("fedavg", accuracies=()), make_result("hifl")])
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows


def test_without_a_target_final_values_are_used(make_result: MakeResult) -> None:
    (row,) = plain_rows([make_result(target=None, accuracies=(0.1, 0.2, 0.3))])
    assert (row["target"], row["reached"], row["communications_mean"]) == (None, 1, 30)


def test_a_target_that_a_run_does_not_list_is_read_from_its_evaluations(make_result: MakeResult) -> None:
    cells = [make_result("fedavg", target=0.45), make_result("hifl")]
    assert [row["communications_mean"] for row in plain_rows(cells)] == [20, 20]


def test_the_comparison_shows_means_spread_and_what_was_not_reached(make_result: MakeResult) -> None:
    cells = [
        make_result("hifl", 0, (0.5, 0.90)),
        make_result("hifl", 1, (0.5, 0.92)),
        make_result("fedasync", 0, (0.2, 0.4)),
    ]
    text = _printed(compare_table(cells))
    # 0.91 ± 0.0141; 20 communications, 6,000 steps, 50 s, 2 MB, cost 30.
    expected = ["HiFL", "91.0%", "±", "1.4", "20", "6", "k", "50.0s", "2", "MB", "30", "2/2"]
    assert _row(text, "HiFL") == expected
    assert _row(text, "FedAsync") == ["FedAsync", "40.0%", "-", "-", "-", "-", "-", "0/1"]


def test_rows_keep_the_order_given(make_result: MakeResult) -> None:
    rows = plain_rows([make_result(method) for method in ("hifl", "fedavg", "hifl", "abc")])
    assert [row["method"] for row in rows] == ["hifl", "fedavg", "abc"]


def test_the_best_is_bold_among_methods_that_always_reached_the_target(make_result: MakeResult) -> None:
    cells = [
        make_result("hifl", 0, every=20),
        make_result("fedavg", 0, every=30),
        make_result("fedat", 0, every=10),
        make_result("fedat", 1, (0.1,)),
        make_result("centralized", 0, every=0),
    ]
    lines = _printed(compare_table(cells), width=120, colour=True).splitlines()
    bold = {line.split()[0]: line.count("\x1b[1m") for line in lines if "%" in line and "/" in line}
    # Both full finishers share the best accuracy; all five measures go to HiFL.
    assert bold == {"HiFL": 6, "FedAvg": 1, "FedAT": 0, "Centralized": 0}


def test_a_lone_method_is_not_called_the_best(make_result: MakeResult) -> None:
    lines = _printed(compare_table([make_result()]), colour=True).splitlines()
    assert not any("\x1b[1m" in line for line in lines if "HiFL" in line)


def test_the_widest_comparison_fits_in_80_columns(make_result: MakeResult) -> None:
    cells = [
        make_result(m, s, (0.5, 0.9 + 0.05 * s), every=99_990)
        for m in ("centralized", "hifl")
        for s in (0, 1)
    ]
    assert "…" not in _printed(compare_table(cells), width=80)


def test_a_run_is_summed_up(make_result: MakeResult) -> None:
    text = _printed(run_table(make_result(accuracies=(0.75, 0.93, 0.91))))
    for part in (
        "91.0% (best 93.0%)",
        "9 k (120 wasted)",
        "1m 15s",
        "WAN 3 MB, LAN 30 MB",
        "mean 1.25, max 4",
        "70% after 10, 90% after 20 communications",
        "0123456789ab",
    ):
        assert part in text
    assert "0123456789abc" not in text


def test_a_run_without_accuracy_is_summed_up(make_result: MakeResult) -> None:
    text = _printed(run_table(make_result(accuracies=())))
    assert "- (best -)" in text
    assert "none reached" in text


def test_a_reason_with_brackets_is_shown_as_it_is(make_result: MakeResult) -> None:
    assert "[bold]" in _printed(run_table(make_result() | {"stop_reason": "[bold] budget"}))


def test_the_csv_has_a_row_per_cell_with_scalars_and_targets(make_result: MakeResult, tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    write_csv([make_result(), make_result(seed=1, accuracies=(0.75,))], path)
    with path.open(newline="") as file:
        first, second = csv.DictReader(file)
    assert (first["seed"], first["accuracy"], first["staleness_max"]) == ("0", "0.91", "4")
    assert (first["target_0.9_communications"], second["target_0.9_communications"]) == ("40", "")
    assert second["target_0.7_wan_bytes"] == "1000000"
    assert "evaluations" not in first
    assert [file.name for file in tmp_path.iterdir()] == ["cells.csv"]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (count(0), "0"),
        (count(999), "999"),
        (count(999.7), "1 k"),
        (count(14_321), "14.3 k"),
        (count(2.5e15), "2500 T"),
        (count(None), "-"),
        (size(1_234_567), "1.23 MB"),
        (size(12), "12 B"),
        (duration(4.24), "4.2s"),
        (duration(59.97), "1m 00s"),
        (duration(3599.6), "1h 00m"),
        (duration(2 * 86400 + 4 * 3600), "2d 04h"),
        (duration(100 * 86400 - 1), "99d 23h"),
        (duration(365 * 86400 + 4 * 3600), "365d"),
        (duration(float("nan")), "-"),
        (percent(0.9134), "91.3%"),
        (percent(float("nan")), "-"),
    ],
)
def test_numbers_are_written_in_human_units(written: str, expected: str) -> None:
    assert written == expected
