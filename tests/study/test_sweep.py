from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import hiflash
from hiflash.errors import ConfigError, DataError
from hiflash.study.sweep import chosen_metric, sweep_cells
from tiny import TINY, make_tiny_model


def test_a_sweep_is_the_full_grid_over_all_seeds() -> None:
    grid = {"cloud.alpha": [0.5, 1], "edge.edge_rounds": [[1], [1, 2]]}
    cells = sweep_cells(grid=grid, seeds=[4], settings={"cloud.threshold": 2})
    assert [cell.name for cell in cells] == [
        "alpha0.5-edge_rounds1-s4", "alpha0.5-edge_rounds1_2-s4",
        "alpha1-edge_rounds1-s4", "alpha1-edge_rounds1_2-s4",
    ]  # fmt: skip
    assert [cell.tags["point"] for cell in cells][1] == {"cloud.alpha": 0.5, "edge.edge_rounds": [1, 2]}
    assert [(cell.config.cloud.alpha, cell.config.edge.edge_rounds) for cell in cells] == [
        (0.5, (1,)), (0.5, (1, 2)), (1.0, (1,)), (1.0, (1, 2)),
    ]  # fmt: skip
    assert all(cell.config.cloud.threshold == 2 and cell.config.seed == 4 for cell in cells)


def test_names_of_points_are_different_and_short() -> None:
    grid = {
        "edge.deadline_s": [1, 2],
        "edge.quorum": [0.5],
        "client.lr": [0.1],
        "resources.f_ghz": [[1, 2], [1, 3]],
    }
    wide = {**grid, "wan.rtt_ms": [[50, 250]], "wan.bandwidth_mbps": [[10, 100]], "wan.jitter": [0.125]}
    cells = sweep_cells(grid={**wide, "resources.bandwidth_mhz": [[1, 10], [1, 11]]}, seeds=2)
    assert len({cell.name for cell in cells}) == len(cells) == 16
    assert max(len(cell.name) for cell in cells) <= 70
    both = sweep_cells(
        grid={"client.momentum": [0.5], "cloud.momentum": [0.5]}, settings={"cloud.mixing": "delta"}
    )
    assert both[0].name == "client.momentum0.5-cloud.momentum0.5-s0"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "a sweep needs settings to vary"),
        ({"grid": {"cloud.alpha": []}}, "cloud.alpha needs a list of values"),
        ({"grid": {"cloud.alpha": 0.5}}, "cloud.alpha needs a list of values to be swept over, got 0.5"),
        ({"grid": {"cloud.alpha": [0.5, 0.5]}}, "cloud.alpha has 0.5 twice"),
        ({"grid": {"cloud.alpha": [0.5, 1.5]}}, r"cloud.alpha must be in \(0, 1\], got 1.5"),
        ({"grid": {"cloud.alfa": [0.5]}}, "unknown key cloud.alfa; did you mean cloud.alpha"),
        ({"grid": {"method": ["hifl"]}}, "method cannot be swept over; use hiflash compare"),
        ({"grid": {"seed": [1]}}, "seed cannot be swept over; use seeds"),
        ({"grid": {"data.partition": ["noniid0"]}}, "unknown partition"),
        ({"grid": {"cloud.alpha": [1]}, "settings": {"cloud": {"alpha": 1}}}, "given and swept over"),
        ({"grid": {"cloud.alpha": [1]}, "settings": {"seed": 1}}, "use seeds"),
        ({"grid": {"cloud.alpha": [1]}, "seeds": 0}, "seeds must be"),
        ({"grid": {"cloud.alpha": [0.5, 1]}, "seeds": 10**5}, "these are 200,000 cells, and at most 100,000"),
        ({"grid": {"cloud.alpha": [1]}, "settings": {"method": "fedavg"}}, "is for asynchronous methods"),
    ],
)
def test_a_sweep_that_cannot_run_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises((ConfigError, DataError), match=said):
        sweep_cells(**given)


def test_the_metric_is_known_or_follows_from_the_target() -> None:
    cells = sweep_cells(grid={"cloud.alpha": [1]})
    assert chosen_metric(None, None, cells) == "communications"
    assert chosen_metric(None, "loss", cells) == "loss"
    without = sweep_cells(grid={"cloud.alpha": [1]}, settings={"stop.target": "none"})
    assert chosen_metric(None, None, without) == "best_accuracy"
    with pytest.raises(ConfigError, match=r"sorted by communications, .*, got speed"):
        chosen_metric(None, "speed", cells)


def test_a_file_says_what_to_sweep(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text("""
        method = "hifl"
        [sweep]
        seeds = 2
        by = "loss"
        [sweep.grid]
        cloud.alpha = [0.5]
        edge.edge_rounds = [[1], [1, 2]]
    """)
    cells = sweep_cells(file)
    assert [cell.name for cell in cells] == [
        "alpha0.5-edge_rounds1-s0", "alpha0.5-edge_rounds1-s1",
        "alpha0.5-edge_rounds1_2-s0", "alpha0.5-edge_rounds1_2-s1",
    ]  # fmt: skip
    assert chosen_metric(file, None, cells) == "loss"


@pytest.mark.usefixtures("no_figures")
def test_a_sweep_is_saved_and_not_repeated(tiny_data: hiflash.Dataset, tmp_path: Path) -> None:
    common: dict[str, Any] = {
        "grid": {"cloud.alpha": [0.1, 1.0]}, "by": "accuracy", "directory": tmp_path / "s",
        "data": tiny_data, "model": make_tiny_model, **TINY,
    }  # fmt: skip
    sweep = hiflash.sweep(seeds=1, **common)
    assert sweep.keys == ["cloud.alpha"]
    assert [row["point"] for row in sweep.rows()] == [{"cloud.alpha": 1.0}, {"cloud.alpha": 0.1}]
    before = (tmp_path / "s" / "alpha1.0-s0" / "result.json").stat().st_mtime_ns
    more = hiflash.sweep(seeds=2, **common)
    assert (tmp_path / "s" / "alpha1.0-s0" / "result.json").stat().st_mtime_ns == before
    assert [result.digest for result in more.results[::2]] == [result.digest for result in sweep.results]
    paths = more.files
    assert [path.name for path in paths] == ["cells.csv", "sweep.csv", "sweep.json", "sweep.png", "sweep.pdf"]
    with (tmp_path / "s" / "sweep.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["cloud.alpha"], row["seeds"]) for row in rows] == [("1.0", "2"), ("0.1", "2")]
    saved = json.loads((tmp_path / "s" / "sweep.json").read_text())
    assert [(cell["point"], cell["seed"]) for cell in saved["cells"]] == [
        ({"cloud.alpha": alpha}, seed) for alpha in (0.1, 1.0) for seed in (0, 1)
    ]
