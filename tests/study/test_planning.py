"""Comparisons without training, associations that go out and back in, and the command `federation`."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import hiflash
from hiflash.cli import main
from hiflash.errors import RunError
from hiflash.report.work import per_client_round, work_rows, work_tables

PLAN = ["--trainer", "none", "--data.name", "none", "--stop.communications", "40"]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    assert (
        main(["federation", "example", "--out", str(tmp_path / "f"), "--clients", "20", "--edges", "3"]) == 0
    )
    return tmp_path / "f"


def test_a_comparison_without_training_is_one_at_equal_work(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", *PLAN, "--federation.files", str(files), "--methods", "fedavg,hifl", "--seeds", "1"]
    assert main([*words, "--runs", str(tmp_path / "runs"), "--processes", "1"]) == 0
    said = capsys.readouterr().out
    assert "per 1,000 client rounds" in said
    assert "nothing was trained" in said
    for word in ("accuracy", "reached", "target"):
        assert word not in said
    folder = tmp_path / "runs" / "compare-none"
    assert sorted(path.name for path in folder.glob("*.p*")) == [
        "latency.pdf",
        "latency.png",
        "work.pdf",
        "work.png",
    ]
    rows = json.loads((folder / "compare.json").read_text())["rows"]
    assert [row["label"] for row in rows] == ["fedavg", "hifl"]
    cells = json.loads((folder / "compare.json").read_text())["cells"]
    assert rows[1]["wan_bytes_per_client_round_mean"] == cells[1]["wan_bytes"] / cells[1]["client_uploads"]
    with (folder / "compare.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 2


def result(label: str, **numbers: Any) -> dict[str, Any]:
    base = {
        "label": label, "method": label, "data": "none", "partition": "none", "trainer": "none", "seed": 0,
        "client_uploads": 100, "wan_bytes": 4_000_000, "lan_bytes": 0, "virtual_s": 50.0, "total_cost": 20.0,
        "compute_cost": 5.0, "send_cost": 5.0, "communications": 100, "client_steps": 300,
    }  # fmt: skip
    return {**base, **numbers}


def test_work_is_divided_by_client_rounds_and_runs_without_one_have_none() -> None:
    assert per_client_round(result("fedavg"), "wan_bytes") == 40_000  # 4 MB / 100
    assert per_client_round(result("fedavg", client_uploads=0), "wan_bytes") is None
    (row,) = work_rows([result("fedavg"), result("fedavg", seed=1, virtual_s=70.0)])
    assert row["virtual_s_per_client_round_mean"] == pytest.approx(0.6)  # (0.5 + 0.7) / 2
    assert row["virtual_s_per_client_round_n"] == 2
    (table,) = work_tables([result("fedavg"), result("hifl", virtual_s=5.0, client_steps=300)], 120)
    heads = [str(column.header).replace("\n", " ") for column in table.columns]
    assert "LAN bytes" not in heads  # only zeros
    assert "client steps" not in heads  # the same for all
    assert "virtual time" in heads


def test_a_run_without_training_says_so(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *PLAN, "--federation.files", str(files), "--runs", str(tmp_path / "runs")]) == 0
    captured = capsys.readouterr()
    assert "nothing (trainer none)" in captured.out
    assert "accuracy" not in captured.out
    assert "nothing was trained" in captured.err


def test_an_association_goes_out_and_back_in(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--federation.files", str(files), "--runs", str(tmp_path / "runs"), "--json"]
    assert main(["associate", *common, "--out", str(tmp_path / "clusters.csv")]) == 0
    before = json.loads(capsys.readouterr().out)
    (tmp_path / "clusters.csv").rename(files / "association.csv")
    assert main(["associate", *common, "--strategy", "given"]) == 0
    after = json.loads(capsys.readouterr().out)
    for name in ("total_js", "mean_latency_ms", "waiting_ms", "cluster_sizes"):
        assert after[name] == before[name]
    ran = hiflash.run(
        trainer="none", data={"name": "none"}, federation={"files": str(files)}, stop={"communications": 5}
    )
    config = hiflash.Config(**{"federation.files": str(files)})
    assert config.federation.association == "given"
    assert sum(ran.cluster_sizes) < 20  # those that join later are not there yet


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--strategy", "random,heterogeneity"], "--out writes one association"),
        (["--strategy", "latency"], "latency tiers are not places"),
    ],
)
def test_out_needs_one_association_of_places(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    runs = tmp_path / "runs"
    (files / "availability.csv").unlink()  # latency tiers are no places to be at
    common = ["associate", "--federation.files", str(files), "--runs", str(runs)]
    assert main([*common, *words, "--out", str(tmp_path / "c.csv")]) == 2
    assert said in capsys.readouterr().err
    assert main([*common, "--out", str(tmp_path)]) == 2
    assert "is a folder" in capsys.readouterr().err
    assert not runs.exists()


def test_check_says_what_is_given(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["federation", "check", str(files)]) == 0
    said = capsys.readouterr().out
    assert "20 x 3" in said
    assert "absent at the start" in said
    (files / "clients.csv").write_text("client,step_ms\n0,fast\n")
    assert main(["federation", "check", str(files)]) == 2
    assert "clients.csv, line 2, column 2 (step_ms): it must be a number, got fast" in capsys.readouterr().err


def test_a_bad_row_ends_a_command_before_anything_is_written(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (files / "edges.csv").write_text("edge,wan_rtt_ms\n0,1\n1,2\n2,-3\n")
    for command in ("run", "compare", "associate"):
        runs = tmp_path / f"runs-{command}"
        assert main([command, *PLAN, "--federation.files", str(files), "--runs", str(runs)]) == 2
        assert "edges.csv, line 4, column 2 (wan_rtt_ms)" in capsys.readouterr().err
        assert not runs.exists()


def test_a_cell_of_other_files_is_not_taken_for_one_of_these(files: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "trainer": "none", "data": {"name": "none"}, "stop": {"communications": 5},
        "federation": {"files": str(files)}, "directory": tmp_path / "c", "methods": ["hifl"], "seeds": 1,
    }  # fmt: skip
    first = hiflash.compare(**settings)
    assert hiflash.compare(**settings).results[0].virtual_s == first.results[0].virtual_s
    (files / "clients.csv").write_text("client,step_ms\n" + "".join(f"{k},9\n" for k in range(20)))
    with pytest.raises(RunError, match=r"was run before the files of .* changed"):
        hiflash.compare(**settings)


def test_arrays_are_compared_and_swept_in_this_process(tmp_path: Path) -> None:
    from hiflash.data.federation.example import make_example

    made = make_example(20, 3)
    common: dict[str, Any] = {
        "trainer": "none", "data": {"name": "none"}, "stop": {"communications": 10}, "seeds": 1,
        "federation": made,
    }  # fmt: skip
    compared = hiflash.compare(methods=["hifl"], directory=tmp_path / "c", processes=2, **common)
    swept = hiflash.sweep(grid={"edge.edge_rounds": [[1], [2]]}, by="virtual_s", **common)
    assert len(compared.results[0].grants_per_edge) == 3
    assert len(swept.results) == 2
    again = hiflash.compare(methods=["hifl"], directory=tmp_path / "c", processes=2, **common)
    assert again.results[0].virtual_s == compared.results[0].virtual_s


@pytest.mark.parametrize("value", ["folder", 3])
def test_a_federation_that_is_none_is_refused_with_the_right_form(value: object) -> None:
    with pytest.raises(hiflash.errors.ConfigError, match="federation must be a FederationData"):
        hiflash.run(federation=value)  # type: ignore[arg-type]
