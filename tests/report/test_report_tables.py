import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from hiflash.report.compare_tables import compare_tables
from hiflash.report.methods import label
from hiflash.report.rows import flat, write_csv
from hiflash.report.summary import target_rows
from hiflash.report.sweep import sweep_tables
from hiflash.report.tables import run_table
from hiflash.report.units import count, duration, percent, size, spread

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


def _compared(results: list[dict[str, Any]], width: int = 80, colour: bool = False) -> list[str]:
    """Return the tables of a comparison as texts."""
    return [_printed(table, width, colour) for table in compare_tables(results, width)]


def _at(results: list[dict[str, Any]], target: float | None) -> list[dict[str, Any]]:
    return [row for row in target_rows(results) if row["target"] == target]


def test_means_and_sample_deviations_are_those_worked_by_hand(make_result: MakeResult) -> None:
    cells = [make_result(seed=seed, accuracies=(0.5, last)) for seed, last in enumerate((0.90, 0.92, 0.97))]
    (row,) = _at(cells, 0.9)
    assert row["accuracy_mean"] == pytest.approx(0.93)
    # Deviations -0.03, -0.01, 0.04: sqrt((0.0009 + 0.0001 + 0.0016) / 2) = sqrt(0.0013).
    assert row["accuracy_std"] == pytest.approx(0.0360555, abs=1e-7)
    assert (row["accuracy_min"], row["accuracy_max"], row["accuracy_n"]) == (0.90, 0.97, 3)
    assert (row["seeds"], row["reached"]) == (3, 3)
    assert (row["communications_mean"], row["communications_std"]) == (20, 0)


def test_a_single_seed_has_no_deviation(make_result: MakeResult) -> None:
    assert _at([make_result()], 0.9)[0]["accuracy_std"] is None
    assert "±" not in "".join(_compared([make_result()]))


def test_means_are_over_the_seeds_that_reached_the_target(make_result: MakeResult) -> None:
    cells = [make_result(seed=0), make_result(seed=1, accuracies=(0.3,)), make_result(seed=2, every=20)]
    (row,) = _at(cells, 0.9)
    assert (row["reached"], row["seeds"], row["communications_n"]) == (2, 3, 2)
    assert row["communications_mean"] == 60  # (40 + 80) / 2


def test_rows_are_plain_json(make_result: MakeResult) -> None:
    rows = target_rows([make_result("fedavg", accuracies=()), make_result("hifl")])
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows


def test_there_is_a_row_per_partition_label_and_target_and_one_at_the_end(make_result: MakeResult) -> None:
    cells = [
        make_result("hifl", label="hifl"),
        make_result("hifl", label="delta"),
        make_result("centralized", label="centralized", every=0),
        make_result("hifl", label="hifl", partition="iid"),
    ]
    keys = [(row["partition"], row["label"], row["target"]) for row in target_rows(cells)]
    labels = [
        ("noniid2", "hifl"), ("noniid2", "delta"), ("noniid2", "centralized"),
        ("iid", "hifl"), ("iid", "centralized"),
    ]  # fmt: skip
    assert keys == [(part, label, target) for part, label in labels for target in (0.7, 0.9, None)]


def test_at_the_end_final_values_are_used(make_result: MakeResult) -> None:
    (row,) = _at([make_result(target=None, accuracies=(0.1, 0.2, 0.3))], None)
    assert (row["reached"], row["communications_mean"]) == (1, 30)


def test_a_target_that_a_run_does_not_list_is_read_from_its_evaluations(make_result: MakeResult) -> None:
    cells = [make_result("fedavg", target=0.45), make_result("hifl")]
    for cell in cells:  # 0.5 after 20 communications, 0.2 before
        del cell["targets"]["0.7"]
    cells[0]["targets"]["0.45"] = None
    first = _compared(cells)[0]
    assert "to 45% accuracy" in first
    assert _row(first, "HiFL")[2] == "20"


def test_the_comparison_shows_means_spread_and_what_was_not_reached(make_result: MakeResult) -> None:
    cells = [
        make_result("hifl", 0, (0.5, 0.90)),
        make_result("hifl", 1, (0.5, 0.6, 0.7, 0.92)),
        make_result("fedasync", 0, (0.2, 0.4)),
    ]
    main, every, whole = _compared(cells)
    # 0.91 ± 0.0141; 30 communications, 9,000 steps, 75 s, 3 MB, cost 45.
    expected = ["HiFL", "91.0±1.4%", "30", "9", "k", "75", "s", "3", "MB", "45", "2/2"]
    assert _row(main, "HiFL") == expected
    assert _row(main, "FedAsync") == ["FedAsync", "40.0%", "-", "-", "-", "-", "-", "0/1"]
    lines = [line.split() for line in every.splitlines()]
    # 20 and 40: deviation 14.1; 0.7 is at 20 and 30.
    assert ["HiFL", "25.0±7.1", "30.0±14.1"] in lines
    assert ["HiFL", "7.50±2.12", "k", "9.00±4.24", "k"] in lines
    assert ["HiFL", "62.5±17.7", "s", "75.0±35.4", "s"] in lines
    assert ["HiFL", "2.50±0.71", "MB", "3.00±1.41", "MB"] in lines
    assert ["FedAsync", "0/1", "0/1"] in lines
    # Staleness, uploads, LAN, wasted steps, latencies and JS; columns of zeros are left out.
    assert _row(whole, "HiFL")[1:5] == ["1.25", "77", "30", "MB"]
    assert "waited" not in whole


def test_a_target_reached_by_some_seeds_is_marked(make_result: MakeResult) -> None:
    cells = [make_result(seed=0), make_result(seed=1, accuracies=(0.75,))]
    every = _compared(cells)[1]
    assert "40*" in every
    assert "* mean of the seeds that reached it" in every
    assert ["HiFL", "2/2", "1/2"] in [line.split() for line in every.splitlines()]


def test_targets_that_nobody_reached_are_named_once(make_result: MakeResult) -> None:
    every = _compared([make_result(accuracies=(0.75,))])[1]
    assert "nobody reached 90%" in every
    assert _row(every, "method") == ["method", "70%"]


def test_every_partition_has_tables_of_its_own(make_result: MakeResult) -> None:
    cells = [make_result(), make_result(partition="iid"), make_result("centralized", every=0)]
    titles = [text.splitlines()[0].strip() for text in _compared(cells)]
    assert titles[0] == "mnist5k, noniid2: to 90% accuracy, one seed (0)"
    assert [title.partition(":")[0] for title in titles] == ["mnist5k, noniid2"] * 3 + ["mnist5k, iid"] * 3
    assert len(_compared([make_result("centralized", every=0)])) == 1


def test_titles_say_how_many_seeds_are_behind_the_numbers(make_result: MakeResult) -> None:
    def titles(*cells: Any) -> list[str]:
        return [text.splitlines()[0].strip().partition(": ")[2] for text in _compared(list(cells))]

    assert titles(make_result(seed=4), make_result("fedavg", seed=4)) == [
        "to 90% accuracy, one seed (4)",
        "to every target, one seed (4)",
        "whole runs, one seed (4)",
    ]
    assert titles(make_result(seed=0), make_result(seed=1), make_result("fedavg", seed=0)) == [
        "to 90% accuracy, mean over seeds",
        "to every target, mean±deviation over seeds",
        "whole runs, mean over seeds",
    ]
    assert titles(make_result(seed=0), make_result("fedavg", seed=1))[0] == "to 90% accuracy, one seed each"


def test_labels_keep_the_order_given(make_result: MakeResult) -> None:
    rows = _at([make_result(method) for method in ("hifl", "fedavg", "hifl", "abc")], None)
    assert [row["label"] for row in rows] == ["hifl", "fedavg", "abc"]


def test_the_best_is_bold_among_methods_that_always_reached_the_target(make_result: MakeResult) -> None:
    cells = [
        make_result("hifl", 0, every=20),
        make_result("fedavg", 0, every=30),
        make_result("fedat", 0, every=10),
        make_result("fedat", 1, (0.1,)),
        make_result("centralized", 0, every=0),
    ]
    lines = _compared(cells, width=120, colour=True)[0].splitlines()
    bold = {line.split()[0]: line.count("\x1b[1m") for line in lines if "%" in line and "/" in line}
    # Both full finishers share the best accuracy; all five measures go to HiFL.
    assert bold == {"HiFL": 6, "FedAvg": 1, "FedAT": 0, "Centralized": 0}


def test_a_lone_method_is_not_called_the_best(make_result: MakeResult) -> None:
    lines = _compared([make_result()], colour=True)[0].splitlines()
    assert not any("\x1b[1m" in line for line in lines if "HiFL" in line)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_widest_comparison_fits_and_loses_no_number(make_result: MakeResult, width: int) -> None:
    counts = ("refused", "waited", "cancelled", "discarded", "rejected", "abandoned")
    cells = [
        make_result(m, s, (0.72, 0.9 + 0.05 * s), every=99_990, label=m, **dict.fromkeys(counts, 123_456))
        for m in ("centralized", "hifl", "hifl+delta+momentum+trimmed")
        for s in (0, 1)
    ]
    texts = _compared(cells, width=width)
    assert max(len(line) for text in texts for line in text.splitlines()) <= width
    cut = [line for text in texts for line in text.splitlines() if "…" in line]
    assert all(line.index("…") < 30 for line in cut)  # in names only
    assert sum(text.count("123 k") for text in texts) == 2 * len(counts)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_words_in_heads_are_whole(make_result: MakeResult, width: int) -> None:
    counts = ("refused", "waited", "cancelled", "discarded", "rejected", "abandoned")
    text = "".join(_compared([make_result(**dict.fromkeys(counts, 7))], width))
    heads = [line.split() for line in text.splitlines()]
    for word in (*counts, "staleness"):
        assert any(word in words for words in heads), word
    assert "-\n" not in text.replace(" ", "")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fedavg", "FedAvg"),
        ("hifl+delta", "HiFL + delta"),
        ("hifl+delta+aware", "HiFL + delta + aware"),
        ("hierfavg-5", "HierFAVG-5"),
        ("hiflash_v2", "HiFlash_v2"),
        ("HiFL+mine", "HiFL+mine"),  # as the user spelled it
        ("delta", "delta"),
        ("hifl2", "hifl2"),
        ("hiflat+x", "hiflat+x"),
        ("", ""),
    ],
)
def test_variants_are_named_after_their_method(name: str, expected: str) -> None:
    assert label(name) == expected


def test_tables_and_titles_write_methods_as_papers_do(make_result: MakeResult) -> None:
    main = _compared([make_result(label="hifl+delta")])[0]
    assert "HiFL + delta " in main
    assert "hifl" not in main
    (table,) = sweep_tables([make_result(point={"cloud.alpha": 1})], "wan_bytes", 100)
    assert "HiFL on mnist5k, noniid2: to 90% accuracy, by WAN bytes" in _printed(table, 100)


def test_a_run_is_summed_up(make_result: MakeResult) -> None:
    text = _printed(run_table(make_result(accuracies=(0.75, 0.93, 0.91), waited=12, discarded=3)), width=100)
    for part in (
        "91.0% (best 93.0%)",
        "30 to the cloud, 77 client uploads",
        "9 k (120 wasted)",
        "1m 15s",
        "WAN 3 MB (1 kB up, 1 kB down), LAN 30 MB (1 kB up, 1 kB down)",
        "45 (computing 5, sending 4)",
        "mean 1.25, max 4",
        "mean 3, 2 to 6, 2 unbounded",  # (3 * 2 + 1 * 6) / 4
        "12 waited",
        "3 discarded",
        "grants 3 to 5, applied 2 to 5",
        "response 88 ms, waiting 40 ms",
        "0.500",
        "70% after 10, 90% after 20 communications",
        "0123456789ab",
    ):
        assert part in text
    assert "0123456789abc" not in text
    assert "refused" not in text


def test_a_run_without_accuracy_is_summed_up(make_result: MakeResult) -> None:
    text = _printed(run_table(make_result(accuracies=())))
    assert "- (best -)" in text
    assert "none reached" in text


def test_a_reason_with_brackets_is_shown_as_it_is(make_result: MakeResult) -> None:
    assert "[bold]" in _printed(run_table(make_result() | {"stop_reason": "[bold] budget"}))


def test_the_csv_has_a_row_per_cell_with_scalars_and_targets(make_result: MakeResult, tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    write_csv([flat(cell) for cell in (make_result(), make_result(seed=1, accuracies=(0.75,)))], path)
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
        (spread(1960, 120, "count"), "1.96±0.12 k"),
        (spread(210, 12.3, "count"), "210±12"),
        (spread(999.7, 3, "count"), "1.00±0.00 k"),
        (spread(2.5e15, 1e14, "count"), "2500±100 T"),
        (spread(67.2, 3.13, "seconds"), "67.2±3.1 s"),
        (spread(1300, None, "seconds"), "21.7 min"),
        (spread(86400, 3600, "seconds"), "24.0±1.0 h"),
        (spread(342e6, 2e7, "bytes"), "342±20 MB"),
        (spread(0.91, 0.014, "share"), "91.0±1.4%"),
        (spread(None, None, "share"), "-"),
        (percent(float("nan")), "-"),
    ],
)
def test_numbers_are_written_in_human_units(written: str, expected: str) -> None:
    assert written == expected
