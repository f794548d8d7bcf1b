"""Who may import whom, and what no module may do with data that comes from outside."""

import ast
import sys
from pathlib import Path

import pytest

import hiflash

SOURCE = Path(hiflash.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))

VOCABULARY = {"messages", "estimates", "weights", "seeding", "errors"}
# Each package, and what it may import beside the vocabulary and itself.
MAY_IMPORT: dict[str, set[str]] = {
    "privacy": set(),
    "core": set(),
    "data": {"core"},
    "store": {"core"},
    "agents": {"core", "store"},
    "methods": {"core", "data", "store", "agents"},
    "config": {"privacy", "core", "data", "methods"},
    "train": {"core", "data"},
    "execute": {"privacy", "core", "methods", "train"},
    "sim": {"privacy", "core", "agents", "methods", "config", "data", "train", "execute"},
    "serve": {"privacy", "core", "store", "agents", "methods", "config", "data", "train", "execute", "sim"},
    "control": {"core", "store", "agents", "methods", "config", "data", "train", "execute", "sim"},
    "report": {"core", "store", "sim", "control"},
}
MAY_IMPORT["study"] = set(MAY_IMPORT)
MAY_IMPORT["cli"] = set(MAY_IMPORT)
FORBIDDEN_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}


def name_of(path: Path) -> str:
    parts = ["hiflash", *path.relative_to(SOURCE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> set[str]:
    """Return the absolute names of everything a module imports when it runs, wherever in it."""
    found = set()
    tree = ast.parse(path.read_text())
    for_types_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    package = name_of(path) if path.name == "__init__.py" else name_of(path).rpartition(".")[0]
    for node in ast.walk(tree):
        if id(node) in for_types_only:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                anchor = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*anchor, *([node.module] if node.module else [])])
            found.add(base)
            found |= {f"{base}.{alias.name}" for alias in node.names}
    return found


def problems(source: str) -> list[str]:
    """Return what a module does that could run code hidden in data."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.split(".")[0] in FORBIDDEN_MODULES]
        elif isinstance(node, ast.ImportFrom):
            if (node.module or "").split(".")[0] in FORBIDDEN_MODULES:
                found.append(str(node.module))
            if node.module == "torch" and any(alias.name == "load" for alias in node.names):
                found.append("from torch import load")
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in FORBIDDEN_CALLS or called.startswith("builtins."):
                found.append(called)
            if called in ("torch.load", "torch.jit.load", "torch.hub.load", "yaml.load", "yaml.unsafe_load"):
                found.append(called)
            for keyword in node.keywords:
                off = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
                if keyword.arg == "allow_pickle" and not off:
                    found.append(f"{called}(allow_pickle=...)")
                if keyword.arg == "shell" and not off:
                    found.append(f"{called}(shell=...)")
    return found


def inner_imports(path: Path) -> set[str]:
    """Return the modules and packages of this project that a module imports."""
    found = imports(path) & {name_of(module) for module in MODULES}
    inner = {name for name in found if not any(other.startswith(f"{name}.") for other in found)}
    return inner - {name_of(path)}


def test_the_top_level_has_the_public_names_and_the_vocabulary_only():
    assert {path.stem for path in SOURCE.glob("*.py")} == {*VOCABULARY, "__init__", "__main__"}
    assert {path.parent.name for path in SOURCE.glob("*/__init__.py")} == set(MAY_IMPORT)


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_only_what_its_place_in_the_order_allows(package):
    allowed = {*VOCABULARY, *MAY_IMPORT[package], package}
    for path in (SOURCE / package).rglob("*.py"):
        for name in inner_imports(path) - {"hiflash"}:
            assert name.split(".")[1] in allowed, f"{name_of(path)} imports {name}"


def test_the_order_of_packages_has_no_way_round():
    placed: set[str] = set()
    for package, allowed in MAY_IMPORT.items():
        assert allowed <= placed, f"{package} imports what stands below it"
        placed.add(package)


def test_no_modules_import_each_other_in_a_circle():
    """Lazy imports included: a circle of them is still one."""
    left = {name_of(path): inner_imports(path) for path in MODULES}
    while free := [name for name, found in left.items() if not found & set(left)]:
        for name in free:
            del left[name]
    assert left == {}


PACKAGES = sorted(path.parent for path in SOURCE.rglob("*/__init__.py"))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_package_says_what_it_is_for_and_what_it_may_import(package):
    said = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    assert "May import " in said


@pytest.mark.parametrize("path", sorted((SOURCE / "core").rglob("*.py")), ids=name_of)
def test_the_core_imports_only_numpy_and_the_standard_library(path):
    for name in imports(path):
        top = name.split(".")[0]
        assert top in ("hiflash", "numpy") or top in sys.stdlib_module_names, (
            f"{name_of(path)} imports {name}"
        )


@pytest.mark.parametrize("module", ["messages", "estimates", "weights", "seeding", "errors"])
def test_the_vocabulary_does_not_import_the_rest_of_the_package(module):
    own = {name.split(".")[1] for name in imports(SOURCE / f"{module}.py") if name.startswith("hiflash.")}
    assert own <= {"messages", "estimates", "errors"}


@pytest.mark.parametrize("path", sorted((SOURCE / "core").rglob("*.py")), ids=name_of)
def test_the_core_owns_no_clock_file_socket_thread_or_process(path):
    tops = {name.split(".")[0] for name in imports(path)}
    assert not tops & {
        "time", "datetime", "os", "io", "pathlib", "socket", "threading", "multiprocessing", "subprocess",
        "asyncio", "random", "sqlite3", "tempfile", "shutil", "concurrent",
    }  # fmt: skip
    calls = {
        ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
    }
    assert not calls & {"open", "print", "input"}
    assert not any(call.startswith("np.random.") and call != "np.random.Generator" for call in calls)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_module_runs_code_from_data(path):
    assert problems(path.read_text()) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "import torch\ntorch.load('x')",
        "from torch import load",
        "eval('1')",
        "exec('1')",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "import numpy as np\nflag = True\nnp.load('x', allow_pickle=flag)",
        "def f():\n    import dill",
    ],
)
def test_the_check_sees_what_it_should(source):
    assert problems(source)


def test_the_check_allows_what_is_harmless():
    assert (
        problems("import numpy as np\nnp.load('x', allow_pickle=False)\nmodel.eval()\nmodel.load('x')") == []
    )


def test_torch_and_gymnasium_are_imported_at_import_time_only_where_learning_happens():
    """`hiflash --help` must answer at once: elsewhere they are imported where they are used."""
    heavy = {"torch", "gymnasium"}
    for path in MODULES:
        if path.is_relative_to(SOURCE / "train") or path.is_relative_to(SOURCE / "control"):
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Import):
                assert not any(a.name.split(".")[0] in heavy for a in node.names), name_of(path)
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in heavy, name_of(path)
