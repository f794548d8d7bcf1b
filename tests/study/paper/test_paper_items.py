"""Items of the paper: complete, valid at both scales, resumed, and the same by command and by call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import hiflash
from hiflash.cli import main
from hiflash.errors import ConfigError, DataError, Paused
from hiflash.sim.observer import Observer, RunInfo
from hiflash.study.cells import Cell
from hiflash.study.paper import items
from hiflash.study.paper.items import FOLDER, NAMES, SCALES, load_item
from hiflash.study.paper.rules import CLAIMS
from hiflash.study.paper.study import reproduced

WANTED = {
    "thresholds", "edge-iid", "mixing-grid", "accuracy-mnist", "accuracy-femnist", "accuracy-cifar10",
    "communications-mnist", "communications-femnist", "communications-cifar10", "trade-off",
    "agent-thresholds", "agent-cost", "agent-weights", "latency", "js-lambda", "accuracy-js", "models",
    "bounds",
}  # fmt: skip
TINY = {
    "data.name": "mnist5k",
    "federation.clients": 20,
    "federation.edges": 4,
    "client.batch": 8,
    "stop.communications": 6,
    "evaluate.every": 2,
    "workers": 1,
}

pytestmark = pytest.mark.usefixtures("no_figures")


class Collected(Exception):  # noqa: N818  # not an error: it ends a call once the cells are known
    def __init__(self, cells: Sequence[Cell], folder: Path) -> None:
        super().__init__()
        self.cells, self.folder = cells, folder


def collect(cells: Sequence[Cell], folder: Path) -> Any:
    raise Collected(cells, folder)


def cells_of(item: str, scale: str, base: Path) -> Collected:
    with pytest.raises(Collected) as found:
        reproduced(item, base, scale, collect)
    return found.value


def same(told: dict[str, Any]) -> dict[str, Any]:
    """Return what is the same every time: all but the seconds that it took."""
    return {key: value for key, value in told.items() if key != "wall_s"}


def test_the_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "list", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) >= WANTED
    assert hiflash.paper_items() == list(NAMES)
    assert {path.stem for path in FOLDER.glob("*.toml")} == set(NAMES)
    assert main(["paper", "list"]) == 0
    assert "Fig. 11" in capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_the_first_line_is_the_command(name: str) -> None:
    item = load_item(name)
    assert (FOLDER / f"{name}.toml").read_text().splitlines()[0] == f"# {item.command}"


RUNS = [name for name in NAMES if load_item(name).kind in ("compare", "sweep")]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", RUNS)
def test_runs_go_on_to_the_budget_and_the_recipe_stands_beside_the_papers(
    name: str, scale: str, tmp_path: Path
) -> None:
    found = cells_of(name, scale, tmp_path)
    source = load_item(name).runs_of or name
    assert found.folder == tmp_path / source / scale
    to_target = name in ("sensitivity-mnist", "partitions-mnist")  # about nothing but what it took
    assert all(cell.config.stop.target == (0.9 if to_target else "none") for cell in found.cells)
    if name != "mixing-grid":  # a grid of HiFL's own weights
        assert "hidelta" in {cell.config.method for cell in found.cells}


def test_an_item_that_reads_the_runs_of_another_asks_for_the_same_cells(tmp_path: Path) -> None:
    for data in ("mnist", "femnist", "cifar10"):
        one = cells_of(f"accuracy-{data}", "small", tmp_path)
        other = cells_of(f"communications-{data}", "small", tmp_path)
        assert [cell.config.digest() for cell in other.cells] == [c.config.digest() for c in one.cells]
    trade_off = cells_of("trade-off", "small", tmp_path)
    assert {cell.config.data.partition for cell in trade_off.cells} == {"noniid2"}


@pytest.mark.parametrize("data", ["mnist", "femnist", "cifar10"])
def test_an_item_that_reads_runs_says_how_they_differ(data: str) -> None:
    one, other = load_item(f"accuracy-{data}"), load_item(f"communications-{data}")
    assert other.differences_at("full")[: len(other.differences)] == list(other.differences)
    for scale, words in (("full", "tested every 100 communications"), ("small", "Small: one seed")):
        assert words in one.differences_at(scale)[-1]
        assert one.differences_at(scale)[-1] == other.differences_at(scale)[-1]


def test_numbers_of_associations_have_the_same_digest_every_time(tmp_path: Path) -> None:
    few = {"data.name": "mnist5k", "federation.clients": 20, "federation.edges": 4}
    one, again = (hiflash.reproduce("js-lambda", directory=tmp_path / name, seeds=1, **few) for name in "ab")
    assert one.to_json()["digest"] == again.to_json()["digest"]
    other = hiflash.reproduce("js-lambda", directory=tmp_path / "c", seeds=[1], **few)
    assert other.to_json()["digest"] != one.to_json()["digest"]


def test_rare_tests_are_told_where_there_are_some(tmp_path: Path) -> None:
    for name in RUNS:
        rare = {cell.config.evaluate.every for cell in cells_of(name, "full", tmp_path).cells}
        told = " ".join(load_item(name).differences_at("full"))
        assert ("tested every 100" in told) == (len(rare) > 1 and name != "latency"), name


@pytest.mark.parametrize("data", ["mnist", "femnist", "cifar10"])
def test_baselines_have_equal_h_and_momentum_too(data: str, tmp_path: Path) -> None:
    configs = {
        cell.tags["label"]: cell.config for cell in cells_of(f"accuracy-{data}", "full", tmp_path).cells
    }
    hifl, recipe = configs["hifl"], configs["hidelta"]
    assert configs["fedat-h"].edge.edge_rounds == hifl.edge.edge_rounds
    equal = configs["hierfavg-5-equal"].edge
    assert (equal.edge_rounds, equal.clients_per_round) == (hifl.edge.edge_rounds, "all")
    for label in ("fedavg-momentum", "hierfavg-momentum"):
        assert configs[label].cloud.momentum == recipe.cloud.momentum


def test_crossed_labels_run_under_every_setting(tmp_path: Path) -> None:
    configs = {
        cell.tags["label"]: cell.config for cell in cells_of("sensitivity-mnist", "full", tmp_path).cells
    }
    assert configs["hifl+wan-off"].wan.link == "off"
    slow = configs["fedat-h+slot-500ms"]
    assert (slow.resources.slot_s, slow.edge.edge_rounds) == (0.5, configs["fedat-h"].edge.edge_rounds)
    assert len(configs) == 10 + 6 * 5  # ten labels, six of them under five settings


def test_cifar10_is_scaled_and_says_so(tmp_path: Path) -> None:
    for scale in SCALES:
        for cell in cells_of("accuracy-cifar10", scale, tmp_path).cells:
            assert (cell.config.model.name, cell.config.data.augment) == ("cnn", False)
    assert "scaled" in load_item("accuracy-cifar10").title


def test_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "run", "models", "--json", "--runs", str(tmp_path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["holds"] == {
        "mnist_lenet": True, "femnist_cnn": True, "cifar10_resnet": True, "cifar10_is_resnet18": False,
        "agent_mnist": False, "agent_cifar10": False,
    }  # fmt: skip
    ours = {claim["name"]: (claim["paper"], claim["ours"]) for claim in told["claims"]}
    assert ours["femnist_cnn"] == (214_590, 214_590)
    assert json.loads((tmp_path / "paper/models/small/paper.json").read_text()) == told
    assert "| does not |" in (tmp_path / "paper/models/small/paper.md").read_text()


def test_command_and_call_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [f"--{key}={value}" for key, value in TINY.items()]
    assert main(["paper", "run", "edge-iid", "--json", "--name=there", "--processes=1", *words]) == 0
    told = json.loads(capsys.readouterr().out)
    found = hiflash.reproduce("edge-iid", name="here", **TINY)  # type: ignore[arg-type]
    assert same(json.loads(json.dumps(found.to_json()))) == same(told)
    assert list(found.holds) == [claim.name for claim in CLAIMS["edge-iid"]]
    assert told["changed"] == TINY
    assert Path("runs/paper/edge-iid/here/edge-noniid-noniid1-s0/result.json").is_file()


class Counting(Observer):
    def __init__(self) -> None:
        self.ran: list[str] = []
        self.kept: list[str] = []

    def started(self, run: RunInfo) -> None:
        (self.kept if run.finished else self.ran).append(run.name)


def test_an_interrupted_item_goes_on(tmp_path: Path) -> None:
    first, again = Counting(), Counting()
    with pytest.raises(Paused):
        hiflash.reproduce(
            "thresholds", directory=tmp_path, observers=[first], pause=lambda: len(first.ran) == 3,
            **TINY,  # type: ignore[arg-type]
        )  # fmt: skip
    found = hiflash.reproduce("thresholds", directory=tmp_path, observers=[again], **TINY)  # type: ignore[arg-type]
    assert again.kept == first.ran[:2]
    assert [*again.kept, *again.ran] == [
        cell.name for cell in cells_of("thresholds", "small", tmp_path).cells
    ]
    whole = hiflash.reproduce("thresholds", directory=tmp_path / "whole", **TINY)  # type: ignore[arg-type]
    assert same(found.to_json()) == same(whole.to_json())


def test_a_training_goes_on_and_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    item = load_item("agent-thresholds")
    plan = items.Plan("small", {**item.plan("small").content, "episodes": 2})
    monkeypatch.setattr(items.Item, "plan", lambda self, scale: plan)
    seen: list[int] = []
    tiny: dict[str, Any] = {"data.name": "mnist5k", "stop.communications": 5}
    for _ in range(2):
        found = hiflash.reproduce(
            "agent-thresholds",
            directory=tmp_path,
            progress=lambda what, done, total: seen.append(done),
            **tiny,
        )
        assert found.holds["decisions_shrink"] is not None
    assert seen == [1, 2]  # the second call trains nothing


def test_all_goes_on_without_the_items_that_have_no_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    models = hiflash.reproduce("models", directory=tmp_path)

    def only_models(item: str, *rest: Any, **more: Any) -> Any:
        if item != "models":
            raise DataError("mnist was not found")
        return models

    monkeypatch.setattr("hiflash.study.paper.study.reproduced", only_models)
    assert main(["paper", "all", "--json", "--runs", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert [told["item"] for told in json.loads(out)] == ["models"]
    assert "no data for association-example, js-lambda, latency, bounds" in err
    assert "mnist was not found" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run"], "needs an item"),
        (["run", "nothing"], "item must be one of models, "),
        (["list", "models"], "takes no item"),
        (["all", "--seed", "3"], "takes no settings"),
        (["run", "models", "--scale", "huge"], "scale must be one of small, full"),
        (["run", "models", "--seeds", "3"], "models has no seeds"),
        (["run", "models", "--seed", "3"], "models takes no settings"),
        (["run", "latency", "--data.partition", "iid"], "leave out data.partition"),
        (["all", "--seeds", "a"], "--seeds must be a number of seeds or a list"),
        (["all", "--seeds", "1,1"], "seeds has 1 twice"),
        (["all", "--scale", "huge"], "scale must be one of small, full"),
        (["list", "--seeds", "a"], "paper list runs nothing; leave out --seeds"),
        (["list", "--scale", "huge"], "paper list runs nothing; leave out --scale"),
        (["sing"], "paper needs list, run ITEM or all, got sing"),
    ],
)
def test_errors(words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", *words, "--runs", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert (out, list(tmp_path.iterdir())) == ("", [])  # nothing ran before it was told


@pytest.mark.parametrize("words", [["paper", "run", "models"], ["compare"], ["calibrate"]])
@pytest.mark.parametrize("processes", ["-3", "many", "1025"])
def test_a_number_of_processes_that_there_cannot_be_is_refused(
    words: list[str], processes: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words, f"--processes={processes}", "--runs", str(tmp_path)])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert f"--processes: must be a whole number in 0..1024, got {processes}" in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("processes", ["1", "2"])
def test_the_empty_folder_of_a_killed_run_is_begun_again(processes: str, tmp_path: Path) -> None:
    cell = tmp_path / "paper/latency/small/fedavg-noniid2-s0"
    cell.mkdir(parents=True)
    (cell / ".config.toml.12ab.tmp").touch()  # killed while it wrote its configuration
    words = ["--data.name=mnist5k", "--stop.communications=3", "--seeds=1", f"--processes={processes}"]
    command = ["paper", "run", "latency", "--runs", str(tmp_path), *words]
    assert main(command) == 0
    assert (cell / "result.json").is_file()


def test_a_folder_of_something_else_is_named_with_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = tmp_path / "paper/latency/small/fedavg-noniid2-s0"
    cell.mkdir(parents=True)
    (cell / "notes.txt").touch()
    command = ["paper", "run", "latency", "--runs", str(tmp_path), "--data.name=mnist5k", "--seeds=1"]
    assert main(command) == 2
    told = capsys.readouterr().err
    assert "holds files that are not of a run (notes.txt); choose another --name or remove it" in told


def test_a_file_with_an_unknown_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (FOLDER / "models.toml").read_text()
    (tmp_path / "models.toml").write_text(text + "\n[small]\nsedes = 3\n")
    monkeypatch.setattr(items, "FOLDER", tmp_path)
    with pytest.raises(ConfigError, match="sedes"):
        load_item("models")
