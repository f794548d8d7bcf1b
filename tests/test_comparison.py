from __future__ import annotations

import json
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import hiflash
from hiflash.comparison import Watcher, plan
from hiflash.errors import ConfigError, Paused, RunError
from tiny import TINY, make_tiny_model

SMALL: dict[str, Any] = {
    "federation.clients": 20,
    "federation.edges": 4,
    "stop.communications": 20,
    "client.local_steps": 1,
    "client.batch": 8,
}


def test_settings_that_do_not_apply_to_a_method_are_left_out_for_it() -> None:
    given = {"cloud.threshold": 2, "edge.edge_rounds": [2], "client.lr": 0.5}
    cells = {cell.name: cell.config for cell in plan(None, ["fedavg", "hifl"], 1, given)}
    assert list(cells) == ["fedavg-s0", "hifl-s0"]
    assert cells["hifl-s0"].cloud.threshold == 2
    assert cells["hifl-s0"].edge.edge_rounds == (2,)
    assert cells["fedavg-s0"].edge.edge_rounds == (1,)
    assert all(config.client.lr == 0.5 for config in cells.values())


@pytest.mark.parametrize(
    ("methods", "seeds", "given", "said"),
    [
        (["fedavg", "nope"], 2, {}, "got nope"),
        ([], 2, {}, "got none"),
        (["fedavg"], 0, {}, "seeds must be"),
        (["fedavg"], 2, {"cloud.threshold": 3}, "applies to none of fedavg"),
        (["hifl"], 2, {"seed": 3}, "use methods and seeds"),
        (["hifl", "fedavg"], 2, {"client.lr": -1}, "client.lr must be > 0"),
    ],
)
def test_a_comparison_that_cannot_run_is_refused(
    methods: list[str], seeds: int, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        plan(None, methods, seeds, given)


def test_own_data_is_compared_in_memory(tiny_data: hiflash.Dataset) -> None:
    comparison = hiflash.compare(
        methods=["fedavg", "hifl"], seeds=[3, 5], data=tiny_data, model=make_tiny_model, **TINY
    )
    assert [(r.method, r.seed) for r in comparison.results] == [
        ("fedavg", 3), ("fedavg", 5), ("hifl", 3), ("hifl", 5),
    ]  # fmt: skip
    assert [row["method"] for row in comparison.rows()] == ["fedavg", "hifl"]


def test_cells_in_processes_equal_cells_run_here_and_are_not_repeated(tmp_path: Path) -> None:
    class Log(Watcher):
        started_cells: list[str]
        done: dict[str, Any]

        def __init__(self) -> None:
            self.started_cells, self.done = [], {}

        def started(self, cell: str) -> None:
            self.started_cells.append(cell)

        def finished(self, cell: str, result: Any) -> None:
            self.done[cell] = result["digest"]

    log = Log()
    common: dict[str, Any] = {"methods": ["fedavg", "hifl"], "seeds": 1, "watcher": log, **SMALL}
    apart = hiflash.compare(directory=tmp_path / "apart", processes=2, **common)
    assert sorted(log.started_cells) == ["fedavg-s0", "hifl-s0"]
    here = hiflash.compare(**common)
    assert [r.digest for r in apart.results] == [r.digest for r in here.results]
    assert log.done == {r.name: r.digest for r in apart.results}
    log.started_cells.clear()
    again = hiflash.compare(directory=tmp_path / "apart", processes=2, **common)
    assert [r.digest for r in again.results] == [r.digest for r in apart.results]
    assert log.started_cells == []
    paths = again.save(tmp_path / "apart")
    assert [path.suffix for path in paths] == [".csv", ".png", ".pdf"]
    with pytest.raises(RunError, match="holds a run with other settings"):
        hiflash.compare(directory=tmp_path / "apart", **{**common, "client.lr": 0.5})


def test_an_interrupted_comparison_goes_on(tmp_path: Path) -> None:
    common: dict[str, Any] = {"methods": ["hifl"], "seeds": 1, "directory": tmp_path / "c", **SMALL}
    whole = hiflash.compare(methods=["hifl"], seeds=1, **SMALL)
    asked = iter([False] * 20)
    with pytest.raises(Paused):
        hiflash.compare(pause=lambda: next(asked, True), **common)
    assert not (tmp_path / "c" / "hifl-s0" / "result.json").exists()
    assert hiflash.compare(**common).results[0].digest == whole.results[0].digest


def test_a_cell_whose_process_dies_is_reported(tmp_path: Path) -> None:
    class Killer(Watcher):
        def progress(self, cell: str, progress: Any) -> None:
            for child in multiprocessing.active_children() if progress["communications"] > 5 else []:
                os.kill(child.pid or 0, signal.SIGKILL)

    settings = {**SMALL, "stop.communications": 5000, "checkpoint_s": 0.1}
    with pytest.raises(RunError, match=r"process of hifl-s0 died \(exit code -9\); give the same command"):
        hiflash.compare(
            methods=["hifl"], directory=tmp_path / "c", processes=2, watcher=Killer(), seeds=1, **settings
        )
    assert json.loads((tmp_path / "c" / "hifl-s0" / "events.jsonl").read_text().splitlines()[0])
