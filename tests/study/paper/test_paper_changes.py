"""What an item tells of how it was made: the command, the changes, the runs, their seconds and versions."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import hiflash
from hiflash.cli import main
from hiflash.cli.words import value
from hiflash.study.paper import items
from hiflash.study.paper.changes import changes, command_of
from hiflash.study.paper.items import NAMES, SCALES, load_item

LATENCY: dict[str, Any] = {"data.name": "mnist5k", "stop.communications": 3, "workers": 1}
TRAINING: dict[str, Any] = {"data.name": "mnist5k", "stop.communications": 5}

pytestmark = pytest.mark.usefixtures("no_figures")


def short(monkeypatch: pytest.MonkeyPatch, item: str) -> None:
    """Let an item train for two episodes."""
    plan = items.Plan("small", {**load_item(item).plan("small").content, "episodes": 2})
    monkeypatch.setattr(items.Item, "plan", lambda self, scale: plan)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", NAMES)
def test_an_item_as_it_ships_has_the_plain_command(name: str, scale: str) -> None:
    item = load_item(name)
    assert changes(item, scale, None, {}) == {}
    assert command_of(item, scale, {}) == f"hiflash paper run {name} --scale {scale}"


def test_seeds_and_settings_that_are_as_planned_are_no_change() -> None:
    item = load_item("thresholds")  # three seeds, on MNIST
    for seeds in (3, [0, 1, 2]):
        assert changes(item, "full", seeds, {"data": {"name": "mnist"}}) == {}
    assert changes(item, "full", 5, {}) == {"seeds": 5}
    assert changes(item, "full", [0, 7], {}) == {"seeds": [0, 7]}
    assert changes(load_item("communications-mnist"), "full", 2, {}) == {"seeds": 2}  # of accuracy-mnist


def test_the_command_is_read_as_the_same_changes() -> None:
    changed = {
        "data.name": "mnist5k", "workers": 1, "edge.edge_rounds": [1, 2], "client.lr": 0.05,
        "data.augment": True, "cloud.agent": "it's mine.safetensors", "stop.target": "none",
        "wan.link": "true",
    }  # fmt: skip
    words = shlex.split(command_of(load_item("thresholds"), "small", changed))
    assert words[:6] == ["hiflash", "paper", "run", "thresholds", "--scale", "small"]
    pairs = zip(words[6::2], words[7::2], strict=True)
    assert {key[2:]: value(text) for key, text in pairs} == changed


def test_what_was_run_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"--{key}={each}" for key, each in LATENCY.items()]
    asked = ["paper", "run", "latency", "--json", "--seeds=1,4", "--processes=1", *words]
    assert main([*asked, "--runs", str(tmp_path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["changed"] == {**LATENCY, "seeds": [1, 4]}
    assert told["command"] == (
        "hiflash paper run latency --scale small --data.name mnist5k --stop.communications 3 --workers 1 "
        "--seeds 1,4"
    )
    assert told["command"] in (tmp_path / "paper/latency/small/paper.md").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["js-lambda", "--seed", "7"], "js-lambda has seeds, not one seed (--seeds); leave out seed"),
        (["latency", "--seed", "7"], "leave out seed"),
        (["js-lambda", "--federation.heterogeneity_weight", "3"],
         "leave out federation.heterogeneity_weight"),
        (["js-lambda", "--federation.association", "random"], "leave out federation.association"),
        (["thresholds", "--cloud.threshold", "5"],
         "thresholds sets it itself for tau-0, tau-2, tau-8, tau-inf, ...; leave out cloud.threshold"),
        (["agent-weights", "--cost.compute_weight", "2"],
         "agent-weights sets it itself for resources, balanced, time; leave out cost.compute_weight"),
        (["agent-thresholds", "--cloud.threshold", "5"], "leave out cloud.threshold"),
        (["agent-thresholds", "--seeds", "5"], "agent-thresholds has no seeds"),
        (["mixing-grid", "--cloud.alpha", "0.5"], "mixing-grid sweeps over it; leave out cloud.alpha"),
        (["sensitivity-mnist", "--wan.link", "off"], "leave out wan.link"),
        (["communications-mnist", "--data.partition", "iid"], "leave out data.partition"),
        (["communications-mnist", "--client.lr_decay_steps", "5"], "leave out client.lr_decay_steps"),
        (["latency", "--method", "hifl"], "leave out method"),
        (["thresholds", "--method", "hifl"], "leave out method"),
    ],
)  # fmt: skip
def test_a_setting_that_would_not_reach_every_run_is_refused(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["paper", "run", *words, "--runs", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_runs_without_training_have_digests_that_tell_them_apart(tmp_path: Path) -> None:
    first, again = (
        hiflash.reproduce("latency", directory=tmp_path / name, seeds=2, **LATENCY) for name in "ab"
    )
    digests = [run["digest"] for run in first.runs]
    assert len(set(digests)) == len(digests) == 14  # seven methods, two seeds
    assert [run["digest"] for run in again.runs] == digests
    saved = json.loads((tmp_path / "a/latency/small/hifl-noniid2-s0/result.json").read_text())
    assert saved["digest"] not in digests  # that of the untouched model, in its own file as ever


def test_the_seconds_and_digests_of_a_training_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short(monkeypatch, "agent-thresholds")
    first = hiflash.reproduce("agent-thresholds", directory=tmp_path, **TRAINING)
    monkeypatch.setattr("hiflash.study.paper.study.made_by", lambda: {"hiflash": "later"})
    again = hiflash.reproduce("agent-thresholds", directory=tmp_path, **TRAINING)
    record = json.loads((tmp_path / "agent-thresholds/small/agent/training.json").read_text())
    assert first.runs == [{"name": "agent", "digest": record["digest"]}]
    assert again.to_json() == first.to_json()
    assert (first.wall_s, first.made_by) == (record["wall_s"], record["made_by"])


def test_an_old_training_tells_no_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short(monkeypatch, "agent-thresholds")
    monkeypatch.setattr("hiflash.control.train.Training._load", lambda self: forget(self))

    def forget(training: Any) -> None:
        training.wall_s = None

    found = hiflash.reproduce("agent-thresholds", directory=tmp_path, **TRAINING)
    assert found.to_json()["wall_s"] is None
    assert (tmp_path / "agent-thresholds/small/paper.md").is_file()


def test_versions_are_those_of_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maker: dict[str, Any] = {"hiflash": "1", "system": "Linux", "machine": "x", "cores": 1}
    monkeypatch.setattr("hiflash.sim.made_by.made_by", lambda: maker)
    hiflash.reproduce("latency", directory=tmp_path, seeds=1, **LATENCY)
    monkeypatch.setattr("hiflash.study.paper.study.made_by", lambda: {**maker, "hiflash": "2"})
    (tmp_path / "latency/small/hifl-noniid2-s0/result.json").unlink()
    monkeypatch.setattr("hiflash.sim.made_by.made_by", lambda: {**maker, "hiflash": "3"})
    found = hiflash.reproduce("latency", directory=tmp_path, seeds=1, **LATENCY)
    assert [made["hiflash"] for made in found.made_by] == ["1", "3"]
    page = (tmp_path / "latency/small/paper.md").read_text()
    assert "with HiFlash 1 on Linux x with 1 core; and with HiFlash 3 on Linux x with 1 core" in page
    models = hiflash.reproduce("models", directory=tmp_path)  # made anew at every call
    assert [made["hiflash"] for made in models.made_by] == ["2"]
