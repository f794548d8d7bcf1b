from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

import hiflash
from hiflash.errors import ConfigError, DamageError, DataError, HiFlashError, Paused, RunError
from hiflash.methods.recipes import METHODS
from hiflash.study.compare import comparison_cells
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
    cells = {
        cell.name: cell.config
        for cell in comparison_cells(methods=["fedavg", "hifl"], seeds=1, settings=given)
    }
    assert list(cells) == ["fedavg-noniid2-s0", "hifl-noniid2-s0"]
    assert cells["hifl-noniid2-s0"].cloud.threshold == 2
    assert cells["hifl-noniid2-s0"].edge.edge_rounds == (2,)
    assert cells["fedavg-noniid2-s0"].edge.edge_rounds == (1,)
    assert all(config.client.lr == 0.5 for config in cells.values())


def test_a_variant_with_the_name_of_its_method_gives_the_method_settings_of_its_own() -> None:
    own = {"fedavg": {"method": "fedavg", "evaluate.every": 100}}
    cells = comparison_cells(methods=["fedavg", "hifl"], variants=own, seeds=1)
    assert [(cell.name, cell.config.evaluate.every) for cell in cells] == [
        ("fedavg-noniid2-s0", 100), ("hifl-noniid2-s0", 10),
    ]  # fmt: skip


def test_a_variant_has_a_label_and_settings_of_its_own() -> None:
    variants = {"delta": {"method": "hifl", "cloud": {"mixing": "delta", "alpha": 1.0}}}
    cells = comparison_cells(
        methods=["fedavg", "hifl"], variants=variants, seeds=1, settings={"cloud.alpha": 0.5}
    )
    assert [(cell.tags["label"], cell.name) for cell in cells] == [
        ("fedavg", "fedavg-noniid2-s0"), ("hifl", "hifl-noniid2-s0"), ("delta", "delta-noniid2-s0"),
    ]  # fmt: skip
    hifl, delta = cells[1].config.cloud, cells[2].config.cloud
    assert (hifl.mixing, hifl.alpha, delta.mixing, delta.alpha) == ("interpolate", 0.5, "delta", 1.0)
    assert [cell.tags["label"] for cell in comparison_cells(variants=variants, seeds=1)] == ["delta"]


def test_partitions_and_seeds_are_crossed_and_pooled_data_is_run_once() -> None:
    cells = comparison_cells(methods=["centralized", "hifl"], partitions=["iid", "noniid1"], seeds=[3, 5])
    assert [cell.name for cell in cells] == [
        "centralized-s3", "centralized-s5", "hifl-iid-s3", "hifl-iid-s5",
        "hifl-noniid1-s3", "hifl-noniid1-s5",
    ]  # fmt: skip
    assert [cell.config.data.partition for cell in cells[2:]] == ["iid", "iid", "noniid1", "noniid1"]
    # Whatever is compared beside it, the centralized run is the same.
    (alone,) = comparison_cells(methods=["centralized"], seeds=[3])
    assert cells[0].config == alone.config


def test_all_is_every_method_there_is() -> None:
    cells = comparison_cells(methods="all", seeds=1)
    assert [cell.tags["label"] for cell in cells] == list(METHODS)


def test_a_file_says_what_to_compare_and_arguments_win(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text("""
        [data]
        partition = "iid"
        [compare]
        methods = ["fedavg"]
        partitions = ["noniid1"]
        seeds = [7]
        [compare.variants."hifl+delta"]
        method = "hifl"
        cloud.mixing = "delta"
    """)
    assert [cell.name for cell in comparison_cells(file)] == ["fedavg-noniid1-s7", "hifl+delta-noniid1-s7"]
    cells = comparison_cells(file, methods=["hierfavg"], variants={}, partitions=["noniid2"], seeds=1)
    assert [cell.name for cell in cells] == ["hierfavg-noniid2-s0"]
    assert hiflash.Config.load(file).data.partition == "iid"  # `hiflash run` reads the same file


def test_the_method_of_a_file_joins_the_usual_ones_where_none_are_listed(tmp_path: Path) -> None:
    def labels(**given: Any) -> list[str]:
        return [cell.tags["label"] for cell in comparison_cells(file, seeds=1, **given)]

    file = tmp_path / "run.toml"
    file.write_text('method = "fedasync"\n')
    assert labels() == ["fedavg", "hierfavg", "hifl", "fedasync"]
    assert labels(methods=["tifl"]) == ["tifl"]
    assert labels(variants={"mine": DELTA}) == ["mine"]
    file.write_text('method = "hifl"\n')
    assert labels() == ["fedavg", "hierfavg", "hifl"]
    file.write_text("method = [1]\n")
    with pytest.raises(ConfigError, match=r"methods must be all or some of .*, got \[1\]"):
        labels()


DELTA = {"method": "hifl", "cloud.mixing": "delta"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"methods": ["fedavg", "nope"]}, "methods must be all or some of .*, got nope"),
        ({"methods": []}, "got none"),
        ({"methods": ["hifl", "fedavg", "hifl"]}, "methods has hifl twice"),
        ({"methods": 3}, "methods must be a list, got 3"),
        ({"seeds": 0}, "seeds must be"),
        ({"seeds": []}, "seeds must be"),
        ({"seeds": [1, 1]}, "seeds has 1 twice"),
        ({"seeds": [-1]}, "seeds must be"),
        (
            {"seeds": 10**8},
            "seeds must be a whole number from 1 to 100,000 or a list of seeds, got 100000000",
        ),
        ({"seeds": 10**5}, "these are 300,000 cells, and at most 100,000 are allowed"),
        ({"settings": {"method": "hifl"}}, "method is not for a comparison; use methods"),
        ({"seeds": ["x"]}, "seeds must be"),
        ({"partitions": []}, "partitions must be"),
        ({"partitions": ["noniid0"]}, "unknown partition 'noniid0'"),
        ({"partitions": ["iid", "iid"]}, "partitions has iid twice"),
        ({"partitions": ["iid"], "settings": {"data.partition": "iid"}}, "both given"),
        ({"variants": {"a/b": DELTA}}, "label of a variant has"),
        ({"variants": {"fedavg": DELTA}}, "not the name of another method, got 'fedavg'"),
        ({"variants": {"x": {"cloud.mixing": "delta"}}}, "variant x needs a method"),
        ({"variants": {"x": {**DELTA, "seed": 3}}}, "variant x cannot have seed"),
        ({"variants": {"x": {**DELTA, "cloud.alfa": 1}}}, "unknown key cloud.alfa; did you mean cloud.alpha"),
        ({"variants": {"x": "hifl"}}, "variants must be sections"),
        ({"methods": ["fedavg"], "settings": {"cloud.threshold": 3}}, "applies to none of fedavg"),
        ({"settings": {"seed": 3}}, "use methods and seeds"),
        ({"settings": {"client.lr": -1}}, r"client.lr must be in \(0, 1e12\]"),
    ],
)
def test_a_comparison_that_cannot_run_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises((ConfigError, DataError), match=said):
        comparison_cells(**given)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("compare = 3", r"compare must be a section \[compare\], got 3"),
        ("[compare]\nmethod = 'hifl'", r"unknown key compare.method .*; \[compare\] may have methods"),
    ],
)
def test_a_plan_that_cannot_be_read_is_refused(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(text)
    with pytest.raises(HiFlashError, match=said):
        comparison_cells(file)


def test_own_data_is_compared_in_memory(tiny_data: hiflash.Dataset) -> None:
    comparison = hiflash.compare(
        methods=["fedavg", "hifl"], seeds=[3, 5], data=tiny_data, model=make_tiny_model, **TINY
    )
    assert [(r.method, r.seed) for r in comparison.results] == [
        ("fedavg", 3), ("fedavg", 5), ("hifl", 3), ("hifl", 5),
    ]  # fmt: skip
    at_the_end = [row for row in comparison.rows() if row["target"] is None]
    assert [(row["label"], row["partition"], row["seeds"]) for row in at_the_end] == [
        ("fedavg", "noniid2", 2), ("hifl", "noniid2", 2),
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="partitions and indices both"):
        hiflash.compare(data=tiny_data, indices=[[0]], partitions=["iid"], **TINY)


def test_cells_in_processes_equal_cells_run_here_and_are_not_repeated(tmp_path: Path) -> None:
    class Log(hiflash.Observer):
        started_cells: list[str]
        done: dict[str, Any]

        def __init__(self) -> None:
            self.started_cells, self.done = [], {}

        def started(self, run: hiflash.RunInfo) -> None:
            if not run.finished:
                self.started_cells.append(run.name)

        def finished(self, run: hiflash.RunInfo, result: hiflash.Result) -> None:
            self.done[run.name] = result.digest

    log = Log()
    common: dict[str, Any] = {"methods": ["fedavg", "hifl"], "seeds": 1, "observers": [log], **SMALL}
    apart = hiflash.compare(directory=tmp_path / "apart", processes=2, **common)
    assert sorted(log.started_cells) == ["fedavg-noniid2-s0", "hifl-noniid2-s0"]
    here = hiflash.compare(**common)
    assert [r.digest for r in apart.results] == [r.digest for r in here.results]
    assert log.done == {r.name: r.digest for r in apart.results}
    log.started_cells.clear()
    again = hiflash.compare(directory=tmp_path / "apart", processes=2, **common)
    assert [r.digest for r in again.results] == [r.digest for r in apart.results]
    assert log.started_cells == []
    paths = again.files
    assert [path.name for path in paths[:3]] == ["cells.csv", "compare.csv", "compare.json"]
    assert {path.suffix for path in paths[3:]} == {".png", ".pdf"}
    saved = json.loads(paths[2].read_text())
    assert [(cell["label"], cell["method"], cell["partition"], cell["seed"]) for cell in saved["cells"]] == [
        ("fedavg", "fedavg", "noniid2", 0), ("hifl", "hifl", "noniid2", 0),
    ]  # fmt: skip
    assert set(again.results[0].to_dict()) < set(saved["cells"][0])
    with pytest.raises(RunError, match=r"other settings \(client.lr is 0.01 there and 0.5 here\)"):
        hiflash.compare(directory=tmp_path / "apart", **{**common, "client.lr": 0.5})


def test_an_interrupted_comparison_goes_on(tmp_path: Path) -> None:
    common: dict[str, Any] = {"methods": ["hifl"], "seeds": 1, "directory": tmp_path / "c", **SMALL}
    whole = hiflash.compare(methods=["hifl"], seeds=1, **SMALL)
    asked = iter([False] * 20)
    with pytest.raises(Paused):
        hiflash.compare(pause=lambda: next(asked, True), **common)
    assert not (tmp_path / "c" / "hifl-noniid2-s0" / "result.json").exists()
    assert hiflash.compare(**common).results[0].digest == whole.results[0].digest


def test_a_cell_whose_process_dies_is_reported(tmp_path: Path) -> None:
    class Killer(hiflash.Observer):
        def progress(self, run: hiflash.RunInfo, status: Any) -> None:
            for child in multiprocessing.active_children() if status["communications"] > 5 else []:
                os.kill(child.pid or 0, signal.SIGKILL)

    settings = {**SMALL, "stop.communications": 5000, "checkpoint_s": 0.1}
    with pytest.raises(
        RunError, match=r"process of hifl-noniid2-s0 died \(exit code -9\); give the same command"
    ):
        hiflash.compare(
            methods=["hifl"], directory=tmp_path / "c", processes=2, observers=[Killer()], seeds=1, **settings
        )
    assert json.loads((tmp_path / "c" / "hifl-noniid2-s0" / "events.jsonl").read_text().splitlines()[0])


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize("content", ["{", "[]", "{}"])
def test_a_damaged_result_does_not_stop_the_other_cells(
    content: str, tiny_data: hiflash.Dataset, tmp_path: Path
) -> None:
    common: dict[str, Any] = {"methods": ["fedavg", "hifl"], "seeds": [3], "directory": tmp_path / "c"}
    common |= {"data": tiny_data, "model": make_tiny_model, **TINY}
    whole = hiflash.compare(**common)
    damaged = tmp_path / "c/fedavg-noniid2-s3/result.json"
    damaged.write_text(content)
    shutil.rmtree(tmp_path / "c/hifl-noniid2-s3")
    with pytest.raises(DamageError) as raised:
        hiflash.compare(**common)
    first, last = str(raised.value).splitlines()
    assert first.startswith(f"fedavg-noniid2-s3: {damaged} is damaged")
    assert last == "all other cells are finished; mend these and give the same command again"
    assert (tmp_path / "c/hifl-noniid2-s3/result.json").is_file()
    damaged.unlink()
    assert [r.digest for r in hiflash.compare(**common).results] == [r.digest for r in whole.results]


def test_a_damaged_checkpoint_or_configuration_does_not_stop_cells_in_other_processes(tmp_path: Path) -> None:
    common: dict[str, Any] = {"methods": ["fedavg", "hifl"], "directory": tmp_path / "c", **SMALL}
    for seed in (0, 1):
        asked = iter([False] * 20)
        with pytest.raises(Paused):
            hiflash.compare(pause=lambda asked=asked: next(asked, True), seeds=[seed], **common)
    checkpoint = tmp_path / "c/fedavg-noniid2-s0/checkpoint.safetensors"
    config = tmp_path / "c/fedavg-noniid2-s1/config.toml"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1] + b"\0")
    config.write_text(config.read_text().replace("seed = 1", "seed = 2"))
    with pytest.raises(DamageError) as raised:
        hiflash.compare(processes=2, seeds=2, **common)
    named = [line.split(" ")[1] for line in str(raised.value).splitlines()[:-1]]
    assert sorted(named) == sorted([str(checkpoint), str(config)])
    assert all((tmp_path / f"c/hifl-noniid2-s{seed}/result.json").is_file() for seed in (0, 1))
