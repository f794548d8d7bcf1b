"""What the documents show works, and what they list is complete."""

from __future__ import annotations

import dataclasses
import json
import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest

import hiflash
from hiflash.config import Config
from hiflash.config.settings import flatten
from hiflash.config.tree import describe_keys
from hiflash.methods.recipes import METHODS

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every run end after a few communications: the examples are shown to work, not to converge."""
    load = Config._layered.__func__  # type: ignore[attr-defined]

    def short(cls: type[Config], below: Any, above: Any, where: str) -> Config:
        return load(cls, below, {**above, "stop": {"communications": 12, "target": 0.5}}, where)  # type: ignore[no-any-return]

    monkeypatch.setattr(Config, "_layered", classmethod(short))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("number", [0, 1])
def test_python_in_the_readme_runs(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    scope: dict[str, Any] = {}
    exec(blocks[number], scope)  # noqa: S102  # our own README
    assert isinstance(scope["result"], hiflash.Result)


def test_the_index_lists_every_page() -> None:
    linked = set(re.findall(r"\]\(([\w/.]+\.md)\)", (ROOT / "docs" / "README.md").read_text()))
    assert {path.name for path in ROOT.glob("docs/*.md")} - {"README.md"} <= linked


# A training of 40,000 steps; tests/test_examples.py runs it with fewer.
TRAININGS = {"stable_baselines.py"}


@pytest.mark.usefixtures("quick", "parts_as_before")
@pytest.mark.parametrize("example", sorted({path.name for path in ROOT.glob("examples/*.py")} - TRAININGS))
def test_examples_run(example: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / example), run_name="__main__")
    assert "communications" in capsys.readouterr().out


@pytest.mark.parametrize("example", sorted(ROOT.glob("examples/*.toml")), ids=lambda path: path.name)
def test_example_configurations_are_valid(example: Path) -> None:
    Config.load(example)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_the_table_of_settings_is_complete_and_true() -> None:
    text = (ROOT / "docs/configuration.md").read_text()
    for key, allowed, default, about in describe_keys():
        row = f"| `{key}` | `{json.dumps(default)}` | {allowed} | {about} |"
        assert row.replace(allowed, allowed.replace("|", r"\|")) in text


def test_every_number_of_a_result_is_explained() -> None:
    text = (ROOT / "docs/metrics.md").read_text()
    for field in dataclasses.fields(hiflash.Result):
        if field.name not in ("path", "weights"):
            assert f"`{field.name}`" in text, field.name


@pytest.mark.parametrize("method", METHODS)
def test_the_table_of_methods_names_their_settings(method: str) -> None:
    (row,) = re.findall(rf"^\| `{method}` \| (.*?) \| ", (ROOT / "docs/methods.md").read_text(), re.MULTILINE)
    told: dict[str, Any] = {}
    for setting in re.findall(r"`([\w.]+ = [^`]+)`", row):
        told |= flatten(tomllib.loads(setting))
    base = re.match(r"those of `(\w+)`", row)
    inherited = METHODS[base[1]].settings if base else {}
    assert {**inherited, **told, **METHODS[method].settings} == {**inherited, **told}
    assert Config(method=method, **told) == Config(method=method)


@pytest.mark.usefixtures("parts_as_before")
def test_the_part_on_the_page_about_plugins_can_be_used() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/plugins.md").read_text(), re.DOTALL)
    exec(block, {})  # noqa: S102  # our own page
    config = Config(**{"cloud.threshold": "generous", "cloud.slack": 3})
    assert config.cloud.slack == 3
