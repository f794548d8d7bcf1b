"""`hiflash evaluate-agent` as a person uses it, on the data that comes with the package."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hiflash.cli import main
from hiflash.config import Config
from hiflash.core.thresholds.agent import Agent, network_shapes
from hiflash.sim.federation import build
from hiflash.store.agent_file import save_agent
from hiflash.weights import from_bytes

SMALL = [
    "evaluate-agent", "--data.name=mnist5k", "--federation.clients=20", "--federation.edges=4",
    "--client.batch=8", "--stop.communications=10", "--stop.target=0.25", "--processes=1", "--name=e",
]  # fmt: skip
ROUND = [*SMALL, "--policies=random,fixed-0", "--enforce=admit"]


@pytest.fixture
def evaluate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], no_figures: None
) -> Any:
    """Return a caller of the command, which gives what it printed as an object."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> Any:
        assert main([*words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return call


def test_an_evaluation_tells_costs_by_policy_and_resumes(evaluate: Any, tmp_path: Path) -> None:
    words = [*ROUND, "--seeds=2", "--choice-seeds=100", "--associations=aware", "--dynamics=static"]
    told = evaluate(*words)
    assert list(told)[:2] == ["random", "fixed-0"]
    assert told["seeds"] == [0, 1]
    for policy in ("random", "fixed-0"):
        stats = told[policy]["static"]
        files = [tmp_path / f"runs/e/aware-admit-static-{policy}-s{seed}/result.json" for seed in (0, 1)]
        results = [json.loads(file.read_text()) for file in files]
        for name in ("total_cost", "communications", "virtual_s", "client_steps"):
            assert stats[name]["values"] == [result[name] for result in results]
            assert stats[name]["low"] <= stats[name]["mean"] <= stats[name]["high"]
        assert stats["reached"] == sum(result["accuracy"] >= 0.25 for result in results)
        assert sum(stats["edges_fast_to_slow"]["applied_share"]) == pytest.approx(1)
        parts = sum(stats[name]["mean"] for name in ("compute_cost", "send_cost", "time_cost"))
        assert parts == pytest.approx(stats["total_cost"]["mean"])
    chosen = told["comparisons"]["aware-admit"]["static"]
    assert chosen["chosen_on"] == [100]
    assert chosen["best_fixed"] == "fixed-0"
    assert json.loads((tmp_path / "runs/e/evaluation.json").read_text()) == told
    for name in ("table.md", "cells.csv", "cost-aware-admit.png"):
        assert (tmp_path / "runs/e" / name).stat().st_size > 500

    # Given again nothing is repeated, and a cell that is gone is made again as it was.
    cells = sorted((tmp_path / "runs/e").glob("*/result.json"))
    gone = cells.pop()
    before = [cell.stat().st_mtime_ns for cell in cells]
    edges = json.loads((gone.parent / "edges.json").read_text())
    for file in gone.parent.iterdir():
        file.unlink()
    gone.parent.rmdir()
    missing = evaluate(*words, "--finished")
    assert missing["missing"] == 1
    assert evaluate(*words) == told
    assert [cell.stat().st_mtime_ns for cell in cells] == before
    assert json.loads((gone.parent / "edges.json").read_text()) == edges


def test_the_worst_edge_is_measured_on_the_saved_model(
    evaluate: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*SMALL, "--policies=fixed-2", "--enforce=discard", "--associations=noniid", "--dynamics=static"]
    words += ["--seeds=1", "--choice-seeds=none"]
    told = evaluate(*words)
    assert told["main"] == "noniid-discard"
    cell = tmp_path / "runs/e/noniid-discard-static-fixed-2-s0"
    edges, result = (json.loads((cell / f"{name}.json").read_text()) for name in ("edges", "result"))
    assert told["fixed-2"]["static"]["worst_edge_accuracy"]["mean"] == min(edges["edge_accuracy"])
    federation = build(Config.load(cell / "config.toml"))
    recall = federation.recall(from_bytes((cell / "model.safetensors").read_bytes(), federation.start.spec))
    federation.close()
    assert federation.data is not None
    tested = Counter(federation.data.y_test.tolist())
    hits = sum(recall[label] * times for label, times in tested.items())
    assert hits / tested.total() == pytest.approx(result["accuracy"])
    for cluster, accuracy in zip(federation.population.clusters, edges["edge_accuracy"], strict=True):
        labels = [
            y for client in cluster for y in federation.data.y[federation.population.split.indices[client]]
        ]
        assert accuracy == pytest.approx(sum(recall[label] for label in labels) / len(labels))
    assert edges["granted"] == result["grants_per_edge"]
    assert sum(edges["refused"]) + sum(edges["waited"]) == result["refused"] + result["waited"]
    # Numbers of another run in the same folder are not believed.
    (cell / "edges.json").write_text(json.dumps({**edges, "digest": "old", "edge_accuracy": [0.0]}))
    with monkeypatch.context() as patched:
        patched.setattr("hiflash.cli.evaluate_agent.pause_on_signal", lambda: lambda: True)
        assert main(words) == 130  # after the cell it was at
    assert evaluate(*words, "--finished") == told


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("events.jsonl", b'"event":"grant"', b'"event":"refuse"'),
        ("events.jsonl", b'{"t"', b"\0" * 4),
        ("model.safetensors", b"F32", b"F16"),
        ("result.json", b"noniid2", b"noniid1"),
    ],
)
def test_damaged_files_of_a_finished_run_are_named(
    name: str, old: bytes, new: bytes, evaluate: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*SMALL, "--policies=fixed-0", "--enforce=discard", "--associations=noniid", "--dynamics=static"]
    words += ["--seeds=1", "--choice-seeds=none"]
    evaluate(*words)
    cell = tmp_path / "runs/e/noniid-discard-static-fixed-0-s0"
    (cell / "edges.json").write_text("{")  # only a copy: measured again
    evaluate(*words, "--finished")
    (cell / "edges.json").unlink()
    content = (cell / name).read_bytes()
    assert old in content
    (cell / name).write_bytes(content.replace(old, new, 1))
    assert main([*words, "--finished"]) == 2
    said = capsys.readouterr().err
    assert f"runs/e/{cell.name}/{name} is damaged" in said
    assert "remove" in said


def save_fixed(path: Path, threshold: int, edges: int = 4) -> None:
    """Save an agent that always says the same."""
    arrays = {name: np.zeros(shape, np.float32) for name, shape in network_shapes("paper", edges, 10).items()}
    arrays["head.4.bias"][threshold + 1] = 1.0
    save_agent(path, Agent("paper", arrays, edges, 8))


def test_an_agent_that_always_says_2_costs_what_a_fixed_threshold_of_2_costs(
    evaluate: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "two.safetensors"
    save_fixed(file, 2)
    words = [*SMALL, "--quick", "--policies=random,fixed-2,agent", f"--agent=aware={file.name}"]
    told = evaluate(*words)
    assert told["agent"] == told["fixed-2"]
    assert told["agents"]["aware-admit"]["agent"] == str(file)
    judged = told["comparisons"]["aware-admit"]["static"]
    assert judged["against_best_fixed"]["values"] == [0]
    assert judged["worst_edge"]["percent"] == 0
    ours, theirs = (told[policy]["static"]["total_cost"]["mean"] for policy in ("agent", "random"))
    assert judged["against_random"]["values"] == [ours - theirs]
    assert (tmp_path / "runs/e/normalised-aware-admit.png").stat().st_size > 5_000

    # Its cells are not taken for those of another agent in the same file.
    digest = told["agents"]["aware-admit"]["digest"]
    save_fixed(file, 0)
    assert main(words) == 2
    assert f"was run with another agent ({digest[:12]}) than {file}" in capsys.readouterr().err
    assert evaluate(*words, "--finished") == told
    file.unlink()
    (tmp_path / "runs/e/aware-admit-static-agent-s0/edges.json").unlink()
    assert evaluate(*words, "--finished") == told


@pytest.mark.parametrize("there", ["default", "mnist-noniid"])
def test_the_agents_of_all_associations_are_looked_for_before_anything_runs(
    there: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hiflash.agents.FOLDER", tmp_path)
    save_fixed(tmp_path / f"{there}.safetensors", 2)
    assert main([*SMALL, "--policies=fixed-0,agent"]) == 2
    (missing,) = {"default", "mnist-noniid"} - {there}
    assert f"no agent '{missing}' comes with HiFlash" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--policies=best"], "policies must be some of"),
        (["--seeds=x"], "--seeds must be"),
        (["--cloud.threshold=2"], "an evaluation varies cloud.threshold itself; use --policies"),
        (["--policies=agent", "--agent=nobody"], "no agent 'nobody' comes with HiFlash"),
        (["--policies=agent", "--agent=aware=no/agent"], "no/agent does not exist"),
        (["--finished"], "runs/e has no finished run of this evaluation"),
        (["--data.name=mnist", "--data.dir=nowhere"], "Or use --data.name mnist5k"),
    ],
)
def test_bad_input_ends_with_code_2_and_writes_nothing(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HIFLASH_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main([*ROUND, *words]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.out == ""
    assert list(tmp_path.iterdir()) == []
