"""The constant of a forecast: given, measured or known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from benchmarks.committed_tables import RESULTS, method_tables
from benchmarks.forecast_error import by_regime, summary

import hiflash
from hiflash.config import Config
from hiflash.study.compare import comparison_cells
from hiflash.study.forecast.constants import Constant, find_constant, task_of
from hiflash.study.forecast.expected import FILE, expected_error, regime_of
from hiflash.study.forecast.study import forecast_cells
from tiny import TINY, make_tiny_model

GOAL = {**TINY, "stop.target": 0.6, "stop.communications": 2000}
Run = Callable[..., hiflash.Result]


@pytest.fixture
def fedavg(run_tiny: Run, tmp_path: Path, no_figures: None) -> Path:
    result = run_tiny("fedavg", tmp_path / "fedavg", **GOAL)
    assert result.targets["0.6"] is not None
    return tmp_path / "fedavg"


def from_runs(folder: Path | list[Path], data: hiflash.Dataset, **more: Any) -> hiflash.Forecast:
    return hiflash.forecast(
        methods=["fedavg"], measured=folder, seeds=1, data=data, model=make_tiny_model, **{**GOAL, **more}
    )


def test_a_finished_run_of_fedavg_gives_its_rounds(fedavg: Path, tiny_data: hiflash.Dataset) -> None:
    saved = json.loads((fedavg / "result.json").read_text())
    rounds = saved["targets"]["0.6"]["communications"] / 10  # 10 clients a round
    found = from_runs(fedavg, tiny_data)
    assert found.constants["noniid2"].rounds == rounds
    assert str(fedavg) in found.constants["noniid2"].origin
    # FedAvg's own forecast is its measurement, or a little more: classes do not move in step.
    assert 10 * rounds <= found.rows()[0]["communications"] < 10 * rounds + 10


def test_several_runs_and_comparisons_give_the_mean(
    fedavg: Path, run_tiny: Run, tiny_data: hiflash.Dataset, no_figures: None
) -> None:
    run_tiny("fedavg", fedavg.parent / "other", **{**GOAL, "seed": 1})
    run_tiny("hifl", fedavg.parent / "hifl", **GOAL)  # it is no FedAvg, and is passed over
    found = from_runs(fedavg.parent, tiny_data)
    each = [
        from_runs(fedavg.parent / name, tiny_data).constants["noniid2"].rounds for name in ("fedavg", "other")
    ]
    assert found.constants["noniid2"].rounds == fmean(each)
    assert len(found.constants["noniid2"].measured) == 2


def test_a_run_of_another_task_is_an_error(fedavg: Path, tiny_data: hiflash.Dataset) -> None:
    with pytest.raises(hiflash.RunError, match=r"another task: client.lr is 0.05 there and 0.1 here"):
        from_runs(fedavg, tiny_data, **{"client.lr": 0.1})


def test_a_run_that_missed_the_target_is_an_error(fedavg: Path, tiny_data: hiflash.Dataset) -> None:
    with pytest.raises(hiflash.RunError, match=r"did not reach accuracy 0\.99"):
        from_runs(fedavg, tiny_data, **{"stop.target": 0.99})


def test_a_lower_target_of_the_same_run_serves_too(fedavg: Path, tiny_data: hiflash.Dataset) -> None:
    lower = from_runs(fedavg, tiny_data, **{"stop.target": 0.4}).constants["noniid2"].rounds
    assert lower < from_runs(fedavg, tiny_data).constants["noniid2"].rounds


def test_a_folder_without_fedavg_is_an_error(tmp_path: Path, tiny_data: hiflash.Dataset) -> None:
    with pytest.raises(hiflash.RunError, match="no finished run of FedAvg"):
        from_runs(tmp_path, tiny_data)
    with pytest.raises(hiflash.RunError, match="is no run directory"):
        from_runs(tmp_path / "missing", tiny_data)


def test_an_unknown_task_says_how_to_measure_it() -> None:
    with pytest.raises(hiflash.ConfigError, match=r"--method fedavg --client\.lr 0\.03 --stop\.target 0\.9"):
        hiflash.forecast(client={"lr": 0.03})


def test_the_constant_is_given_once() -> None:
    with pytest.raises(hiflash.ConfigError, match="leave one of them out"):
        hiflash.forecast(rounds=3, measured="runs/fedavg")
    with pytest.raises(hiflash.ConfigError, match="these are several tasks"):
        hiflash.forecast(rounds=3, partitions=["noniid1", "noniid2"])


def test_a_method_does_not_change_the_task() -> None:
    tasks = [
        task_of(Config(method=method)) for method in ("fedavg", "fedprox", "fedat", "fednova", "hiflash")
    ]
    assert all(task == tasks[0] for task in tasks)
    assert task_of(Config(**{"client.local_steps": 5})) != tasks[0]


@pytest.mark.parametrize("partition", ["noniid2", "noniid1"])
def test_known_constants_are_those_of_the_committed_table(partition: str) -> None:
    known = find_constant(Config(**{"data.name": "mnist", "data.partition": partition}), None, [])
    rows = {row.label: row for row in method_tables(RESULTS / "methods_mnist.md")[partition]}
    assert round(10 * known.rounds) == rows["fedavg"].communications


def test_expected_errors_are_those_of_the_committed_rows() -> None:
    rows = json.loads((RESULTS / "forecast" / "rows.json").read_text())["rows"]
    known = json.loads(FILE.read_text())["regimes"]
    assert set(known) == {"alike", "edge-noniid", "momentum", "many-steps"}
    assert known == {regime: pytest.approx(told) for regime, told in by_regime(rows).items()}


def test_expected_errors_know_their_kind_of_run() -> None:
    assert regime_of(3, None, 0.0) == regime_of(3, 0.15, 0.0) == "alike"
    assert regime_of(3, 0.32, 0.0) == "edge-noniid"
    assert regime_of(3, 0.32, 0.5) == "momentum"
    assert regime_of(30, 0.15, 0.5) == "many-steps"
    assert expected_error("many-steps")["median"] > expected_error("alike")["median"]
    assert expected_error("many-steps")["worst"] > expected_error("alike")["worst"]
    rows = json.loads((RESULTS / "forecast" / "rows.json").read_text())["rows"]
    pushed = [row for row in rows if row["regime"] == "momentum"]
    labels = {row["label"] for row in pushed if not row["label"].startswith("hidelta")}
    assert labels == {
        "fedavgm", "fedavgm-0.5", "hifl+delta+momentum", "fedavg-momentum", "hierfavg-momentum",
    }  # fmt: skip
    assert expected_error("momentum")["worst"] == pytest.approx(summary(pushed)["worst"])


def variants_of(key: str, low: Any, high: Any, **more: Any) -> dict[str, dict[str, Any]]:
    return {"low": {"method": "fedavg", key: low, **more}, "high": {"method": "fedavg", key: high, **more}}


def test_variants_with_other_targets_have_constants_of_their_own() -> None:
    found = hiflash.forecast(variants=variants_of("stop.target", 0.7, 0.95), seeds=1)
    known = {
        target: find_constant(Config(**{"stop.target": target}), None, []).rounds for target in (0.7, 0.95)
    }
    assert {row["label"]: row["rounds"] for row in found.rows()} == {"low": known[0.7], "high": known[0.95]}
    assert list(found.constants) == ["noniid2/low", "noniid2/high"]
    low, high = found.rows()
    alone = hiflash.forecast(variants={"high": {"method": "fedavg", "stop.target": 0.95}}, seeds=1)
    assert high["communications"] == alone.rows()[0]["communications"] > 5 * low["communications"]
    assert list(alone.constants) == ["noniid2"]


def test_a_variant_of_a_task_without_a_constant_is_refused_by_its_name() -> None:
    with pytest.raises(
        hiflash.ConfigError, match=r"^noniid2/high: no constant is known.*--client\.local_steps 30"
    ):
        hiflash.forecast(variants=variants_of("client.local_steps", 3, 30), seeds=1)
    with pytest.raises(hiflash.ConfigError, match="noniid2/high: no constant is known"):
        hiflash.forecast(variants=variants_of("federation.clients", 100, 200), seeds=1)


def test_one_number_of_rounds_is_not_for_variants_of_several_tasks() -> None:
    with pytest.raises(
        hiflash.ConfigError,
        match="one number of rounds for noniid2/low, noniid2/high: these are several tasks",
    ):
        hiflash.forecast(variants=variants_of("client.lr", 0.05, 0.1), rounds=20, seeds=1)


def test_a_method_that_is_left_out_needs_no_constant() -> None:
    variants = {"mine": {"method": "hierfavg"}, "out": {"method": "scaffold", "client.lr": 0.2}}
    found = hiflash.forecast(variants=variants, seeds=1)
    assert list(found.constants) == ["noniid2"]
    assert list(found.left_out) == ["out"]


def test_variants_have_data_of_their_own() -> None:
    variants = {
        "digits": {"method": "hierfavg", "trainer": "none", "data.name": "mnist5k"},
        "none": {"method": "hierfavg", "trainer": "none", "data.name": "none"},
    }
    cells = comparison_cells(variants=variants, seeds=1, settings={})
    constants = {f"noniid2/{label}": Constant(4, "given") for label in variants}
    rows = {row["label"]: row for row in forecast_cells(cells, constants).rows()}
    assert rows["digits"]["mean_js"] > 0
    assert rows["none"]["mean_js"] is None  # it has no labels


def test_constants_from_runs_belong_to_the_metric_of_the_target(
    fedavg: Path, tiny_data: hiflash.Dataset
) -> None:
    rows = json.loads((fedavg / "result.json").read_text())["evaluations"]
    goal = rows[1]["loss"]
    expected = next(row["version"] for row in rows if row["loss"] <= goal)
    found = from_runs(fedavg, tiny_data, **{"stop.metric": "loss", "stop.target": goal})
    assert found.constants["noniid2"].rounds == expected
    with pytest.raises(hiflash.RunError, match=r"did not reach loss 0\.0001"):
        from_runs(fedavg, tiny_data, **{"stop.metric": "loss", "stop.target": 0.0001})


def test_several_runs_of_other_tasks_are_told_one_per_line(
    fedavg: Path, run_tiny: Run, tiny_data: hiflash.Dataset, no_figures: None
) -> None:
    run_tiny("fedavg", fedavg.parent / "other", **{**GOAL, "seed": 1})
    with pytest.raises(hiflash.RunError) as caught:
        from_runs(fedavg.parent, tiny_data, **{"client.lr": 0.1})
    first, second, way_out = str(caught.value).splitlines()
    assert first == f"{fedavg} is another task: client.lr is 0.05 there and 0.1 here"
    assert second == f"{fedavg.parent / 'other'} is another task: client.lr is 0.05 there and 0.1 here"
    assert way_out == "give a finished run of FedAvg on this task"
