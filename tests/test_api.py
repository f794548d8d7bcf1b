"""The public names: complete, quick to import, typed, and enough for everything that documents show."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hiflash
from hiflash.config.tree import describe_keys
from hiflash.config.write_typed import OBJECTS, typed_module

ROOT = Path(__file__).parents[1]
SOURCE = Path(hiflash.__file__)
SNIPPETS = [
    (f"{page.relative_to(ROOT)}, block {number}", block)
    for page in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]
EXAMPLES = [(str(path.relative_to(ROOT)), path.read_text()) for path in ROOT.glob("examples/**/*.py")]


def for_editors() -> set[str]:
    """Return the names that an editor sees: what is imported under `TYPE_CHECKING`."""
    (block,) = (node for node in ast.parse(SOURCE.read_text()).body if isinstance(node, ast.If))
    imported = [alias for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    return {alias.asname or alias.name for alias in imported}


def test_every_public_name_is_there_for_programs_and_for_editors() -> None:
    assert set(hiflash.__all__) == set(hiflash._HOMES) == for_editors()
    for name in hiflash.__all__:
        assert getattr(hiflash, name) is not None
    assert set(hiflash.__all__) < set(dir(hiflash))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        hiflash.nothing  # noqa: B018


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, hiflash; print({'torch', 'numpy', 'pydantic', 'rich'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize(("where", "code"), SNIPPETS + EXAMPLES, ids=lambda text: text[:60])
def test_examples_and_documents_import_public_names_only(where: str, code: str) -> None:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            assert not any(alias.name.startswith("hiflash.") for alias in node.names), where
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "hiflash":
            assert node.module == "hiflash", where
            assert {alias.name for alias in node.names} <= set(hiflash.__all__), where
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "hiflash":
            assert node.attr in {*hiflash.__all__, "__version__"}, f"{where}: hiflash.{node.attr}"


def first_line(name: str) -> str:
    found = getattr(hiflash, name)
    if inspect.isclass(found) or inspect.isfunction(found):
        return (inspect.getdoc(found) or "").splitlines()[0]
    return ""  # a constant or an alias: its sentence is in the document alone


def test_the_page_of_the_api_has_every_name_with_its_sentence() -> None:
    text = (ROOT / "docs/api.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|$", text, re.MULTILINE))
    assert set(rows) == set(hiflash.__all__)
    wrong = [f"| `{name}` | {first_line(name)} |" for name in rows if first_line(name) not in rows[name]]
    assert not wrong, "docs/api.md needs these rows:\n" + "\n".join(wrong)


def test_the_typed_settings_are_those_of_the_configuration() -> None:
    """If this fails: python -m hiflash.config.write_typed > src/hiflash/config/typed.py."""
    assert (SOURCE.parent / "config/typed.py").read_text() == typed_module()


def test_every_key_has_a_type() -> None:
    from hiflash.config import typed

    for key, *_ in describe_keys():
        section, _, name = key.rpartition(".")
        kind = getattr(typed, f"{section.capitalize()}Settings") if section else typed.AllSettings
        assert name in kind.__annotations__, key
    assert set(typed.AllSettings.__annotations__) - set(typed.Settings.__annotations__) == set(OBJECTS)


TYPED = """
import hiflash
hiflash.run(method="hifl", cloud={"alpha": 0.5, "mine": 3}, wan="off", stop={"target": "none"})
hiflash.compare(methods=["hifl"], data={"name": "mnist5k"}, federation={"clients": 5})
hiflash.run(methud="hifl")
hiflash.run(seed="1")
"""
OTHERS = ["torch", "numpy", "pydantic", "rich", "matplotlib", "gymnasium", "scipy", "safetensors", "mlxtend"]


def test_a_type_checker_knows_the_settings(tmp_path: Path) -> None:
    """Keys of a plugin pass: only a run knows them. A wrong top-level name or value is found."""
    (tmp_path / "mine.py").write_text(TYPED)
    skipped = "".join(f"[mypy-{name}.*]\nfollow_imports = skip\n" for name in OTHERS)  # they take a minute
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nmypy_path = {SOURCE.parents[1]}\n{skipped}")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports=silent", "--no-error-summary", "mine.py"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    first, _, second = done.stdout.splitlines()
    assert first.startswith('mine.py:5: error: Unexpected keyword argument "methud" for "run"')
    assert second.startswith('mine.py:6: error: Argument "seed" to "run" has incompatible type "str"')
