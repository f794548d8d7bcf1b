import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from rich.console import Console

from hiflash.report import sweep_figures
from hiflash.report.sweep import sweep_rows, sweep_tables
from hiflash.report.sweep_figures import draw_sweep

MakeResult = Callable[..., dict[str, Any]]
NEVER = (0.2, 0.4)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    kept: list[Figure] = []

    def keep(figure: Figure, stem: Path) -> list[Path]:
        kept.append(figure)
        return []

    monkeypatch.setattr(sweep_figures, "save", keep)
    return kept


@pytest.fixture
def cells(make_result: MakeResult) -> list[dict[str, Any]]:
    """Return alpha 0.5 (never at the target), 0.7 (once in two seeds), 0.9 (after 80) and 1 (after 40)."""
    made = []
    for alpha, every, seeds in ((0.5, 10, (NEVER, NEVER)), (0.7, 10, (None, NEVER)), (0.9, 20, (None, None)),
                                (1, 10, (None, None))):  # fmt: skip
        for seed, accuracies in enumerate(seeds):
            more = {} if accuracies is None else {"accuracies": accuracies}
            made.append(make_result("hifl", seed, every=every, point={"cloud.alpha": alpha}, **more))
    return made


def _alphas(rows: list[dict[str, Any]]) -> list[float]:
    return [row["point"]["cloud.alpha"] for row in rows]


def test_points_are_sorted_by_the_metric_and_those_that_fail_come_last(cells: list[dict[str, Any]]) -> None:
    assert _alphas(sweep_rows(cells, "communications")) == [1, 0.9, 0.7, 0.5]
    best = _alphas(sweep_rows(cells, "best_accuracy"))
    assert (set(best[:2]), best[2:]) == ({0.9, 1}, [0.7, 0.5])


def test_the_table_says_what_was_varied_and_what_came_of_it(cells: list[dict[str, Any]]) -> None:
    console = Console(file=io.StringIO(), width=80)
    (table,) = sweep_tables(cells, "communications", 80)
    console.print(table)
    lines = [line.split() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert "alpha" in [words[0] for words in lines if words]
    assert ["1", "40.0±0.0", "91.0±0.0%", "2/2", "12", "k", "100", "s", "4", "MB"] in lines
    assert ["0.5", "-", "40.0±0.0%", "0/2", "-", "-", "-"] in lines


def test_titles_say_how_many_seeds_are_behind_the_numbers(
    cells: list[dict[str, Any]], drawn: list[Figure]
) -> None:
    alone = [cell for cell in cells if cell["seed"] == 1]
    said = [str(sweep_tables(some, "communications", 80)[0].title) for some in (cells, alone)]
    where = "HiFL on mnist5k, noniid2: to 90% accuracy, by communications"
    assert said == [f"{where}, mean over seeds", f"{where}, one seed (1)"]
    for some in (cells, alone):
        draw_sweep(some, "communications", Path("x"))
    ends = [figure.get_suptitle().rpartition(" (")[2] for figure in drawn]
    assert ends == ["mean of 2 seeds)", "one seed)"]


def test_one_setting_is_a_line_with_gaps_where_the_target_was_not_reached(
    cells: list[dict[str, Any]], drawn: list[Figure]
) -> None:
    draw_sweep(cells, "communications", Path("x"))
    axes = drawn[0].axes[0]
    assert axes.get_ylabel() == "Communications to 90%"
    assert [text.get_text() for text in axes.texts] == ["not reached", "1 of 2 seeds"]
    mean = next(line for line in axes.get_lines() if len(line.get_xdata()) == 4)
    assert list(mean.get_ydata()) == pytest.approx([float("nan"), 40, 80, 40], nan_ok=True)
    drawn[0].draw_without_rendering()


def test_two_settings_are_heat_maps_in_which_every_cell_says_its_number(
    cells: list[dict[str, Any]], drawn: list[Figure]
) -> None:
    grid = [
        {**cell, "point": {**cell["point"], "edge.edge_rounds": rounds}}
        for cell in cells
        for rounds in ([1], [1, 2])
    ]
    draw_sweep(grid, "communications", Path("x"))
    axes = drawn[0].axes[0]
    texts = [text.get_text() for text in axes.texts]
    assert texts == [*["not\nreached"] * 2, *["40\n1 of 2 seeds"] * 2, "80", "80", "40", "40"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["[1]", "[1, 2]"]
    assert [text.get_text() for text in drawn[0].axes[1].texts][-1] == "91.0%"
    drawn[0].draw_without_rendering()


def test_three_settings_are_ranked_bars(cells: list[dict[str, Any]], drawn: list[Figure]) -> None:
    more = {"client.lr": 0.1, "cloud.penalty": 1}
    draw_sweep([{**cell, "point": {**cell["point"], **more}} for cell in cells], "best_accuracy", Path("x"))
    labels = [label.get_text() for label in drawn[0].axes[0].get_yticklabels()]
    assert labels[-1] == "0.5, 0.1, 1"
    assert [text.get_text() for text in drawn[0].axes[1].texts][-1] == "not reached (best 40.0%)"
    assert max(drawn[0].axes[0].get_xticks()) == 100
    drawn[0].draw_without_rendering()


def test_without_a_target_only_the_outcome_is_drawn(make_result: MakeResult, drawn: list[Figure]) -> None:
    runs = [make_result(target=None, point={"cloud.threshold": value}) for value in (0, "inf")]
    draw_sweep(runs, "best_accuracy", Path("x"))
    assert [axes.get_ylabel() for axes in drawn[0].axes] == ["Best accuracy (%)"]
    assert [label.get_text() for label in drawn[0].axes[0].get_xticklabels()] == ["0", "inf"]
