"""The figures of items beside those of comparisons, from real results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

import hiflash
from hiflash.config import Config
from hiflash.report.paper_needs import Need
from hiflash.report.paper_zoom import upper_range
from hiflash.study.paper.figures import FAMILIES, draw_more
from hiflash.study.paper.items import load_item
from hiflash.study.paper.reading_rules import SETTINGS
from hiflash.study.paper.rows import rows_of
from hiflash.study.paper.runs import Runs

LOW = 0.15  # reached by the first evaluations
Asked = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def runs() -> Runs:
    study = hiflash.compare(
        methods=["hifl", "hidelta"],
        seeds=1,
        federation={"clients": 20, "edges": 4},
        stop={"communications": 40, "target": "none"},
        evaluate={"every": 5},
        workers=1,
    )
    return Runs(study.numbers(), LOW, (LOW,))


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Return a function that gives the arguments of a drawing function, by position and name."""

    def ask(item: str, function: str, runs: Runs, **more: Any) -> dict[str, Any]:
        given: dict[str, Any] = {}

        def keep(*arguments: Any) -> list[Path]:
            given["first"], given["title"] = arguments[0], arguments[-2]
            given["all"] = arguments
            return []

        monkeypatch.setattr(f"hiflash.report.{function}", keep)
        found = load_item(item)
        draw_more(found, found.plan("small"), runs, [{**row, **more} for row in rows_of(runs)], tmp_path)
        return given

    return ask


def cell(label: str, seed: int, *accuracies: float, **more: Any) -> dict[str, Any]:
    """Return the result of a run with an evaluation every 10 communications."""
    evaluations = [
        {"accuracy": value, "communications": 10 * at, "virtual_s": 2.0 * at, "client_steps": 30 * at,
         "compute_cost": 1.0 * at, "send_cost": 2.0 * at, "total_cost": 6.0 * at,
         "wan_bytes": 1, "lan_bytes": 1}
        for at, value in enumerate(accuracies, 1)
    ]  # fmt: skip
    return {
        "label": label, "method": "hifl", "data": "mnist", "partition": "noniid2", "seed": seed,
        "evaluations": evaluations, "metric": "accuracy", "metric_better": "higher", "metric_unit": "share",
        "communications": 10 * len(accuracies), "accuracy": accuracies[-1], "best_accuracy": max(accuracies),
        "total_js": 0.5, "response_latency_ms": 1.0, "waiting_ms": 1.0, **more,
    }  # fmt: skip


def at(alpha: float, upsilon: float) -> dict[str, Any]:
    return {"point": {"cloud.alpha": alpha, "cloud.penalty": upsilon}}


@pytest.mark.parametrize(
    "item",
    [
        "accuracy-mnist", "communications-mnist", "agent-cost", "thresholds", "edge-iid", "latency",
        "trade-off", "partitions-mnist", "sensitivity-mnist",
    ],
)  # fmt: skip
def test_figures_of_runs_that_reach_their_target(item: str, runs: Runs, tmp_path: Path) -> None:
    found = load_item(item)
    drawn = draw_more(found, found.plan("small"), runs, rows_of(runs), tmp_path)
    assert {path.stem for path in drawn} == set(found.figures)
    assert {path.suffix for path in drawn} == {".png", ".pdf"}
    assert all(path.stat().st_size > 1000 for path in drawn)


def test_a_grid_has_curves_and_maps(tmp_path: Path) -> None:
    cells = [
        cell(f"{alpha:g}/0.99", seed, 0.5, 0.8, 0.9 + seed / 100, **at(alpha, 0.99))
        for alpha in (0.5, 0.7)
        for seed in (0, 1)
    ]
    item, runs = load_item("mixing-grid"), Runs(cells, 0.905)
    drawn = draw_more(item, item.plan("small"), runs, rows_of(runs), tmp_path)
    assert [path.name for path in drawn if path.suffix == ".png"] == ["curves.png", "maps.png"]


def test_maps_show_the_numbers_of_the_claims_and_mark_what_was_not_reached(asked: Asked) -> None:
    cells = [
        cell("0.7/0.99", 0, 0.8, 0.86, 0.94, 0.92, **at(0.7, 0.99)),
        cell("0.7/0.99", 1, 0.8, 0.80, 0.85, 0.95, **at(0.7, 0.99)),
        cell("0.5/0.9", 0, 0.8, 0.8, 0.8, 0.96, **at(0.5, 0.9)),
        cell("0.5/0.9", 1, 0.8, 0.8, 0.8, 0.8, **at(0.5, 0.9)),
    ]
    given = asked("mixing-grid", "paper_grid.draw_grid_maps", Runs(cells, 0.9))
    needs, ends, falls = given["first"]
    # 25 (half way from 20 to 30) and 35: 30 on average.
    assert needs.values == {(0.7, 0.99): pytest.approx(30), (0.5, 0.9): None}
    assert needs.texts == {(0.7, 0.99): "30\n(25-35)", (0.5, 0.9): "1 of 2 seeds"}
    # Fewer than five evaluations: all of them. (0.88 + 0.85) / 2 and (0.84 + 0.8) / 2.
    assert ends.values == {(0.7, 0.99): pytest.approx(0.865), (0.5, 0.9): pytest.approx(0.82)}
    # In the second half one seed falls from 0.94 to 0.92, the other rises: 2 and 0 points.
    assert falls.texts == {(0.7, 0.99): "1.00 points", (0.5, 0.9): "0.00 points"}
    assert given["all"][1] == (0.7, 0.99)
    assert given["title"] == "MNIST, Non-IID(2): HiFL by alpha and upsilon (mean of 2 seeds)"


def test_shards_show_the_needs_of_the_table(asked: Asked) -> None:
    cells = [cell("hifl", 0, 0.8, 1.0), cell("hifl", 1, 0.8, 0.85, 0.95)]
    cells += [cell("hifl", 0, 0.7, 0.95, partition="noniid2-balanced")]
    runs = Runs(cells, 0.9)
    given = asked("partitions-mnist", "paper_needs.draw_shards", runs)
    need = given["first"]["noniid2"]["hifl"]["communications"]
    assert need.values == pytest.approx([15, 25])  # half way from 10 to 20, and from 20 to 30
    assert need.mean == pytest.approx(rows_of(runs)[0]["communications"])
    assert given["first"]["noniid2-balanced"]["hifl"]["virtual_s"].mean == pytest.approx(3.6)  # 2 + 0.8 * 2


def test_settings_show_every_seed_and_the_forecast(asked: Asked) -> None:
    runs = Runs([cell("hifl", 0, 0.8, 1.0), cell("hifl", 1, 0.8, 0.85, 0.95), cell("fedavg", 0, 0.5)], 0.9)
    forecast = {"communications": 22.0, "virtual_s": None}
    needs = asked("sensitivity-mnist", "paper_needs.draw_settings", runs, forecast=forecast)["first"]
    assert needs["hifl"]["communications"].values == pytest.approx([15, 25])
    assert (needs["hifl"]["communications"].forecast, needs["hifl"]["virtual_s"].forecast) == (22.0, None)
    assert needs["fedavg"]["communications"].values == []  # not reached


def test_whiskers_go_from_the_least_to_the_most() -> None:
    need = Need([188, 249, 1072])
    assert need.mean == 503
    assert need.whiskers == ([315], [569])  # 503 - 188, 1072 - 503


def test_settings_are_in_order_and_complete() -> None:
    assert {suffix for family in FAMILIES.values() for suffix in family} == set(SETTINGS)
    under = load_item("sensitivity-mnist").plan("full")["under"]
    slots = []
    for suffix, words in FAMILIES["Length of a slot"].items():
        value = under[suffix[1:]]["resources"]["slot_s"] if suffix else Config().resources.slot_s
        assert words.removesuffix(" (default)") == f"{value:g} s"
        slots.append(value)
    assert slots == sorted(slots)


def test_the_zoom_begins_below_the_lowest_mean_after_a_quarter_of_the_runs() -> None:
    from hiflash.report.curves import curve

    low = [cell("hifl", 0, 0.1, 0.72, 0.8, 0.9, 0.95), cell("hifl", 1, 0.1, 0.70, 0.8, 0.9, 0.97)]
    curves = {"hifl": [curve(each, "client_steps") for each in low]}
    # Steps 30 to 150: a quarter is at 60, where the mean is 0.71; down to 0.70, and a step of 0.05 below.
    assert upper_range(curves) == (pytest.approx(0.65), pytest.approx(0.97))


def test_the_parts_of_the_cost_add_up(runs: Runs, asked: Asked) -> None:
    given = asked("agent-cost", "paper_figures.draw_costs", runs)
    drawn: Mapping[str, Sequence[Sequence[float]]] = given["first"]
    assert set(drawn) == {"hifl", "hidelta"}
    for label, (parts,) in drawn.items():
        assert all(part > 0 for part in parts)
        assert sum(parts) == pytest.approx(runs.to_target(label, measure="total_cost"))


def test_costs_are_drawn_seed_by_seed_and_say_whose_they_are(asked: Asked) -> None:
    runs = Runs([cell("hifl", 0, 0.8, 1.0), cell("hifl", 1, 0.8, 0.85, 0.95)], 0.9)
    given = asked("agent-cost", "paper_figures.draw_costs", runs)
    # Reached after 1.5 and 2.5 evaluations; of 6 an evaluation, 1 is computing and 2 sending.
    first, second = given["first"]["hifl"]
    assert first == pytest.approx((1.5, 3.0, 4.5))
    assert second == pytest.approx((2.5, 5.0, 7.5))
    assert given["title"] == "MNIST, Non-IID(2): system cost to 90 % (bars: mean of 2 seeds, dots: seeds)"


def test_a_trade_off_has_the_targets_of_the_item_and_names_who_reaches_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[Mapping[str, Any]] = []
    figure = Figure()
    figure.subplots()

    def keep(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        seen.extend(cells)
        return {"tradeoff": figure}

    monkeypatch.setattr("hiflash.report.compare_figures.compare_figures", keep)
    own = {"targets": {}, "targets_interpolated": {}, "stop_target": None}
    cells = [
        cell("hifl", 0, 0.1, 0.5, 0.6, **own),
        cell("hifl", 1, 0.1, 0.1, 0.1, **own),
        cell("hidelta", 0, 0.1, 0.1, **own),
        cell("hifl-tau2", 0, 0.5, **own),
    ]
    item = load_item("trade-off")
    draw_more(item, item.plan("full"), Runs(cells), [], tmp_path)
    shown, other = seen  # all seeds of a label that learns in one; hifl-tau2 stands in the table alone
    assert set(other["targets"].values()) == {None}
    found = {target: at and at["communications"] for target, at in shown["targets"].items()}
    assert found == pytest.approx({"0.2": 12.5, "0.3": 15, "0.4": 17.5, "0.5": 20, "0.55": 25, "0.6": 30})
    assert shown["partition"] == "Non-IID(2)"
    assert [text.get_text() for text in figure.axes[0].texts] == ["HiDelta: 10.0 % at best"]


def test_a_single_partition_stands_in_the_title_in_the_middle_of_a_line(asked: Asked) -> None:
    runs = Runs([cell("hifl", 0, 0.5, data="femnist", partition="writer")])
    given = asked("communications-femnist", "paper_needs.draw_needs", runs)
    assert given["title"] == "FEMNIST, one writer per client: communications to a target (one seed)"


def test_a_trade_off_in_which_nobody_learns_is_drawn(tmp_path: Path, runs: Runs) -> None:
    cells = [
        {**cell, "evaluations": [{**row, "accuracy": 0.1} for row in cell["evaluations"]]}
        for cell in runs.cells
    ]
    item = load_item("trade-off")
    draw_more(item, item.plan("full"), Runs(cells), [], tmp_path)
    assert (tmp_path / "tradeoff.png").stat().st_size > 1000


def test_accuracy_against_divergence_is_drawn(tmp_path: Path, runs: Runs) -> None:
    item = load_item("accuracy-js")
    draw_more(item, item.plan("small"), runs, rows_of(runs), tmp_path)
    assert (tmp_path / "js.png").stat().st_size > 10_000
