"""Plugins: one file or module adds parts, wherever a run takes place."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hiflash
from hiflash.cli import main
from hiflash.errors import ConfigError, Paused
from hiflash.methods import plugins, registry
from hiflash.methods.kinds import KINDS

ROOT = Path(__file__).parents[2]
EVERY_KIND = str(ROOT / "tests" / "every_kind.py")
SMALL: dict[str, Any] = {"data.name": "tiny", "workers": 1, "stop.target": "none", "stop.communications": 40}
ONE = """
import hiflash
from hiflash import Key, Part

class One(hiflash.Stateful):
    def __init__(self, most):
        self.most = most
    def decide(self, view, edge):
        return self.most

hiflash.register("threshold", Part("one", "always `most`", lambda c: One(c.cloud.most),
    keys=(Key("most", int, default=1, low=0, high=9, about="the threshold"),)))
"""
BARE = ["--data.name", "none", "--trainer", "none", "--stop.communications", "10"]

pytestmark = pytest.mark.usefixtures("parts_as_before")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty current folder; what plugins do to `sys.path` and `sys.modules` is undone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("mine", "pack", "pack.inner", "pack.numbers"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


USES: list[dict[str, Any]] = [
    {"cloud.threshold": "crowd", "cloud.slack": 2},
    {"cloud.mixing": "halfway", "cloud.least": 0.25},
    {"cloud.weighting": "step", "cloud.fresh": 0},
    {"edge.aggregate": "shrunk", "edge.shrink": 0.5},
    {"method": "hierfavg", "edge.clients_per_round": 2, "cloud.aggregate": "shrunk", "cloud.shrink": 0.5},
    {"client.algorithm": "pulled", "client.pull": 0.9},
    {"method": "fedavg", "cloud.optimizer": "careful", "cloud.care": 0.25},
    {"attack.kind": "lazy", "attack.share": 0.5},
    {"wan.upload": "bytes"},
    {"method": "fedavg", "cloud.selection": "lowest"},
    {"federation.association": "in_turn"},
    {"model.units": 7},
    {"data.partition": "blocks2"},
    {"data.task": "smoothed", "data.smoothing": 0.4},
    {"method": "hifl_halfway"},
]


@pytest.mark.parametrize("settings", USES, ids=lambda settings: " ".join(settings))
def test_a_part_of_every_kind_comes_from_one_file(settings: dict[str, Any], folder: Path) -> None:
    usual = {key: value for key, value in settings.items() if key in ("method", "edge.clients_per_round")}
    if usual.get("method") == "hifl_halfway":
        usual = {}
    plain = hiflash.run(plugins=[EVERY_KIND], **{**SMALL, **usual})
    words = [word for key, value in {**SMALL, **settings}.items() for word in (f"--{key}", str(value))]
    assert main(["run", "--plugin", EVERY_KIND, "--name", "r", *words]) == 0
    result = json.loads((folder / "runs/r/result.json").read_text())
    assert result["digest"] != plain.digest
    assert result["data"] == "tiny"


def test_the_test_above_has_every_kind() -> None:
    before = {word: set(kind.parts) for word, kind in KINDS.items()}
    plugins.load_plugins([EVERY_KIND])
    new = {name for word, kind in KINDS.items() for name in set(kind.parts) - before[word]}
    assert len(new) == len(KINDS)
    used = {str(value).rstrip("2") for settings in USES for value in settings.values()}
    assert new - used == {"tiny", "perceptron"}  # in every run


def test_a_plugins_keys_are_in_help_errors_and_lists(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "mine.py").write_text(ONE)
    assert main(["run", *BARE, "--cloud.most", "3"]) == 2
    assert "unknown key cloud.most" in capsys.readouterr().err
    assert main(["run", "--help", "--plugin", "mine"]) == 0
    shown = capsys.readouterr().out
    assert "--cloud.most" in shown
    assert "a whole number from 0 to 9; default 1" in shown
    assert main(["run", "--plugin", "mine", *BARE, "--cloud.most", "3"]) == 2
    assert 'cloud.most is for cloud.threshold = "one", and here that is "random"' in capsys.readouterr().err
    assert main(["run", "--plugin", "mine", *BARE, "--cloud.threshold", "one", "--cloud.most=-1"]) == 2
    assert (
        "cloud.most must be a whole number from 0 to 9, got -1. The default is 1." in capsys.readouterr().err
    )
    assert not (folder / "runs").exists()
    assert main(["methods", "--plugin", "mine", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parts"]["threshold"]["parts"]["one"] == {
        "about": "always `most`",
        "keys": ["cloud.most"],
    }
    assert main(["data", "list", "--plugin", EVERY_KIND]) == 0
    assert "pictures of four" in " ".join(capsys.readouterr().out.split())


def test_a_saved_run_names_its_plugin_so_that_it_can_be_resumed_anywhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "mine.py").write_text(Path(EVERY_KIND).read_text())
    settings = {**SMALL, "plugins": ["mine"], "cloud.mixing": "halfway", "cloud.least": 0.01}
    whole = hiflash.run(**settings)
    asked = iter([False] * 33 + [True])
    with pytest.raises(Paused):
        hiflash.run(directory=folder / "r", pause=lambda: next(asked), **settings)
    assert f'plugins = ["{folder}/mine.py"]' in (folder / "r/config.toml").read_text()
    (folder / "elsewhere").mkdir()
    (folder / "code.py").write_text("import hiflash\nprint(hiflash.resume('../r').digest)")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(ROOT / "tests")])}
    resumed = subprocess.run(
        [sys.executable, "../code.py"],
        cwd=folder / "elsewhere",
        env=environment,
        capture_output=True,
        text=True,
    )
    assert resumed.stdout.strip() == whole.digest, resumed.stderr


def test_plugins_of_a_file_and_of_the_command_line_add_up(folder: Path) -> None:
    (folder / "mine.py").write_text(ONE)
    (folder / "run.toml").write_text('plugins = ["mine"]\n[cloud]\nthreshold = "one"\n')
    config = hiflash.Config.load("run.toml", {"plugins": [EVERY_KIND, "mine.py"], "cloud.mixing": "halfway"})
    assert config.plugins == (f"{folder}/mine.py", EVERY_KIND)
    assert config.with_settings({"seed": 1}).plugins == config.plugins
    assert "plugins" not in config.decisive()
    assert config.digest() == config.with_settings({"plugins": []}).digest()


def test_a_plugin_is_loaded_once_however_it_is_named(folder: Path) -> None:
    (folder / "mine.py").write_text(ONE)  # a second time would be an error: the name is taken
    for name in ("mine", "mine.py", "./mine.py", str(folder / "mine.py")):
        assert plugins.load_plugins([name, name]) == [f"{folder}/mine.py"]
    assert not registry.registered()  # other processes can load it too
    hiflash.register_method("by_hand", "x", {})
    assert registry.registered()


def test_a_module_of_a_package_may_import_its_neighbours(folder: Path) -> None:
    (folder / "pack").mkdir()
    (folder / "pack/__init__.py").write_text("")
    (folder / "pack/numbers.py").write_text("DEFAULT = 4\n")
    code = "from .numbers import DEFAULT" + ONE.replace("default=1", "default=DEFAULT")
    (folder / "pack/inner.py").write_text(code)
    config = hiflash.Config(plugins=["pack.inner"], **{"cloud.threshold": "one"})
    assert config.cloud.most == 4
    assert config.plugins == (f"{folder}/pack/inner.py",)
    assert hiflash.Config(plugins=config.plugins) == hiflash.Config(plugins=["pack.inner"])


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        (
            "mine",
            "import nothing_there",
            "ModuleNotFoundError: No module named 'nothing_there' (.*mine.py, line 1)",
        ),
        (
            "mine",
            "x = 1\nraise KeyError('mine')",
            "KeyError: 'mine' (.*mine.py, line 2); mend it or leave it out",
        ),
        ("mine", "def f(:", "SyntaxError: invalid syntax (mine.py, line 1)"),
        ("mine", "raise SystemExit(3)", "SystemExit: 3"),
        ("mine", ONE + "hiflash.register('nothing', None)", "plugin mine: unknown kind of part 'nothing'"),
        ("mine.py", ONE + "1 / 0", "plugin mine.py cannot be loaded: ZeroDivisionError: division by zero"),
        ("nowhere", "", "plugin nowhere: there is no such module in .* or among the installed ones"),
        ("nowhere.py", "", "nowhere.py is not a Python file; give the path of a .py file, or a module"),
        ("mine/", "", "is not a Python file"),
        ("a b", "", "plugin 'a b' is neither a module nor the path of a .py file"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_one_error_and_changes_nothing(
    name: str, code: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "mine.py").write_text(code)
    before = registry.snapshot()
    assert main(["run", "--plugin", name, *BARE]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: plugin ")
    assert re.search(said.replace("(", r"\(").replace(")", r"\)"), line)
    assert [after for _, after in registry.snapshot()] == [kept for _, kept in before]
    assert not (folder / "runs").exists()
    with pytest.raises(ConfigError, match=r"unknown key cloud\.most"):
        hiflash.Config(**{"cloud.most": 1})


def test_installed_packages_bring_plugins_by_entry_points(folder: Path) -> None:
    (folder / "site/brought.dist-info").mkdir(parents=True)
    (folder / "site/brought.py").write_text("print('loaded')" + ONE)
    (folder / "site/brought.dist-info/METADATA").write_text("Name: brought\nVersion: 1\n")
    (folder / "site/brought.dist-info/entry_points.txt").write_text("[hiflash.plugins]\nany = brought\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder / "site"), *sys.path])}

    def printed(*words: str) -> str:
        command = [sys.executable, "-m", "hiflash", *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert "loaded" not in printed("--help")
    assert "loaded" in printed("run", "--help")
    assert '"one"' in printed("methods", "--json")
    assert "10 to the cloud" in printed("run", *BARE, "--cloud.threshold", "one", "--cloud.most", "3")


def test_a_comparison_in_processes_loads_the_plugins_there(folder: Path) -> None:
    common: dict[str, Any] = {**SMALL, "plugins": [EVERY_KIND], "cloud.threshold": "crowd"}
    common |= {"methods": ["hifl", "hifl_halfway"], "seeds": 1}
    here = hiflash.compare(**common)
    apart = hiflash.compare(directory=folder / "apart", processes=2, **common)
    assert [r.digest for r in apart.results] == [r.digest for r in here.results]
    assert not registry.registered()


def test_the_examples_run_together_from_the_command_line(folder: Path) -> None:
    examples = sorted((ROOT / "examples/plugins").glob("*.py"))
    assert {path.stem for path in examples} == {
        "association",
        "client_algorithm",
        "dataset",
        "mixing",
        "threshold",
    }
    words = [word for path in examples for word in ("--plugin", str(path))]
    words += ["--data.name", "spirals", "--federation.association", "mixed_speeds", "--workers", "1"]
    mine = "mine=hifl cloud.threshold=crowd cloud.mixing=patient client.algorithm=memory"
    words += ["--methods", "hifl", "--variant", mine]
    assert main(["compare", *words, "--stop.communications", "150", "--seeds", "1", "--processes", "2"]) == 0
    cells = json.loads((folder / "runs/compare-spirals/compare.json").read_text())["cells"]
    assert {cell["label"] for cell in cells} == {"hifl", "mine"}
    assert all(cell["best_accuracy"] > 0.6 for cell in cells)  # the most frequent of 4 classes gives 0.25
