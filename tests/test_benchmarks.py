"""A short smoke of the benchmarks; `make bench` runs them in full."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from benchmarks.__main__ import main as benchmarks_main
from benchmarks.committed_tables import RESULTS, Measured, method_table, method_tables, number, tables
from benchmarks.environment import environment_steps_s
from benchmarks.forecast_error import by_regime, errors, summary
from benchmarks.forecast_paper import Committed, committed_items, forecast_item
from benchmarks.peers import ratio_with_startup
from benchmarks.secure_sums import secagg_sum_large_s
from benchmarks.surrogate_forecast import beside, forecast

import hiflash
from hiflash.errors import RunError
from hiflash.study.compare import comparison_cells
from hiflash.study.policies import plan
from hiflash.study.run_cells import run_cells

ROOT = Path(__file__).parents[1]


def benchmarks(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)


def test_a_named_benchmark_prints_one_json_object() -> None:
    done = benchmarks("trainer_lenet_vs_loop", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found) == ["trainer_lenet_vs_loop"]
    assert found["trainer_lenet_vs_loop"] > 0  # how much is for `make bench` to say: tests share the machine


def test_a_benchmark_without_its_data_is_an_error_that_names_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HIFLASH_DATA", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["benchmarks", "forecast_error", "--json"])
    assert benchmarks_main() == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "error: dataset 'mnist' was not found" in told.err
    assert "HIFLASH_DATA" in told.err


def test_an_unknown_benchmark_is_an_error_that_lists_the_known() -> None:
    done = benchmarks("trainer_lenet")
    assert done.returncode == 2
    assert "there are trainer_lenet_vs_loop" in done.stderr


def test_the_table_of_codecs_has_a_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    module = runpy.run_path(str(ROOT / "benchmarks" / "compression.py"))
    module["main"](communications=2, codecs=[("topk", "int8", 0.1)])
    _, line = capsys.readouterr().out.splitlines()
    assert line.split()[:3] == ["topk", "0.1", "int8"]


def test_start_up_counts_on_both_sides() -> None:
    flower = {"steps_per_s_with_startup": 1000 / 60, "total_s": 60.0}
    # 1,000 steps: 5 s + 1000 / 100 s here, 60 s there.
    assert ratio_with_startup(100.0, 5.0, flower) == pytest.approx(4.0)


def test_the_benchmark_of_secure_sums_opens_one() -> None:
    pytest.importorskip("Crypto", reason='needs pip install "hiflash[serve]"')
    found = secagg_sum_large_s(clients=7, size=1_000, lost=2)
    assert found["secagg_sum_large_s"] > found["secagg_sum_large_edge_s"] > 0


def test_the_benchmark_of_the_environment_takes_steps() -> None:
    assert environment_steps_s(steps=300, repeats=1) > 0


def test_a_forecast_stands_beside_the_real_cost(tmp_path: Path, no_figures: None) -> None:
    settings: dict[str, Any] = {
        "data.name": "mnist5k", "federation.clients": 20, "federation.edges": 4, "client.batch": 8,
        "stop.communications": 10, "stop.target": 0.25,
    }  # fmt: skip
    wanted: dict[str, Any] = {
        "policies": ["fixed-0", "random"], "associations": ["noniid"], "enforce": ["admit"],
        "dynamics": ["static"], "seeds": 2, "choice_seeds": (),
    }  # fmt: skip
    results = run_cells(plan(**wanted, settings=settings).cells, directory=tmp_path)
    told = forecast(tmp_path, 2, **wanted, settings=settings)["noniid-admit-static"]
    costs = {name: [result.total_cost for result in results[at::2]] for at, name in enumerate(told)}
    assert list(costs) == ["fixed-0", "random"]
    for name, real in costs.items():
        assert told[name]["real"] == pytest.approx(sum(real) / 2)
        assert told[name]["surrogate"] > 0
        assert told[name]["seeds"] == 2
    of_mean = 100 * (sum(costs["random"]) / sum(costs["fixed-0"]) - 1)
    assert told["random"]["real_percent"][0] == pytest.approx(of_mean)
    assert "real_percent" not in told["fixed-0"]


def test_a_run_of_another_agent_is_not_forecast(tmp_path: Path, no_figures: None) -> None:
    settings = {"data.name": "mnist5k", "stop.communications": 2}
    wanted: dict[str, Any] = {"policies": ["agent"], "associations": ["noniid"], "enforce": ["admit"]}
    wanted |= {"dynamics": ["static"], "seeds": 1, "choice_seeds": (), "settings": settings}
    [result] = run_cells(plan(**wanted).cells, directory=tmp_path)
    assert list(forecast(tmp_path, 1, **wanted)) == ["noniid-admit-static"]
    assert result.path is not None
    file = result.path / "result.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "agent": "0" * 12}))
    (result.path / "SHA256SUMS").unlink()  # the change is meant
    with pytest.raises(RunError, match=r"run with another agent \(000000000000\)"):
        forecast(tmp_path, 1, **wanted)


def test_how_far_a_forecast_is_off_is_told_in_points_of_the_first_policy() -> None:
    first = [{"seed": 0, "real": 100, "surrogate": 200}, {"seed": 1, "real": 100, "surrogate": 100}]
    ours = [{"seed": 1, "real": 110, "surrogate": 100}, {"seed": 0, "real": 90, "surrogate": 160}]
    told = beside(ours, first)
    # Seed 1: 100 % forecast of 110 %; seed 0: 80 % of 90 %. In the means: 100 of 100, and 130 of 150.
    assert told["surrogate_off_by_points"] == pytest.approx([-10, -10, -10])
    assert told["real_percent"][0] == pytest.approx(0)
    assert told["surrogate_percent"][0] == pytest.approx(-100 * 20 / 150)


def test_a_forecast_of_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="has no finished run of this evaluation"):
        forecast(tmp_path, 1, policies=["fixed-0"], seeds=1)


def test_the_tables_of_results_are_read_with_their_numbers() -> None:
    page = "# A\n\n## Two classes, Non-IID(2)\n\n| Method | Communications to 90 % | Virtual seconds |\n"
    page += "| --- | --- | --- |\n| hifl | 1,817 (1,710-1,910) | 59 (50-64) |\n| slow | - | - |\n"
    rows = tables(page)["Two classes, Non-IID(2)"]
    assert [row["Method"] for row in rows] == ["hifl", "slow"]
    assert number(rows[0]["Communications to 90 %"]) == 1817
    assert number(rows[1]["Virtual seconds"]) is None
    with pytest.raises(ValueError, match="no number in the cell 'many'"):
        number("many")


def test_a_table_of_results_is_written_as_it_is_read() -> None:
    def cell(label: str, comms: float | None) -> dict[str, Any]:
        costs = ("communications", "client_steps", "virtual_s", "wan_bytes")
        return {"label": label, "targets": {"0.9": None if comms is None else dict.fromkeys(costs, comms)}}

    text = method_table([cell("hifl", 100), cell("hifl", 300), cell("slow", None)], 0.9)
    found = tables(f"# T\n{text}")["T"]
    assert found[0]["Communications to 90 %"] == "200 (100-300)"
    assert (found[0]["Seeds that reached it"], found[1]["Seeds that reached it"]) == ("2 of 2", "0 of 1")
    assert found[1]["Virtual seconds"] == "-"


def test_errors_of_forecasts_are_relative_and_leave_out_what_missed_the_target() -> None:
    def row(label: str, measured: float, told: float, reached: int = 3) -> dict[str, Any]:
        both = {"measured_communications": measured, "forecast_communications": told}
        both |= {"measured_virtual_s": measured, "forecast_virtual_s": 2 * measured}
        return {"group": "g", "part": "", "label": label, "seeds": 3, "reached": reached, **both}

    rows = [row("a", 100, 90), row("b", 200, 220), row("c", 300, 900, reached=2), row("d", 400, 400)]
    assert errors(rows) == pytest.approx([-0.1, 1.0, 0.1, 1.0, 0.0, 1.0])
    told = summary(rows)
    assert (told["rows"], told["worst"], told["rank"]) == (3, 1.0, pytest.approx(1.0))
    assert told["median"] == pytest.approx(0.55)  # between 0.1 and 1
    assert summary(rows[:2])["rank"] is None  # two rows say nothing of an order


def test_a_run_that_stands_in_several_tables_counts_once_for_its_kind() -> None:
    def row(group: str, regime: str, told: float) -> dict[str, Any]:
        both = {f"measured_{name}": 100.0 for name in ("communications", "virtual_s")}
        both |= {f"forecast_{name}": told for name in ("communications", "virtual_s")}
        return {"group": group, "part": "", "regime": regime, "seeds": 3, "reached": 3, **both}

    rows = [row("a", "alike", 110), row("b", "alike", 110), row("b", "alike", 140), row("b", "momentum", 60)]
    told = by_regime(rows)
    assert list(told) == ["alike", "momentum"]
    assert (told["alike"]["rows"], told["alike"]["median"]) == (2, pytest.approx(0.25))
    assert told["momentum"]["worst"] == pytest.approx(0.4)
    assert told["momentum"]["rank"] is None  # of one row


def test_committed_items_of_the_paper_have_a_cell_for_every_row_and_seed() -> None:
    items = {item.name: item for item in committed_items()}
    assert {"thresholds", "edge-iid", "mixing-grid", "partitions-mnist", "agent-cost"} <= set(items)
    assert not {"latency", "js-lambda", "models", "bounds"} & set(items)  # nothing is trained there
    for item in items.values():
        found = Counter((cell.config.data.partition, cell.tags["label"]) for cell in item.cells)
        pooled = [key for key, row in item.measured.items() if row.label.startswith("centralized")]
        assert found == {key: row.seeds for key, row in item.measured.items() if key not in pooled}
        assert all(cell.config.stop.target != "none" for cell in item.cells)
    rounds = [constant.rounds for _, constant in items["partitions-mnist"].constants()]
    assert rounds[0] == pytest.approx(251.96187)  # 2,519.6 communications, 10 a round


def test_an_item_takes_its_constant_from_fedavg_of_the_same_task() -> None:
    def item(name: str, *methods: str, **settings: Any) -> Committed:
        cells = comparison_cells(methods=methods, seeds=1, settings=settings)
        measured = {
            (cell.config.data.partition, cell.tags["label"]): Measured(cell.tags["label"], 1, 1, 40.0, 2.0)
            for cell in cells
        }
        return Committed(name, measured, cells)

    other_task = item("other", "fedavg", **{"client.lr": 0.2})
    items = [item("without", "hierfavg"), other_task, item("with", "fedavg", "hifl")]
    rare = item("rare", "fedavg", "hifl", **{"evaluate.every": 100})
    ((_, told, _),) = forecast_item(items[0], [items[0], rare])
    assert told["rounds"] > 200  # a known constant
    assert [told["rounds"] for _, told, _ in forecast_item(rare, items)] == [4]  # its own
    (found,) = forecast_item(items[0], items)
    measured, told, partition = found
    assert (measured.label, partition, told["rounds"]) == ("hierfavg", "noniid2", 4)  # 40 / 10
    assert told["communications"] == pytest.approx(4, rel=0.15)  # 2 rounds of 2 edges, 2 each
    assert [row.label for row, *_ in forecast_item(items[2], items)] == ["hifl"]  # FedAvg is the constant


@pytest.mark.real_data
@pytest.mark.usefixtures("real_data")
def test_forecasts_of_real_runs_are_within_the_bar() -> None:
    """Two rows of the committed table; `python -m benchmarks forecast_error` takes all."""
    rows = {row.label: row for row in method_tables(RESULTS / "methods_mnist.md")["noniid2"]}
    constant = rows["fedavg"].communications
    assert constant is not None
    told = hiflash.forecast(methods=["hierfavg", "hifl"], rounds=constant / 10, data={"name": "mnist"})
    for found in told.rows():
        assert found["communications"] == pytest.approx(rows[found["label"]].communications, rel=0.25)
        assert found["virtual_s"] == pytest.approx(rows[found["label"]].virtual_s, rel=0.25)
