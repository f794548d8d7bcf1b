"""The figures of items beside those of comparisons, from real results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import hiflash
from hiflash.study.paper.figures import draw_more
from hiflash.study.paper.items import load_item
from hiflash.study.paper.rows import rows_of
from hiflash.study.paper.runs import Runs

LOW = 0.15  # reached by the first evaluations


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


@pytest.mark.parametrize("item", ["accuracy-mnist", "communications-mnist", "agent-cost", "thresholds"])
def test_figures_of_runs_that_reach_their_target(item: str, runs: Runs, tmp_path: Path) -> None:
    found = load_item(item)
    drawn = draw_more(found, found.plan("small"), runs, rows_of(runs), tmp_path)
    assert {path.suffix for path in drawn} == {".png", ".pdf"}
    assert all(path.stat().st_size > 1000 for path in drawn)


def test_the_parts_of_the_cost_add_up(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[str, Sequence[float]] = {}

    def keep(costs: Mapping[str, Sequence[float]], title: str, stem: Path) -> list[Path]:
        drawn.update(costs)
        return []

    monkeypatch.setattr("hiflash.report.paper_figures.draw_costs", keep)
    item = load_item("agent-cost")
    draw_more(item, item.plan("small"), runs, rows_of(runs), tmp_path)
    assert set(drawn) == {"hifl", "hidelta"}
    for label, parts in drawn.items():
        assert all(part > 0 for part in parts)
        assert sum(parts) == pytest.approx(runs.to_target(label, measure="total_cost"))
